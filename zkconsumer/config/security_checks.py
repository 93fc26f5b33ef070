"""Finds security properties that have no effect."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple


class _Rule(NamedTuple):
    """Properties that take effect only with certain values of another property.

    Attributes:
        properties: names of the properties.
        switch: name of the other property.
        is_met: function that returns whether a value of the other property lets the properties take effect.
        required: required values for error messages; empty if any value is sufficient.
    """

    properties: tuple[str, ...]
    switch: str
    is_met: Callable[[Any], object]
    required: str = ""


_TLS = ("ca.location", "certificate.location", "key.location", "key.password", "endpoint.identification.algorithm")

_RULES = (
    _Rule(
        tuple(f"ssl.{name}" for name in _TLS),
        "security.protocol",
        lambda protocol: protocol in ("SSL", "SASL_SSL"),
        "SSL or SASL_SSL",
    ),
    _Rule(
        ("sasl.mechanism", "sasl.username", "sasl.password"),
        "security.protocol",
        lambda protocol: protocol.startswith("SASL"),
        "SASL_PLAINTEXT or SASL_SSL",
    ),
    _Rule(("ssl.key.location", "ssl.key.password"), "ssl.certificate.location", bool),
    _Rule(tuple(f"zookeeper.ssl.{name}" for name in _TLS), "zookeeper.ssl.client.enable", bool, "true"),
    _Rule(
        ("zookeeper.ssl.key.location", "zookeeper.ssl.key.password"),
        "zookeeper.ssl.certificate.location",
        bool,
    ),
    _Rule(
        ("zookeeper.sasl.username", "zookeeper.sasl.password"),
        "zookeeper.sasl.mechanism",
        lambda mechanism: mechanism == "DIGEST-MD5",
        "DIGEST-MD5",
    ),
)


def find_ineffective(values: Mapping[str, Any], given: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield the security properties that have no effect, each with an error message.

    If these properties were ignored, a consumer with a configured CA or password could send everything in plaintext.

    Args:
        values: values of all valid properties, by name.
        given: names of the properties set by the user.
    """
    found: dict[str, str] = {}
    for rule in _RULES:
        if rule.switch in values and not rule.is_met(values[rule.switch]):
            condition = f"{rule.switch} = {rule.required}" if rule.required else rule.switch
            for name in rule.properties:
                if name in given:
                    found.setdefault(
                        name, f"property {name!r} has no effect without {condition}; set it, or remove {name}"
                    )
    yield from found.items()


__all__ = ["find_ineffective"]
