"""Checks that all security properties set by the user take effect."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from zkconsumer.errors import ConfigurationError


class _Rule(NamedTuple):
    """Properties that take effect only if ``is_met`` returns true; ``condition`` is the text for error messages."""

    properties: tuple[str, ...]
    condition: str
    is_met: Callable[[Mapping[str, Any]], object]


_TLS = ("ca.location", "certificate.location", "key.location", "key.password", "endpoint.identification.algorithm")

_RULES = (
    _Rule(
        tuple(f"ssl.{name}" for name in _TLS),
        "security.protocol = SSL or SASL_SSL",
        lambda values: values["security.protocol"] in ("SSL", "SASL_SSL"),
    ),
    _Rule(
        ("sasl.mechanism", "sasl.username", "sasl.password"),
        "security.protocol = SASL_PLAINTEXT or SASL_SSL",
        lambda values: values["security.protocol"].startswith("SASL"),
    ),
    _Rule(
        ("ssl.key.location", "ssl.key.password"),
        "ssl.certificate.location",
        lambda values: values["ssl.certificate.location"],
    ),
    _Rule(
        tuple(f"zookeeper.ssl.{name}" for name in _TLS),
        "zookeeper.ssl.client.enable = true",
        lambda values: values["zookeeper.ssl.client.enable"],
    ),
    _Rule(
        ("zookeeper.ssl.key.location", "zookeeper.ssl.key.password"),
        "zookeeper.ssl.certificate.location",
        lambda values: values["zookeeper.ssl.certificate.location"],
    ),
    _Rule(
        ("zookeeper.sasl.username", "zookeeper.sasl.password"),
        "zookeeper.sasl.mechanism = DIGEST-MD5",
        lambda values: values["zookeeper.sasl.mechanism"] == "DIGEST-MD5",
    ),
)


def check_security(values: Mapping[str, Any], given: Collection[str]) -> None:
    """Check that every security property set by the user takes effect.

    Without this check, a consumer with a configured CA or password could still send everything in plaintext.

    Args:
        values: values of all properties, by name.
        given: names of the properties set by the user.

    Raises:
        ConfigurationError: a property has no effect. The message contains its name and the setting that it requires.
    """
    for rule in _RULES:
        without_effect = [name for name in rule.properties if name in given]
        if without_effect and not rule.is_met(values):
            raise ConfigurationError(
                f"{', '.join(without_effect)} {'has' if len(without_effect) == 1 else 'have'} no effect without "
                f"{rule.condition}; set it, or remove {' and '.join(without_effect)}"
            )


__all__ = ["check_security"]
