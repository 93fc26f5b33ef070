"""ConsumerConfig: the properties of a consumer, under the names of the old consumer.

Source: Kafka 1.1 kafka.consumer.ConsumerConfig, kafka.utils.VerifiableProperties, ZKConfig.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from zkconsumer.config.name_hints import FOREIGN_PROPERTIES, hint
from zkconsumer.config.problems import Problems
from zkconsumer.config.properties_file import FileValue, parse_properties
from zkconsumer.config.security_checks import check_security
from zkconsumer.config.tables import Setting
from zkconsumer.config.types import (
    REQUIRED,
    Boolean,
    Choice,
    Integer,
    Name,
    PemFile,
    Property,
    Servers,
    Text,
    declare,
    declare_librdkafka,
    declare_own,
)
from zkconsumer.errors import ConfigurationError
from zkconsumer.log import get_logger

#: Oldest JVM release of each group of releases that share a round-robin order.
ROUND_ROBIN_ORDERS = ("1.0", "0.10.2", "0.8.2")

_PASSWORD = Text("password")
_PEM_FILE = PemFile()
_VERIFY_HOST = Choice(("https", "none"))

#: Maximum length of an unknown property's name that is shown completely, and characters that end it.
_MAX_NAME, _NOT_IN_NAME = 80, re.compile(r"[^a-zA-Z0-9._-]")

#: Alternative names, which librdkafka accepts.
_ALIASES = {"sasl.mechanisms": "sasl.mechanism"}

_NO_REPORTERS = "reporters are JVM classes; read the connector's metrics, or use zkconsumer.prometheus"
_NO_MIRROR = "the JVM consumer does not use it"

#: Properties of the JVM consumer that have no effect, with the reason.
WITHOUT_EFFECT = {
    "kafka.metrics.reporters": _NO_REPORTERS,
    "kafka.metrics.polling.interval.secs": _NO_REPORTERS,
    "mirror.topics.whitelist": _NO_MIRROR,
    "mirror.topics.blacklist": _NO_MIRROR,
    "mirror.consumer.numthreads": _NO_MIRROR,
}


@dataclass(frozen=True, slots=True)
class ConsumerConfig:
    """The configuration of one consumer; immutable.

    Build it with ``from_dict`` or ``from_properties``. An attribute has the name of its property with ``_`` in place
    of ``.``. Times are milliseconds, sizes are bytes. ``property_table`` returns the meaning of each property.

    The order of the attributes is part of the pickled form, which Spark's checkpoints contain.
    """

    # ---- identity and servers ----
    group_id: str = declare(Name(is_znode=True), REQUIRED, "Name of the consumer group.")
    zookeeper_connect: str = declare(
        Servers(default_port=2181, has_chroot=True),
        REQUIRED,
        "ZooKeeper servers of the group, and of the brokers unless ``bootstrap.servers`` is set.",
    )
    bootstrap_servers: str = declare_own(
        Servers(),
        "",
        "Brokers of a cluster that does not register its brokers in ZooKeeper (KRaft).",
        counterpart="none; same name in Kafka's new consumer",
    )
    consumer_id: str | None = declare(
        Name(),
        None,
        "Name of this member; its id in the group is ``<group.id>_<consumer.id>``.",
        derived_default="generated from host, time and a random number",
    )
    client_id: str | None = declare(
        Name(),
        None,
        "Client id in requests to brokers and in metric names.",
        derived_default="``group.id``",
    )
    zookeeper_session_timeout_ms: int = declare(
        Integer(1),
        6000,
        "ZooKeeper session timeout in milliseconds. A member that stops without closing its session leaves the group "
        "after this time.",
    )
    zookeeper_connection_timeout_ms: int | None = declare(
        Integer(1),
        None,
        "Maximum time to wait for a connection to ZooKeeper and for each of its responses, in milliseconds.",
        derived_default="``zookeeper.session.timeout.ms``",
    )
    zookeeper_sync_time_ms: int = declare(Integer(0), 2000, "Default of ``rebalance.backoff.ms``, in milliseconds.")
    # ---- fetching ----
    socket_timeout_ms: int = declare(
        Integer(1),
        30_000,
        "Maximum time to wait for the response of a broker, in milliseconds. At least ``fetch.wait.max.ms``.",
    )
    socket_receive_buffer_bytes: int = declare(
        Integer(-1),
        -1,
        "Size of the sockets' receive buffer in bytes; -1 leaves it to the operating system.",
        counterpart="``socket.receive.buffer.bytes``, whose default is 65536",
    )
    fetch_message_max_bytes: int = declare(
        Integer(1), 1 << 20, "Maximum bytes of records per partition in one fetch response."
    )
    num_consumer_fetchers: int = declare(Integer(1), 1, "Number of fetcher threads per broker.")
    queued_max_message_chunks: int = declare(
        Integer(1),
        2,
        "Maximum number of fetched chunks that are queued per partition.",
        counterpart="``queued.max.message.chunks``, which applies per stream",
    )
    fetch_min_bytes: int = declare(
        Integer(0), 1, "Minimum bytes of a fetch response; the broker waits up to ``fetch.wait.max.ms`` for them."
    )
    fetch_wait_max_ms: int = declare(
        Integer(0), 100, "Maximum time that a broker waits for ``fetch.min.bytes``, in milliseconds."
    )
    refresh_leader_backoff_ms: int = declare(
        Integer(0), 200, "Time to wait before the leader of a partition is looked up again, in milliseconds."
    )
    auto_offset_reset: str = declare(
        Choice(
            ("smallest", "largest"),
            jvm_error="Wrong value {value} of auto.offset.reset in ConsumerConfig; "
            "Valid values are smallest and largest",
        ),
        "largest",
        "Where to start if a partition has no committed offset or the offset is out of range: at the log start offset "
        "(``smallest``) or at the end offset (``largest``).",
    )
    consumer_timeout_ms: int = declare(
        Integer(-1),
        -1,
        "Time without a record, in milliseconds, after which a stream raises ConsumerTimeoutError; -1 waits without a "
        "limit.",
    )
    isolation_level: str = declare_own(
        Choice(("read_uncommitted", "read_committed")),
        "read_uncommitted",
        "Whether to read all records, or to skip those of open and aborted transactions.",
        counterpart="none; same name in Kafka's new consumer",
    )
    check_crcs: bool = declare_own(
        Boolean(),
        True,
        "Whether to verify the checksums of records.",
        counterpart="none; same name in Kafka's new consumer",
    )
    corrupt_record_policy: str = declare_own(
        Choice(("raise", "skip")),
        "raise",
        "What to do with a corrupt batch: raise CorruptRecordError, or skip it and log an error if it is still corrupt "
        "after a second fetch and an intact batch follows.",
    )
    # ---- security of the brokers' listeners ----
    security_protocol: str = declare_librdkafka(
        Choice(("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"), str.upper),
        "PLAINTEXT",
        "Security protocol of the connections to brokers; case-insensitive.",
    )
    ssl_ca_location: str | None = declare_librdkafka(
        _PEM_FILE, None, "CA certificates that sign the brokers' certificates; the system's if it is not set."
    )
    ssl_certificate_location: str | None = declare_librdkafka(_PEM_FILE, None, "Certificate of this client.")
    ssl_key_location: str | None = declare_librdkafka(_PEM_FILE, None, "Private key of this client's certificate.")
    ssl_key_password: str | None = declare_librdkafka(_PASSWORD, None, "Password of the private key.")
    ssl_endpoint_identification_algorithm: str = declare_librdkafka(
        _VERIFY_HOST, "https", "Whether to verify that a broker's certificate names its host (``https``)."
    )
    sasl_mechanism: str = declare_librdkafka(
        Choice(("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"), str.upper),
        "PLAIN",
        "SASL mechanism for brokers; case-insensitive. ``sasl.mechanisms`` is accepted, too.",
    )
    sasl_username: str | None = declare_librdkafka(Text(), None, "User name for SASL.")
    sasl_password: str | None = declare_librdkafka(_PASSWORD, None, "Password for SASL.")
    # ---- security of ZooKeeper ----
    zookeeper_ssl_client_enable: bool = declare_own(Boolean(), False, "Whether to connect to ZooKeeper with TLS.")
    zookeeper_ssl_ca_location: str | None = declare_own(
        _PEM_FILE, None, "CA certificates that sign the ZooKeeper servers' certificates; the system's if it is not set."
    )
    zookeeper_ssl_certificate_location: str | None = declare_own(
        _PEM_FILE, None, "Certificate of this client for ZooKeeper; set it together with the private key."
    )
    zookeeper_ssl_key_location: str | None = declare_own(_PEM_FILE, None, "Private key of this client for ZooKeeper.")
    zookeeper_ssl_key_password: str | None = declare_own(_PASSWORD, None, "Password of the private key for ZooKeeper.")
    zookeeper_ssl_endpoint_identification_algorithm: str = declare_own(
        _VERIFY_HOST, "https", "Whether to verify that a ZooKeeper server's certificate names its host (``https``)."
    )
    zookeeper_sasl_mechanism: str | None = declare_own(
        Choice(("DIGEST-MD5", "GSSAPI"), str.upper),
        None,
        "SASL mechanism for ZooKeeper, case-insensitive; requires the extra ``sasl``.",
    )
    zookeeper_sasl_username: str | None = declare_own(Text(), None, "User name for SASL with ZooKeeper.")
    zookeeper_sasl_password: str | None = declare_own(_PASSWORD, None, "Password for SASL with ZooKeeper.")
    zookeeper_auth_digest: str | None = declare_own(
        Text("password", "``user:password``"), None, "Credentials for ZooKeeper's digest authentication scheme."
    )
    # ---- group ----
    rebalance_max_retries: int = declare(
        Integer(1),
        4,
        "Number of attempts after which the first rebalance raises ConsumerRebalanceFailedError; later rebalances are "
        "retried without a limit.",
    )
    rebalance_backoff_ms: int | None = declare(
        Integer(0),
        None,
        "Maximum time between two attempts to rebalance, in milliseconds.",
        derived_default="``zookeeper.sync.time.ms``",
    )
    partition_assignment_strategy: str = declare(
        Choice(
            ("range", "roundrobin", "flink"),
            jvm_error="Wrong value {value} of partition.assignment.strategy in consumer config; "
            "Valid values are 'range' and 'roundrobin' and 'flink'",
        ),
        "range",
        "Partition assignment strategy. Every member of the group must use the same one.",
        counterpart="``partition.assignment.strategy``, without ``flink``",
    )
    roundrobin_order: str = declare_own(
        Choice(ROUND_ROBIN_ORDERS),
        "1.0",
        "JVM releases whose order ``roundrobin`` uses: ``1.0`` for 1.0 and 1.1, ``0.10.2`` for 0.10.2 and 0.11, "
        "``0.8.2`` for 0.8.2 to 0.10.1, where all members must read the same topics.",
    )
    exclude_internal_topics: bool = declare(
        Boolean(), True, "Whether topic filters, those of the other members included, exclude Kafka's internal topics."
    )
    metadata_max_age_ms: int = declare_own(
        Integer(1),
        30_000,
        "Interval in milliseconds at which topics and partitions of a KRaft cluster are queried.",
        counterpart="none; same name in Kafka's new consumer",
    )
    # ---- offsets ----
    auto_commit_enable: bool = declare(
        Boolean(), True, "Whether to commit the offsets of consumed records periodically."
    )
    auto_commit_interval_ms: int = declare(Integer(1), 60_000, "Interval of the automatic commit, in milliseconds.")
    offsets_storage: str = declare(
        Choice(
            ("zookeeper", "kafka"),
            str.lower,
            jvm_error="Wrong value {value} of offsets.storage in consumer config; "
            "Valid values are 'zookeeper' and 'kafka'",
        ),
        "zookeeper",
        "Where to commit offsets; case-insensitive.",
    )
    dual_commit_enabled: bool | None = declare(
        Boolean(),
        None,
        "Whether offsets that are committed to Kafka are also committed to ZooKeeper.",
        derived_default="``true`` if ``offsets.storage`` is ``kafka``",
    )
    offsets_channel_backoff_ms: int = declare(
        Integer(0), 1000, "Time between two attempts to commit offsets to Kafka, in milliseconds."
    )
    offsets_channel_socket_timeout_ms: int = declare(
        Integer(1), 10_000, "Maximum time to wait for the response of the group coordinator, in milliseconds."
    )
    offsets_commit_max_retries: int = declare(Integer(0), 5, "Maximum number of retries of a commit to Kafka.")
    offsets_commit_unchanged: bool = declare_own(
        Boolean(),
        False,
        "Whether to write unchanged offsets to ZooKeeper, too, and to create the group's znodes ``ids``, ``owners`` "
        "and ``offsets`` when a member registers; monitors such as Burrow and CMAK require it.",
    )
    # ---- added at the end, because the order is that of the pickled form ----
    decompressed_batch_max_bytes: int = declare_own(
        Integer(1),
        128 << 20,
        "Maximum decompressed size of a batch in bytes. A larger one is a corrupt batch; "
        "``corrupt.record.policy`` applies.",
    )
    fetch_max_bytes: int = declare_own(
        Integer(1),
        50 << 20,
        "Maximum bytes of records in one fetch response, of all partitions together. A response contains at least one "
        "batch, whatever its size.",
        counterpart="none; same name and default in Kafka's new consumer",
    )
    queued_max_bytes: int = declare_own(
        Integer(1),
        256 << 20,
        "Maximum bytes of records in the queues of all partitions together. Each fetcher thread may exceed it by one "
        "fetch, and each stream by one record batch.",
    )
    auto_offset_reset_new_partitions: str = declare_own(
        Choice(("as-reset", "smallest")),
        "as-reset",
        "Where to start in a new partition: according to ``auto.offset.reset``, or at the log start offset. A "
        "partition without a committed offset is new if it was created while the consumer was running, or if the "
        "group has an offset for another partition of the topic. With ``auto.offset.reset=largest``, only "
        "``smallest`` reads the records that a partition has received before the group has seen it. Members that "
        "start a new group at the same time may see each other's offsets.",
    )

    def __setstate__(self, state: Sequence[object]) -> None:
        """Unpickle; a checkpoint of an earlier version lacks the properties that were added at the end."""
        fields = dataclasses.fields(self)
        defaults = [field.metadata["property"].default for field in fields]
        for field, value in zip(fields, [*state, *defaults[len(state) :]], strict=True):
            object.__setattr__(self, field.name, value)

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
        if self.socket_timeout_ms < self.fetch_wait_max_ms:
            raise ConfigurationError(
                f"property 'socket.timeout.ms' must be at least fetch.wait.max.ms = {self.fetch_wait_max_ms}, "
                f"got '{self.socket_timeout_ms}'; otherwise each fetch that waits for records times out"
            )

    @classmethod
    def from_dict(cls, properties: Mapping[str, object], *, strict: bool = False) -> ConsumerConfig:
        """Build a configuration from properties.

        Values may be text, numbers or booleans. None means that the property is not set. Each unknown property is
        logged with the closest known name; the JVM ignores unknown properties too, since several programs often share
        one file.

        Args:
            properties: values by property name, such as ``group.id``.
            strict: raise for unknown properties.

        Raises:
            ConfigurationError: with the property, its value and the valid values; if several properties are wrong,
                each of them on a line. A property of a file is preceded by ``path:line``.
        """
        if not isinstance(properties, Mapping):
            kind = type(properties).__name__
            raise ConfigurationError(
                f"properties must be a dict, got a value of type {kind}; from_properties reads files"
            )
        values: dict[str, Any] = {}
        problems = Problems(next((value.path for value in properties.values() if isinstance(value, FileValue)), ""))
        unread = {_ALIASES.get(key, key): value for key, value in properties.items() if value is not None}
        given = unread.keys() & set(property_names())
        for field in dataclasses.fields(cls):
            key = _key(field.name)
            declared: Property = field.metadata["property"]
            value = unread.pop(key, None)
            if value is None and declared.default is REQUIRED:
                problems.add(f"Missing required property '{key}'")
                continue
            try:
                values[field.name] = declared.default if value is None else declared.parse(key, value)
            except ConfigurationError as error:
                problems.add(error, value)
        for key in sorted(unread):
            _check_unknown(key, unread[key], problems if strict else None)
        problems.check()
        problems.attempt(check_security, {_key(name): value for name, value in values.items()}, given)
        config = problems.attempt(cls, **values)
        problems.check()
        assert config is not None
        return config

    @classmethod
    def from_properties(
        cls, path: str | PathLike[str], overrides: Mapping[str, object] | None = None, *, strict: bool = False
    ) -> ConsumerConfig:
        """Build a configuration from a ``consumer.properties`` file; ``overrides`` take precedence over the file.

        Raises:
            ConfigurationError: as ``from_dict``, or the file cannot be read.
        """
        return cls.from_dict({**read_properties(path), **(overrides or {})}, strict=strict)

    @classmethod
    def parse(cls, key: str, text: str) -> Any:
        """Return the value of one property.

        Raises:
            ConfigurationError: with the property, its value and the valid values.
        """
        [field] = (field for field in dataclasses.fields(cls) if _key(field.name) == key)
        return field.metadata["property"].type.parse(key, text)

    @property
    def read_committed(self) -> bool:
        """Whether records of open and aborted transactions are skipped."""
        return self.isolation_level == "read_committed"

    @property
    def connection_timeout(self) -> float:
        """Maximum seconds to wait for a connection to ZooKeeper and for each of its responses."""
        assert self.zookeeper_connection_timeout_ms is not None
        return self.zookeeper_connection_timeout_ms / 1000

    @property
    def rebalance_backoff(self) -> float:
        """Maximum seconds between two attempts to rebalance."""
        assert self.rebalance_backoff_ms is not None
        return self.rebalance_backoff_ms / 1000


def property_names() -> list[str]:
    """Return the names of all properties that ``ConsumerConfig`` has."""
    return [_key(field.name) for field in dataclasses.fields(ConsumerConfig)]


def property_table() -> list[Setting]:
    """Return the documentation of all properties, in the order of their declaration."""
    rows = [field.metadata["property"].setting(_key(field.name)) for field in dataclasses.fields(ConsumerConfig)]
    rows += [
        Setting(name, "string", "", "", f"Accepted without effect: {reason}.", f"``{name}``")
        for name, reason in WITHOUT_EFFECT.items()
    ]
    return rows


def read_properties(path: str | PathLike[str]) -> dict[str, str]:
    """Read a Java properties file. The values know their lines, for the error messages of ``from_dict``.

    Raises:
        ConfigurationError: the file cannot be read, or is not a Java properties file.
    """
    try:
        return {**parse_properties(Path(path).read_bytes(), str(path))}
    except OSError as error:
        raise ConfigurationError(f"cannot read the properties file {str(path)!r}: {error.strerror}") from None
    except (ValueError, UnicodeError) as error:
        raise ConfigurationError(f"{str(path)!r} is not a Java properties file: {error}") from None


def _key(attribute: str) -> str:
    return attribute.replace("_", ".")


def _check_unknown(key: str, value: object, problems: Problems | None) -> None:
    """Add an unknown property to the problems, or log it if there are none."""
    place = {"path": value.place} if isinstance(value, FileValue) else {}
    if key in WITHOUT_EFFECT:
        _log().warning("property_ignored", property=key, value=value, reason=WITHOUT_EFFECT[key], **place)
        return
    if key.startswith("external"):
        return  # VerifiableProperties ignores these without a warning
    remedy = hint(key, property_names(), FOREIGN_PROPERTIES)
    # A line without a separator is one long name, which may contain a password.
    name = _NOT_IN_NAME.split(key[:_MAX_NAME])[0]
    shown = name if name == key else f"{name}..."
    if problems is None:
        _log().warning("property_unknown", property=shown, remedy=remedy.lstrip("; ") or None, **place)
    else:
        problems.add(f"unknown property {shown!r}{remedy}", value)


def _log() -> Any:
    return get_logger("zkconsumer.config")
