"""ConsumerConfig: the properties of a consumer, named as in Kafka's old consumer.

Source: Kafka 1.1 kafka.consumer.ConsumerConfig, kafka.utils.VerifiableProperties, ZKConfig.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from zkconsumer.argument_checks import check_flag, check_type
from zkconsumer.config.declared import REQUIRED
from zkconsumer.config.name_hints import FOREIGN_PROPERTIES, hint
from zkconsumer.config.problems import Problems
from zkconsumer.config.properties import ALIASES, PROPERTIES, WITHOUT_EFFECT, property_names
from zkconsumer.config.properties_file import FileValue, parse_properties
from zkconsumer.config.security_checks import find_ineffective
from zkconsumer.errors import ConfigurationError
from zkconsumer.log import get_logger

#: Maximum number of characters quoted from an unknown property name, and pattern of a character that is not allowed in
#: property names.
_MAX_NAME, _NOT_IN_NAME = 80, re.compile(r"[^a-zA-Z0-9._-]")


class _Seconds:
    """Descriptor for an attribute ``x_s``: the value of ``x_ms`` in seconds."""

    def __set_name__(self, _owner: type, name: str) -> None:
        self._milliseconds = name.removesuffix("_s") + "_ms"

    def __get__(self, config: object, _owner: type) -> float:
        seconds: float = getattr(config, self._milliseconds) / 1000
        return seconds


@dataclass(frozen=True, slots=True)
class ConsumerConfig:
    """Immutable configuration of one consumer.

    Build it with ``from_dict`` or ``from_properties``. Attributes are named after the properties, with ``_`` instead of
    ``.``. Sizes are in bytes. Times are in milliseconds; ``x_s`` is ``x_ms`` in seconds. The properties are declared in
    ``config/properties.py``.

    Spark's checkpoints contain the pickled form, a dictionary from property name to value.
    """

    group_id: str
    zookeeper_connect: str
    bootstrap_servers: str
    consumer_id: str | None
    client_id: str
    zookeeper_session_timeout_ms: int
    zookeeper_connection_timeout_ms: int
    zookeeper_sync_time_ms: int
    socket_timeout_ms: int
    socket_receive_buffer_bytes: int
    fetch_message_max_bytes: int
    fetch_max_bytes: int
    num_consumer_fetchers: int
    queued_max_message_chunks: int
    queued_max_bytes: int
    fetch_min_bytes: int
    fetch_wait_max_ms: int
    refresh_leader_backoff_ms: int
    auto_offset_reset: str
    auto_offset_reset_new_partitions: str
    consumer_timeout_ms: int
    isolation_level: str
    check_crcs: bool
    corrupt_record_policy: str
    decompressed_batch_max_bytes: int
    security_protocol: str
    ssl_ca_location: str | None
    ssl_certificate_location: str | None
    ssl_key_location: str | None
    ssl_key_password: str | None
    ssl_endpoint_identification_algorithm: str
    sasl_mechanism: str
    sasl_username: str | None
    sasl_password: str | None
    zookeeper_ssl_client_enable: bool
    zookeeper_ssl_ca_location: str | None
    zookeeper_ssl_certificate_location: str | None
    zookeeper_ssl_key_location: str | None
    zookeeper_ssl_key_password: str | None
    zookeeper_ssl_endpoint_identification_algorithm: str
    zookeeper_sasl_mechanism: str | None
    zookeeper_sasl_username: str | None
    zookeeper_sasl_password: str | None
    zookeeper_auth_digest: str | None
    rebalance_max_retries: int
    rebalance_backoff_ms: int
    partition_assignment_strategy: str
    roundrobin_order: str
    exclude_internal_topics: bool
    metadata_max_age_ms: int
    auto_commit_enable: bool
    auto_commit_interval_ms: int
    offsets_storage: str
    dual_commit_enabled: bool
    offsets_channel_backoff_ms: int
    offsets_channel_socket_timeout_ms: int
    offsets_commit_max_retries: int
    offsets_commit_unchanged: bool

    socket_timeout_s = _Seconds()
    zookeeper_session_timeout_s = _Seconds()
    zookeeper_connection_timeout_s = _Seconds()
    rebalance_backoff_s = _Seconds()
    metadata_max_age_s = _Seconds()
    auto_commit_interval_s = _Seconds()
    offsets_channel_backoff_s = _Seconds()
    offsets_channel_socket_timeout_s = _Seconds()

    def __getstate__(self) -> dict[str, object]:
        return {name: getattr(self, _to_attribute(name)) for name in property_names()}

    def __setstate__(self, state: Mapping[str, object]) -> None:
        """Unpickle; properties that ``state`` does not contain are set to their defaults."""
        values = {
            declared.name: state[declared.name] if declared.name in state else declared.parse_default()
            for declared in PROPERTIES
        }
        for name, value in {**values, **_derive(values)}.items():
            object.__setattr__(self, _to_attribute(name), value)

    def __repr__(self) -> str:
        names = (_to_attribute(declared.name) for declared in PROPERTIES if not declared.type.is_secret)
        return f"ConsumerConfig({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    @classmethod
    def from_dict(cls, properties: Mapping[str, object], *, strict: bool = False) -> ConsumerConfig:
        """Build a configuration from a dictionary of properties.

        Values may be strings, numbers or booleans; None means that the property is not set. By default, unknown
        properties are ignored, as in Kafka's old consumer, because several programs often share one file. Unless
        its name starts with ``external``, each ignored property is logged, with the closest known name if there is one.

        Args:
            properties: values by property name, such as ``group.id``.
            strict: whether unknown properties raise an error.

        Raises:
            ConfigurationError: a property is missing or invalid, or unknown if ``strict`` is true. The message has one
                line per problem, with the property, its value and the valid values. Problems in a file are preceded by
                ``path:line``.
        """
        strict = check_flag("strict", strict)
        if not isinstance(properties, Mapping):  # the value is not shown, because it may contain passwords
            kind = type(properties).__name__
            raise ConfigurationError(
                f"properties must be a dict, got a value of type {kind}; to read a file, use from_properties"
            )
        for name in properties:
            if not isinstance(name, str):
                raise ConfigurationError(f"property names must be strings, got {name!r}")
        values: dict[str, Any] = {}
        problems = Problems(next((value.path for value in properties.values() if isinstance(value, FileValue)), ""))
        unread = {ALIASES.get(name, name): value for name, value in properties.items() if value is not None}
        given = {name: unread[name] for name in property_names() if name in unread}
        for declared in PROPERTIES:
            value = unread.pop(declared.name, None)
            if value is None and declared.default is REQUIRED:
                problems.add(f"Missing required property '{declared.name}'")
                continue
            try:
                values[declared.name] = declared.parse_default() if value is None else declared.parse(value)
            except ConfigurationError as error:
                problems.add(error, value)
        for name in sorted(unread):
            _check_unknown(name, unread[name], problems if strict else None)
        valid = given.keys() & values.keys()
        for name, problem in (*find_ineffective(values, valid), *_find_short_timeout(values, valid)):
            problems.add(problem, given.get(name))
        for name, value in given.items():
            _check_encoding(name, value, problems if strict else None)
        problems.check()
        values = {**values, **_derive(values)}
        return cls(**{_to_attribute(name): value for name, value in values.items()})

    @classmethod
    def from_properties(
        cls, path: str | PathLike[str], overrides: Mapping[str, object] | None = None, *, strict: bool = False
    ) -> ConsumerConfig:
        """Build a configuration from a ``consumer.properties`` file; ``overrides`` take precedence over the file.

        Raises:
            ConfigurationError: the file cannot be read, or a property is missing or invalid; see ``from_dict``.
        """
        check_type("path", path, (str, PathLike), "the path of a properties file")
        check_flag("strict", strict)
        if overrides is not None:
            check_type("overrides", overrides, Mapping, "a dict")
        return cls.from_dict({**read_properties(path), **(overrides or {})}, strict=strict)

    @classmethod
    def parse(cls, name: str, text: str) -> Any:
        """Parse the value of one property.

        Raises:
            ConfigurationError: the value is invalid. The message contains the property, its value and the valid values.
        """
        [declared] = (declared for declared in PROPERTIES if declared.name == name)
        return declared.parse(text)

    @property
    def consumer_timeout_s(self) -> float | None:
        """Maximum seconds that a stream waits for a record; None to wait indefinitely."""
        return self.consumer_timeout_ms / 1000 if self.consumer_timeout_ms >= 0 else None

    @property
    def read_committed(self) -> bool:
        """Whether reading stops before the first open transaction, and records of aborted transactions are skipped."""
        return self.isolation_level == "read_committed"


def read_properties(path: str | PathLike[str]) -> dict[str, str]:
    """Read a Java properties file. The values carry their line numbers for the error messages of ``from_dict``.

    Raises:
        ConfigurationError: the file cannot be read, or is not a Java properties file.
    """
    try:
        return {**parse_properties(Path(path).read_bytes(), str(path))}
    except OSError as error:
        raise ConfigurationError(f"cannot read the properties file {str(path)!r}: {error.strerror}") from None
    except (ValueError, UnicodeError) as error:
        raise ConfigurationError(f"{str(path)!r} is not a Java properties file: {error}") from None


def _to_attribute(name: str) -> str:
    return name.replace(".", "_")


def _derive(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of unset properties whose default depends on another property."""
    defaults = {
        "client.id": values["group.id"],
        "zookeeper.connection.timeout.ms": values["zookeeper.session.timeout.ms"],
        "rebalance.backoff.ms": values["zookeeper.sync.time.ms"],
        "dual.commit.enabled": values["offsets.storage"] == "kafka",
    }
    return {name: default for name, default in defaults.items() if values[name] is None}


