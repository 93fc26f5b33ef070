"""ConsumerConfig: every property of the old consumer, by its old name, checked once.

Source: Kafka 1.1 kafka.consumer.ConsumerConfig, kafka.utils.VerifiableProperties, ZKConfig.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import javaproperties

from zkconsumer.errors import ConfigurationError
from zkconsumer.log import get_logger

#: Releases of the JVM consumer that deal round-robin alike, by the oldest of them.
ROUND_ROBIN_ORDERS = ("1.0", "0.10.2", "0.8.2")

_LEGAL = re.compile(r"[a-zA-Z0-9._-]*")
_INT_MAX = (1 << 31) - 1


def _text(_key: str, value: str) -> str:
    return value


def _name(key: str, value: str) -> str:
    if not _LEGAL.fullmatch(value):
        raise ConfigurationError(
            f"{key} {value} is illegal, contains a character other than ASCII alphanumerics, '.', '_' and '-'"
        )
    return value


def _group(key: str, value: str) -> str:
    if not value.strip("."):
        raise ConfigurationError(f"{key} = {value!r} cannot be the name of a znode")
    return _name(key, value)


def _boolean(key: str, value: str) -> bool:
    if value not in ("true", "false"):
        raise ConfigurationError(f"{key} = {value!r}: exactly 'true' or 'false' is expected")
    return value == "true"


def _integer(least: int) -> Callable[[str, str], int]:
    def parse(key: str, value: str) -> int:
        if not re.fullmatch(r"[+-]?[0-9]{1,10}", value) or not least <= int(value) <= _INT_MAX:
            raise ConfigurationError(f"{key} = {value!r}: a whole number from {least} to {_INT_MAX} is expected")
        return int(value)

    return parse


def _choice(
    where: str, *values: str, shown: str = "{}", any_case: bool = False, upper: bool = False
) -> Callable[[str, str], str]:
    def parse(key: str, value: str) -> str:
        chosen = value.lower() if any_case else value.upper() if upper else value
        if chosen not in values:
            valid = " and ".join(shown.format(value) for value in values)
            raise ConfigurationError(f"Wrong value {value} of {key} in {where}; Valid values are {valid}")
        return chosen

    return parse


_REQUIRED = object()

_NOT_APPLIED = "the original reads it and never applies it either; fetch.message.max.bytes limits each partition"
_NO_REPORTERS = "reporters are classes of the JVM; read the connector's metrics, or use zkconsumer.prometheus"
_NO_MIRROR = "the original has the name and no use for it"

#: Other spellings of librdkafka.
_ALIASES = {"sasl.mechanisms": "sasl.mechanism"}

#: Valid names of the original that cannot matter here, with the reason.
WITHOUT_EFFECT = {
    "fetch.max.bytes": _NOT_APPLIED,
    "kafka.metrics.reporters": _NO_REPORTERS,
    "kafka.metrics.polling.interval.secs": _NO_REPORTERS,
    "mirror.topics.whitelist": _NO_MIRROR,
    "mirror.topics.blacklist": _NO_MIRROR,
    "mirror.consumer.numthreads": _NO_MIRROR,
}


@dataclass(frozen=True, slots=True)
class _Property:
    parse: Callable[[str, str], Any]
    default: Any


def _property(parse: Callable[[str, str], Any], default: Any = _REQUIRED, *, secret: bool = False) -> Any:
    return dataclasses.field(
        kw_only=True,
        repr=not secret,
        metadata={"property": _Property(parse, default)},
    )


@dataclass(frozen=True, slots=True)
class ConsumerConfig:
    """The settings of one consumer; immutable.

    Build it with ``from_dict`` or ``from_properties``; each attribute is a property's name with ``_`` for
    ``.``. Times are milliseconds, sizes bytes.
    """

    # Who, and where.
    group_id: str = _property(_group)
    zookeeper_connect: str = _property(_text)
    #: Where the cluster keeps no brokers in ZooKeeper (KRaft): ``host:port`` with commas.
    bootstrap_servers: str = _property(_text, "")
    consumer_id: str | None = _property(_name, None)
    client_id: str | None = _property(_name, None)
    zookeeper_session_timeout_ms: int = _property(_integer(1), 6000)
    zookeeper_connection_timeout_ms: int | None = _property(_integer(1), None)
    zookeeper_sync_time_ms: int = _property(_integer(0), 2000)
    # Fetching.
    socket_timeout_ms: int = _property(_integer(1), 30_000)
    #: -1, the default, leaves the socket's receive buffer to the operating system; the original had 65536.
    socket_receive_buffer_bytes: int = _property(_integer(-1), -1)
    fetch_message_max_bytes: int = _property(_integer(1), 1 << 20)
    num_consumer_fetchers: int = _property(_integer(1), 1)
    #: Answers kept per partition; the original counted them per stream.
    queued_max_message_chunks: int = _property(_integer(1), 2)
    fetch_min_bytes: int = _property(_integer(0), 1)
    fetch_wait_max_ms: int = _property(_integer(0), 100)
    refresh_leader_backoff_ms: int = _property(_integer(0), 200)
    auto_offset_reset: str = _property(_choice("ConsumerConfig", "smallest", "largest"), "largest")
    consumer_timeout_ms: int = _property(_integer(-1), -1)
    isolation_level: str = _property(
        _choice("ConsumerConfig", "read_uncommitted", "read_committed"), "read_uncommitted"
    )
    check_crcs: bool = _property(_boolean, True)
    #: ``skip`` goes on behind a batch that is damaged when it is fetched again, too, and logs it. Not in the original.
    corrupt_record_policy: str = _property(_choice("consumer config", "raise", "skip"), "raise")
    # Security of the brokers' listeners, by librdkafka's names.
    security_protocol: str = _property(
        _choice("consumer config", "PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL", upper=True), "PLAINTEXT"
    )
    ssl_ca_location: str | None = _property(_text, None)
    ssl_certificate_location: str | None = _property(_text, None)
    ssl_key_location: str | None = _property(_text, None)
    ssl_key_password: str | None = _property(_text, None, secret=True)
    ssl_endpoint_identification_algorithm: str = _property(_choice("consumer config", "https", "none"), "https")
    sasl_mechanism: str = _property(
        _choice("consumer config", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", upper=True), "PLAIN"
    )
    sasl_username: str | None = _property(_text, None)
    sasl_password: str | None = _property(_text, None, secret=True)
    # Security of ZooKeeper.
    zookeeper_ssl_client_enable: bool = _property(_boolean, False)
    zookeeper_ssl_ca_location: str | None = _property(_text, None)
    zookeeper_ssl_certificate_location: str | None = _property(_text, None)
    zookeeper_ssl_key_location: str | None = _property(_text, None)
    zookeeper_ssl_key_password: str | None = _property(_text, None, secret=True)
    zookeeper_ssl_endpoint_identification_algorithm: str = _property(
        _choice("consumer config", "https", "none"), "https"
    )
    zookeeper_sasl_mechanism: str | None = _property(
        _choice("consumer config", "DIGEST-MD5", "GSSAPI", upper=True), None
    )
    zookeeper_sasl_username: str | None = _property(_text, None)
    zookeeper_sasl_password: str | None = _property(_text, None, secret=True)
    #: ``user:password`` for ZooKeeper's plain digest authentication.
    zookeeper_auth_digest: str | None = _property(_text, None, secret=True)
    # The group.
    rebalance_max_retries: int = _property(_integer(1), 4)
    rebalance_backoff_ms: int | None = _property(_integer(0), None)
    partition_assignment_strategy: str = _property(
        _choice("consumer config", "range", "roundrobin", "flink", shown="'{}'"), "range"
    )
    #: Which JVM releases to deal like with ``roundrobin``: ``1.0`` (1.0 and 1.1), ``0.10.2`` (0.10.2 and 0.11) or
    #: ``0.8.2`` (up to 0.10.1, where all members must read the same topics). Not in the original.
    roundrobin_order: str = _property(_choice("consumer config", *ROUND_ROBIN_ORDERS), "1.0")
    #: Whether filters leave out Kafka's own topics; this member's view of all filters in the group.
    exclude_internal_topics: bool = _property(_boolean, True)
    #: How often partitions and topics are asked for where changes are no events (KRaft). From Kafka's own consumer.
    metadata_max_age_ms: int = _property(_integer(1), 30_000)
    # Offsets.
    auto_commit_enable: bool = _property(_boolean, True)
    auto_commit_interval_ms: int = _property(_integer(1), 60_000)
    offsets_storage: str = _property(
        _choice("consumer config", "zookeeper", "kafka", shown="'{}'", any_case=True), "zookeeper"
    )
    #: With ``offsets.storage=kafka``: also keep them in ZooKeeper; None means yes.
    dual_commit_enabled: bool | None = _property(_boolean, None)
    offsets_channel_backoff_ms: int = _property(_integer(0), 1000)
    offsets_channel_socket_timeout_ms: int = _property(_integer(1), 10_000)
    offsets_commit_max_retries: int = _property(_integer(0), 5)
    #: For monitors: write offsets to ZooKeeper that are stored already (Burrow goes by the znodes' age), and make the
    #: three subtrees of the group at once (CMAK wants them). Not in the original.
    offsets_commit_unchanged: bool = _property(_boolean, False)

    def __post_init__(self) -> None:
        derived = {
            "client_id": self.group_id,
            "zookeeper_connection_timeout_ms": self.zookeeper_session_timeout_ms,
            "rebalance_backoff_ms": self.zookeeper_sync_time_ms,
            "dual_commit_enabled": self.offsets_storage == "kafka",
        }
        for name, value in derived.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        if not self.zookeeper_connect.strip():
            raise ConfigurationError("zookeeper.connect is empty; host:port with commas is expected")
        if self.socket_timeout_ms < self.fetch_wait_max_ms:
            raise ConfigurationError(
                f"socket.timeout.ms = {self.socket_timeout_ms} is less than fetch.wait.max.ms = "
                f"{self.fetch_wait_max_ms}: each fetch that waits would time out"
            )

    @classmethod
    def from_dict(cls, properties: Mapping[str, object], *, strict: bool = False) -> ConsumerConfig:
        """Check properties by their old names.

        Numbers and booleans may be Python's own. A key that is not known is logged once, with the nearest
        name; the original ignores such keys too, since one file often serves several programs.

        Args:
            strict: raise for unknown keys.

        Raises:
            ConfigurationError: names the key, the value and what is expected.
        """
        values: dict[str, Any] = {}
        given = {_ALIASES.get(key, key): _as_text(value) for key, value in properties.items() if value is not None}
        for field in dataclasses.fields(cls):
            key = field.name.replace("_", ".")
            prop: _Property = field.metadata["property"]
            text = given.pop(key, None)
            if text is not None:
                values[field.name] = prop.parse(key, text)
            elif prop.default is _REQUIRED:
                raise ConfigurationError(f"Missing required property '{key}'")
            else:
                values[field.name] = prop.default
        for key in sorted(given):
            if key in WITHOUT_EFFECT:
                _log().warning("property_without_effect", property=key, value=given[key], reason=WITHOUT_EFFECT[key])
            else:
                _unknown(key, strict)
        return cls(**values)

    @classmethod
    def from_properties(
        cls, path: str | PathLike[str], overrides: Mapping[str, object] | None = None, *, strict: bool = False
    ) -> ConsumerConfig:
        """Read an old ``consumer.properties`` file; ``overrides`` win over it."""
        return cls.from_dict({**read_properties(path), **(overrides or {})}, strict=strict)

    @classmethod
    def parse(cls, key: str, text: str) -> Any:
        """Check the value of one property.

        Raises:
            ConfigurationError: names the key, the value and what is expected.
        """
        [field] = (field for field in dataclasses.fields(cls) if field.name == key.replace(".", "_"))
        return field.metadata["property"].parse(key, text)

    @property
    def read_committed(self) -> bool:
        """Whether records of open and aborted transactions are hidden."""
        return self.isolation_level == "read_committed"

    @property
    def connection_timeout(self) -> float:
        """Seconds to wait for ZooKeeper."""
        assert self.zookeeper_connection_timeout_ms is not None
        return self.zookeeper_connection_timeout_ms / 1000

    @property
    def rebalance_backoff(self) -> float:
        """Seconds between two tries of a rebalance."""
        assert self.rebalance_backoff_ms is not None
        return self.rebalance_backoff_ms / 1000


def property_names() -> list[str]:
    """Return the names of all properties that ``ConsumerConfig`` knows."""
    return [field.name.replace("_", ".") for field in dataclasses.fields(ConsumerConfig)]


def read_properties(path: str | PathLike[str]) -> dict[str, str]:
    """Read a Java properties file.

    Raises:
        ConfigurationError: it does not exist or is not in that format.
    """
    try:
        with Path(path).open("rb") as file:
            return dict(javaproperties.load(file))
    except OSError as error:
        raise ConfigurationError(f"cannot read the properties file {str(path)!r}: {error.strerror}") from error
    except (ValueError, UnicodeError) as error:
        raise ConfigurationError(f"{str(path)!r} is not a Java properties file: {error}") from error


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value).strip()


def _unknown(key: str, strict: bool) -> None:
    if key.startswith("external"):
        return  # VerifiableProperties lets those pass in silence
    near = difflib.get_close_matches(key, property_names(), 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    if strict:
        raise ConfigurationError(f"Property {key} is not valid{hint}")
    _log().warning("unknown_property", property=key, remedy=hint.lstrip("; ") or None)


def _log() -> Any:
    return get_logger("zkconsumer.config")
