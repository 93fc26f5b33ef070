"""Declarations of the consumer properties, which are used to parse and document them.

Source: Kafka 1.1 kafka.consumer.ConsumerConfig, ZKConfig.
"""

from __future__ import annotations

from zkconsumer.config.declared import REQUIRED, Declared
from zkconsumer.config.tables import Row
from zkconsumer.config.types import Boolean, Choice, Integer, Name, PemFile, Secret, Servers, SettingType, Text

#: Kafka releases that introduced a new ``roundrobin`` order, newest first.
ROUND_ROBIN_ORDERS = ("1.0", "0.10.2", "0.8.2")

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SASL_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

#: Security protocol by its name in Hortonworks' Kafka distribution, which its brokers also write to ZooKeeper.
FOREIGN_PROTOCOLS = {"PLAINTEXTSASL": "SASL_PLAINTEXT"}

_NEW_CONSUMER = "none; same name in Kafka's new consumer"
_PEM_FILE = PemFile()
_VERIFY_HOST = Choice(("https", "none"))

_NO_REPORTERS = "metrics reporters are Java classes; export the connector's metrics with zkconsumer.prometheus"
_NO_MIRROR = "Kafka's old consumer does not use this property"

#: Properties of Kafka's old consumer that are accepted but have no effect, with the reason.
WITHOUT_EFFECT = {
    "kafka.metrics.reporters": _NO_REPORTERS,
    "kafka.metrics.polling.interval.secs": _NO_REPORTERS,
    "mirror.topics.whitelist": _NO_MIRROR,
    "mirror.topics.blacklist": _NO_MIRROR,
    "mirror.consumer.numthreads": _NO_MIRROR,
}

#: Property name by alias; librdkafka accepts the same aliases.
ALIASES = {"sasl.mechanisms": "sasl.mechanism"}


def _declare_old(
    name: str, type_: SettingType, default: object, meaning: str, *, counterpart: str = "", default_note: str = ""
) -> Declared:
    """Declare a property of Kafka's old consumer; ``counterpart`` describes any difference."""
    return Declared(name, type_, default, meaning, counterpart or f"``{name}``", default_note)


def _declare_own(
    name: str, type_: SettingType, default: object, meaning: str, *, counterpart: str = "none"
) -> Declared:
    """Declare a property that Kafka's old consumer does not have."""
    return Declared(name, type_, default, meaning, counterpart)


def _declare_librdkafka(name: str, type_: SettingType, default: object, meaning: str) -> Declared:
    """Declare a property of librdkafka that Kafka's old consumer does not have."""
    return _declare_own(name, type_, default, meaning, counterpart="none; same name in librdkafka")