def _find_short_timeout(values: Mapping[str, Any], given: Collection[str]) -> Iterator[tuple[str, str]]:
    timeout, wait = values.get("socket.timeout.ms"), values.get("fetch.wait.max.ms")
    if timeout is None or wait is None or timeout >= wait:
        return
    reason = "otherwise each fetch that waits for records times out"
    if "socket.timeout.ms" in given:
        name, requirement = "socket.timeout.ms", f"at least fetch.wait.max.ms = {wait}, got '{timeout}'"
    else:
        name, requirement = "fetch.wait.max.ms", f"at most socket.timeout.ms = {timeout}, got '{wait}'"
    yield name, f"property {name!r} must be {requirement}; {reason}"


def _check_encoding(name: str, value: object, problems: Problems | None) -> None:
    """If the encoding of a value is ambiguous, add the property to ``problems``, or log it if ``problems`` is None."""
    if not isinstance(value, FileValue) or value.is_encoding_clear:
        return
    remedy = "write non-ASCII characters as \\uXXXX, because Java and zkconsumer read properties files as ISO-8859-1"
    if problems is None:
        _log().warning("property_encoding_unclear", property=name, path=value.place, remedy=remedy)
    else:
        problems.add(f"property {name!r} contains non-ASCII characters; {remedy}", value)


def _check_unknown(name: str, value: object, problems: Problems | None) -> None:
    """Log a property without effect; add an unknown property to ``problems``, or log it if ``problems`` is None."""
    place = {"path": value.place} if isinstance(value, FileValue) else {}
    if name in WITHOUT_EFFECT:
        _log().warning("property_ignored", property=name, value=value, reason=WITHOUT_EFFECT[name], **place)
        return
    if name.startswith("external"):
        return  # Kafka's VerifiableProperties ignores names with this prefix without a warning
    remedy = hint(name, property_names(), FOREIGN_PROPERTIES)
    # A line without a separator is parsed as one long name, which may contain a password.
    start = _NOT_IN_NAME.split(name[:_MAX_NAME])[0]
    shown = start if start == name else f"{start or name[0]}..."
    if problems is None:
        _log().warning("property_unknown", property=shown, remedy=remedy.lstrip("; ") or None, **place)
    else:
        problems.add(f"unknown property {shown!r}{remedy}", value)


def _log() -> Any:
    return get_logger("zkconsumer.config")