#: All properties, in documentation order.
PROPERTIES = (
    # ---- identity and servers ----
    _declare_old("group.id", Name(is_znode=True), REQUIRED, "Name of the consumer group."),
    _declare_old(
        "zookeeper.connect",
        Servers(default_port=2181, has_chroot=True),
        REQUIRED,
        "ZooKeeper servers that coordinate the group. Brokers are discovered there as well, unless "
        "``bootstrap.servers`` is set.",
    ),
    _declare_own(
        "bootstrap.servers",
        Servers(),
        "",
        "Brokers from which the Kafka cluster is discovered. Required if the brokers are not registered in ZooKeeper "
        "(KRaft mode).",
        counterpart=_NEW_CONSUMER,
    ),
    _declare_old(
        "consumer.id",
        Name(),
        None,
        "Name of this member. Its consumer id in the group is ``<group.id>_<consumer.id>``.",
        default_note="generated from the host name, time and a random number",
    ),
    _declare_old(
        "client.id",
        Name(),
        None,
        "Client id that is sent to brokers and used in metric names.",
        default_note="``group.id``",
    ),
    _declare_old(
        "zookeeper.session.timeout.ms",
        Integer(1),
        6000,
        "ZooKeeper session timeout, in milliseconds. A member that terminates without closing its session is removed "
        "from the group after this time.",
    ),
    _declare_old(
        "zookeeper.connection.timeout.ms",
        Integer(1),
        None,
        "Maximum time to wait for a ZooKeeper connection, and for each ZooKeeper response, in milliseconds.",
        default_note="``zookeeper.session.timeout.ms``",
    ),
    _declare_old(
        "zookeeper.sync.time.ms", Integer(0), 2000, "Default value of ``rebalance.backoff.ms``, in milliseconds."
    ),
    # ---- fetching ----
    _declare_old(
        "socket.timeout.ms",
        Integer(1),
        30_000,
        "Maximum time to wait for a broker's response, in milliseconds. Must be at least ``fetch.wait.max.ms``.",
    ),
    # See docs/decisions/15-receive-buffer-size.rst.
    _declare_old(
        "socket.receive.buffer.bytes",
        Integer(-1),
        -1,
        "Size of the TCP receive buffer (SO_RCVBUF), in bytes; -1 uses the default of the operating system.",
        counterpart="``socket.receive.buffer.bytes``, with default 65536",
    ),
    _declare_old(
        "fetch.message.max.bytes",
        Integer(1),
        1 << 20,
        "Maximum size of a partition's records in a fetch response, in bytes.",
    ),
    _declare_own(
        "fetch.max.bytes",
        Integer(1),
        50 << 20,
        "Maximum total size of the records in a fetch response, in bytes. A response always contains at least one "
        "batch, regardless of its size.",
        counterpart="none; same name and default in Kafka's new consumer",
    ),
    _declare_old("num.consumer.fetchers", Integer(1), 1, "Number of fetcher threads per broker."),
    _declare_old(
        "queued.max.message.chunks",
        Integer(1),
        2,
        "Maximum number of fetched chunks queued per partition.",
        counterpart="``queued.max.message.chunks``, which applies per stream",
    ),
    _declare_own(
        "queued.max.bytes",
        Integer(1),
        256 << 20,
        "Maximum total size of the queued records of all partitions, in bytes. Each fetcher thread may exceed the "
        "limit by one fetch, and each stream by one record batch.",
    ),
    _declare_old(
        "fetch.min.bytes",
        Integer(0),
        1,
        "Minimum size of a fetch response, in bytes. The broker waits up to ``fetch.wait.max.ms`` for this much data.",
    ),
    _declare_old(
        "fetch.wait.max.ms",
        Integer(0),
        100,
        "Maximum time that a broker waits for ``fetch.min.bytes`` of data, in milliseconds.",
    ),
    _declare_old(
        "refresh.leader.backoff.ms",
        Integer(0),
        200,
        "Time to wait before looking up a partition's leader again, in milliseconds.",
    ),
    _declare_old(
        "auto.offset.reset",
        Choice(("smallest", "largest"), counterparts=(("earliest", "smallest"), ("latest", "largest"))),
        "largest",
        "Where to start if a partition has no committed offset or the offset is out of range: at the log start offset "
        "(``smallest``) or the end offset (``largest``).",
    ),
    _declare_own(
        "auto.offset.reset.new.partitions",
        Choice(("inherit", "smallest")),
        "inherit",
        "Where to start in a partition that is new to the group: ``inherit`` applies ``auto.offset.reset``; "
        "``smallest`` starts at the log start offset, so that records written before the group detected the partition "
        "are not skipped, even with ``auto.offset.reset=largest``. A partition without a committed offset is "
        "new if it was created while the consumer was running, or if the group has an offset for another partition of "
        "the topic. When several members start a new group at the same time, the commits of one member can make "
        "partitions appear new to another.",
    ),
    _declare_old(
        "consumer.timeout.ms",
        Integer(-1),
        -1,
        "Maximum time that a stream waits for a record before it raises ConsumerTimeoutError, in milliseconds; -1 "
        "waits indefinitely.",
    ),
    _declare_own(
        "isolation.level",
        Choice(("read_uncommitted", "read_committed")),
        "read_uncommitted",
        "Whether to read all records (``read_uncommitted``), or stop before the first open transaction and skip the "
        "records of aborted transactions (``read_committed``).",
        counterpart=_NEW_CONSUMER,
    ),
    _declare_own(
        "check.crcs",
        Boolean(),
        True,
        "Whether to verify the checksums of the records.",
        counterpart=_NEW_CONSUMER,
    ),
    _declare_own(
        "corrupt.record.policy",
        Choice(("raise", "skip")),
        "raise",
        "How to handle a corrupt batch: raise CorruptRecordError (``raise``), or log an error and skip the batch "
        "(``skip``). A batch is skipped only if it is still corrupt after a second fetch and an intact batch follows.",
    ),
    _declare_own(
        "decompressed.batch.max.bytes",
        Integer(1),
        128 << 20,
        "Maximum decompressed size of a batch, in bytes. A larger batch is treated as corrupt; see "
        "``corrupt.record.policy``.",
    ),
    # ---- security of broker connections ----
    _declare_librdkafka(
        "security.protocol",
        Choice(SECURITY_PROTOCOLS, ignores_case=True, counterparts=tuple(FOREIGN_PROTOCOLS.items())),
        "PLAINTEXT",
        "Security protocol for connections to brokers; case-insensitive.",
    ),
    _declare_librdkafka(
        "ssl.ca.location",
        _PEM_FILE,
        None,
        "CA certificates for verifying the brokers' certificates. If not set, the CA certificates of the system are "
        "used.",
    ),
    _declare_librdkafka("ssl.certificate.location", _PEM_FILE, None, "Client certificate for TLS authentication."),
    _declare_librdkafka("ssl.key.location", _PEM_FILE, None, "Private key of the client certificate."),
    _declare_librdkafka("ssl.key.password", Secret(), None, "Password of the private key in ``ssl.key.location``."),
    _declare_librdkafka(
        "ssl.endpoint.identification.algorithm",
        _VERIFY_HOST,
        "https",
        "How to verify a broker's host name: ``https`` checks that the certificate matches it; ``none`` disables the "
        "check.",
    ),
    _declare_librdkafka(
        "sasl.mechanism",
        Choice(SASL_MECHANISMS, ignores_case=True),
        "PLAIN",
        "SASL mechanism for authentication with brokers; case-insensitive. ``sasl.mechanisms`` is an alias.",
    ),
    _declare_librdkafka("sasl.username", Text(), None, "SASL user name for brokers."),
    _declare_librdkafka("sasl.password", Secret(), None, "SASL password for brokers."),
    # ---- security of ZooKeeper connections ----
    _declare_own("zookeeper.ssl.client.enable", Boolean(), False, "Whether to connect to ZooKeeper with TLS."),
    _declare_own(
        "zookeeper.ssl.ca.location",
        _PEM_FILE,
        None,
        "CA certificates for verifying the ZooKeeper servers' certificates. If not set, the CA certificates of the "
        "system are used.",
    ),
    _declare_own(
        "zookeeper.ssl.certificate.location",
        _PEM_FILE,
        None,
        "Client certificate for TLS authentication with ZooKeeper. Requires ``zookeeper.ssl.key.location``.",
    ),
    _declare_own("zookeeper.ssl.key.location", _PEM_FILE, None, "Private key of the client certificate for ZooKeeper."),
    _declare_own(
        "zookeeper.ssl.key.password", Secret(), None, "Password of the private key in ``zookeeper.ssl.key.location``."
    ),
    _declare_own(
        "zookeeper.ssl.endpoint.identification.algorithm",
        _VERIFY_HOST,
        "https",
        "How to verify a ZooKeeper server's host name: ``https`` checks that the certificate matches it; ``none`` "
        "disables the check.",
    ),
    _declare_own(
        "zookeeper.sasl.mechanism",
        Choice(("DIGEST-MD5", "GSSAPI"), ignores_case=True),
        None,
        "SASL mechanism for authentication with ZooKeeper; case-insensitive. Requires the ``sasl`` extra.",
    ),
    _declare_own("zookeeper.sasl.username", Text(), None, "SASL user name for ZooKeeper."),
    _declare_own("zookeeper.sasl.password", Secret(), None, "SASL password for ZooKeeper."),
    _declare_own(
        "zookeeper.auth.digest",
        Secret("``user:password``"),
        None,
        "Credentials for the ``digest`` authentication scheme of ZooKeeper.",
    ),
    # ---- group ----
    _declare_old(
        "rebalance.max.retries",
        Integer(1),
        4,
        "Minimum number of attempts before the first rebalance fails with ConsumerRebalanceFailedError. Attempts "
        "continue for at least this number times ``rebalance.backoff.ms``, and for at least "
        "``zookeeper.session.timeout.ms``. Later rebalances are retried indefinitely.",
    ),
    _declare_old(
        "rebalance.backoff.ms",
        Integer(0),
        None,
        "Maximum time between two rebalance attempts, in milliseconds.",
        default_note="``zookeeper.sync.time.ms``",
    ),
    _declare_old(
        "partition.assignment.strategy",
        Choice(("range", "roundrobin", "flink")),
        "range",
        "Partition assignment strategy. Every member of the group must use the same one.",
        counterpart="``partition.assignment.strategy``, without ``flink``",
    ),
    _declare_own(
        "roundrobin.order",
        Choice(ROUND_ROBIN_ORDERS),
        "1.0",
        "Kafka version whose ``roundrobin`` order is used: ``1.0`` (1.0 and 1.1), ``0.10.2`` (0.10.2 and 0.11) or "
        "``0.8.2`` (0.8.2 to 0.10.1). With ``0.8.2``, all members must subscribe to the same topics.",
    ),
    _declare_old(
        "exclude.internal.topics",
        Boolean(),
        True,
        "Whether topic filters exclude Kafka's internal topics. The member also applies this setting to the topic "
        "filters of other members.",
    ),
    _declare_own(
        "metadata.max.age.ms",
        Integer(1),
        30_000,
        "Interval at which the topics, partitions and brokers of a KRaft cluster are queried, and maximum age of "
        "cached partition leaders, in milliseconds.",
        counterpart=_NEW_CONSUMER,
    ),
    # ---- offsets ----
    _declare_old(
        "auto.commit.enable", Boolean(), True, "Whether to commit the offsets of consumed records periodically."
    ),
    _declare_old(
        "auto.commit.interval.ms", Integer(1), 60_000, "Interval between two automatic commits, in milliseconds."
    ),
    _declare_old(
        "offsets.storage",
        Choice(("zookeeper", "kafka"), ignores_case=True),
        "zookeeper",
        "Where to commit offsets: to ZooKeeper or to Kafka; case-insensitive.",
    ),
    _declare_old(
        "dual.commit.enabled",
        Boolean(),
        None,
        "Whether to also commit offsets to ZooKeeper when they are committed to Kafka.",
        default_note="``true`` if ``offsets.storage`` is ``kafka``",
    ),
    _declare_old(
        "offsets.channel.backoff.ms",
        Integer(0),
        1000,
        "Time between two attempts to commit offsets to Kafka, in milliseconds.",
    ),
    _declare_old(
        "offsets.channel.socket.timeout.ms",
        Integer(1),
        10_000,
        "Maximum time to wait for the group coordinator's response, in milliseconds.",
    ),
    _declare_old(
        "offsets.commit.max.retries",
        Integer(0),
        5,
        "Maximum number of times that an offset commit to Kafka is retried.",
    ),
    _declare_own(
        "offsets.commit.unchanged",
        Boolean(),
        False,
        "Whether to also write unchanged offsets to ZooKeeper, and to create the group's znodes ``ids``, ``owners`` "
        "and ``offsets`` when a member registers. Monitors such as Burrow and CMAK require it.",
    ),
)


def property_names() -> list[str]:
    """Return the names of all properties, in documentation order."""
    return [declared.name for declared in PROPERTIES]


def property_table() -> list[Row]:
    """Return one documentation row per property, including properties without effect."""
    return [
        *(declared.row() for declared in PROPERTIES),
        *(
            Row(name, "string", "none", "", f"Accepted without effect: {reason}.", f"``{name}``")
            for name, reason in WITHOUT_EFFECT.items()
        ),
    ]
