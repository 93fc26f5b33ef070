"""The properties of a consumer: what ``ConsumerConfig`` accepts, and what the documentation lists.

Source: Kafka 1.1 kafka.consumer.ConsumerConfig, ZKConfig.
"""

from __future__ import annotations

from zkconsumer.config.declared import REQUIRED, Declared
from zkconsumer.config.tables import Row
from zkconsumer.config.types import Boolean, Choice, Integer, Name, PemFile, Secret, Servers, SettingType, Text

#: Oldest JVM release of each group of releases that share a round-robin order.
ROUND_ROBIN_ORDERS = ("1.0", "0.10.2", "0.8.2")

_NEW_CONSUMER = "none; same name in Kafka's new consumer"
_PEM_FILE = PemFile()
_VERIFY_HOST = Choice(("https", "none"))

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

#: Alternative names, which librdkafka accepts.
ALIASES = {"sasl.mechanisms": "sasl.mechanism"}


def _declare_old(
    name: str, type_: SettingType, default: object, meaning: str, *, counterpart: str = "", default_note: str = ""
) -> Declared:
    """Declare a property of the old consumer; ``counterpart`` says what is different."""
    return Declared(name, type_, default, meaning, counterpart or f"``{name}``", default_note)


def _declare_own(
    name: str, type_: SettingType, default: object, meaning: str, *, counterpart: str = "none"
) -> Declared:
    """Declare a property that the old consumer does not have."""
    return Declared(name, type_, default, meaning, counterpart)


def _declare_librdkafka(name: str, type_: SettingType, default: object, meaning: str) -> Declared:
    """Declare a property that the old consumer does not have, under librdkafka's name."""
    return _declare_own(name, type_, default, meaning, counterpart="none; same name in librdkafka")


#: All properties, in the order of the documentation.
PROPERTIES = (
    # ---- identity and servers ----
    _declare_old("group.id", Name(is_znode=True), REQUIRED, "Name of the consumer group."),
    _declare_old(
        "zookeeper.connect",
        Servers(default_port=2181, has_chroot=True),
        REQUIRED,
        "ZooKeeper servers of the group, and of the brokers unless ``bootstrap.servers`` is set.",
    ),
    _declare_own(
        "bootstrap.servers",
        Servers(),
        "",
        "Brokers of a cluster that does not register its brokers in ZooKeeper (KRaft).",
        counterpart=_NEW_CONSUMER,
    ),
    _declare_old(
        "consumer.id",
        Name(),
        None,
        "Name of this member; its id in the group is ``<group.id>_<consumer.id>``.",
        default_note="generated from host, time and a random number",
    ),
    _declare_old(
        "client.id",
        Name(),
        None,
        "Client id in requests to brokers and in metric names.",
        default_note="``group.id``",
    ),
    _declare_old(
        "zookeeper.session.timeout.ms",
        Integer(1),
        6000,
        "ZooKeeper session timeout in milliseconds. A member that stops without closing its session leaves the group "
        "after this time.",
    ),
    _declare_old(
        "zookeeper.connection.timeout.ms",
        Integer(1),
        None,
        "Maximum time to wait for a connection to ZooKeeper and for each of its responses, in milliseconds.",
        default_note="``zookeeper.session.timeout.ms``",
    ),
    _declare_old("zookeeper.sync.time.ms", Integer(0), 2000, "Default of ``rebalance.backoff.ms``, in milliseconds."),
    # ---- fetching ----
    _declare_old(
        "socket.timeout.ms",
        Integer(1),
        30_000,
        "Maximum time to wait for the response of a broker, in milliseconds. At least ``fetch.wait.max.ms``.",
    ),
    _declare_old(
        "socket.receive.buffer.bytes",
        Integer(-1),
        -1,
        "Size of the sockets' receive buffer in bytes; -1 leaves it to the operating system.",
        counterpart="``socket.receive.buffer.bytes``, whose default is 65536",
    ),
    _declare_old(
        "fetch.message.max.bytes", Integer(1), 1 << 20, "Maximum bytes of records per partition in one fetch response."
    ),
    _declare_own(
        "fetch.max.bytes",
        Integer(1),
        50 << 20,
        "Maximum bytes of records in one fetch response, of all partitions together. A response contains at least one "
        "batch, whatever its size.",
        counterpart="none; same name and default in Kafka's new consumer",
    ),
    _declare_old("num.consumer.fetchers", Integer(1), 1, "Number of fetcher threads per broker."),
    _declare_old(
        "queued.max.message.chunks",
        Integer(1),
        2,
        "Maximum number of fetched chunks that are queued per partition.",
        counterpart="``queued.max.message.chunks``, which applies per stream",
    ),
    _declare_own(
        "queued.max.bytes",
        Integer(1),
        256 << 20,
        "Maximum bytes of records in the queues of all partitions together. Each fetcher thread may exceed it by one "
        "fetch, and each stream by one record batch.",
    ),
    _declare_old(
        "fetch.min.bytes",
        Integer(0),
        1,
        "Minimum bytes of a fetch response; the broker waits up to ``fetch.wait.max.ms`` for them.",
    ),
    _declare_old(
        "fetch.wait.max.ms",
        Integer(0),
        100,
        "Maximum time that a broker waits for ``fetch.min.bytes``, in milliseconds.",
    ),
    _declare_old(
        "refresh.leader.backoff.ms",
        Integer(0),
        200,
        "Time to wait before the leader of a partition is looked up again, in milliseconds.",
    ),
    _declare_old(
        "auto.offset.reset",
        Choice(("smallest", "largest")),
        "largest",
        "Where to start if a partition has no committed offset or the offset is out of range: at the log start offset "
        "(``smallest``) or at the end offset (``largest``).",
    ),
    _declare_own(
        "auto.offset.reset.new.partitions",
        Choice(("inherit", "smallest")),
        "inherit",
        "Where to start in a new partition: according to ``auto.offset.reset`` (``inherit``), or at the log start "
        "offset (``smallest``). A partition without a committed offset is new if it was created while the consumer was "
        "running, or if the group has an offset for another partition of the topic. With "
        "``auto.offset.reset=largest``, only ``smallest`` reads the records that a partition has received before the "
        "group has seen it. Members that start a new group at the same time may see each other's offsets.",
    ),
    _declare_old(
        "consumer.timeout.ms",
        Integer(-1),
        -1,
        "Time without a record, in milliseconds, after which a stream raises ConsumerTimeoutError; -1 waits without a "
        "limit.",
    ),
    _declare_own(
        "isolation.level",
        Choice(("read_uncommitted", "read_committed")),
        "read_uncommitted",
        "Whether to read all records, or to skip those of open and aborted transactions.",
        counterpart=_NEW_CONSUMER,
    ),
    _declare_own(
        "check.crcs",
        Boolean(),
        True,
        "Whether to verify the checksums of records.",
        counterpart=_NEW_CONSUMER,
    ),
    _declare_own(
        "corrupt.record.policy",
        Choice(("raise", "skip")),
        "raise",
        "What to do with a corrupt batch: raise CorruptRecordError, or skip it and log an error if it is still corrupt "
        "after a second fetch and an intact batch follows.",
    ),
    _declare_own(
        "decompressed.batch.max.bytes",
        Integer(1),
        128 << 20,
        "Maximum decompressed size of a batch in bytes. A larger one is a corrupt batch; "
        "``corrupt.record.policy`` applies.",
    ),
    # ---- security of the brokers' listeners ----
    _declare_librdkafka(
        "security.protocol",
        Choice(("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"), ignores_case=True),
        "PLAINTEXT",
        "Security protocol of the connections to brokers; case-insensitive.",
    ),
    _declare_librdkafka(
        "ssl.ca.location",
        _PEM_FILE,
        None,
        "CA certificates that sign the brokers' certificates; the system's if it is not set.",
    ),
    _declare_librdkafka("ssl.certificate.location", _PEM_FILE, None, "Certificate of this client."),
    _declare_librdkafka("ssl.key.location", _PEM_FILE, None, "Private key of this client's certificate."),
    _declare_librdkafka("ssl.key.password", Secret(), None, "Password of the private key."),
    _declare_librdkafka(
        "ssl.endpoint.identification.algorithm",
        _VERIFY_HOST,
        "https",
        "Whether to verify that a broker's certificate names its host (``https``).",
    ),
    _declare_librdkafka(
        "sasl.mechanism",
        Choice(("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"), ignores_case=True),
        "PLAIN",
        "SASL mechanism for brokers; case-insensitive. ``sasl.mechanisms`` is accepted, too.",
    ),
    _declare_librdkafka("sasl.username", Text(), None, "User name for SASL."),
    _declare_librdkafka("sasl.password", Secret(), None, "Password for SASL."),
    # ---- security of ZooKeeper ----
    _declare_own("zookeeper.ssl.client.enable", Boolean(), False, "Whether to connect to ZooKeeper with TLS."),
    _declare_own(
        "zookeeper.ssl.ca.location",
        _PEM_FILE,
        None,
        "CA certificates that sign the ZooKeeper servers' certificates; the system's if it is not set.",
    ),
    _declare_own(
        "zookeeper.ssl.certificate.location",
        _PEM_FILE,
        None,
        "Certificate of this client for ZooKeeper; set it together with the private key.",
    ),
    _declare_own("zookeeper.ssl.key.location", _PEM_FILE, None, "Private key of this client for ZooKeeper."),
    _declare_own("zookeeper.ssl.key.password", Secret(), None, "Password of the private key for ZooKeeper."),
    _declare_own(
        "zookeeper.ssl.endpoint.identification.algorithm",
        _VERIFY_HOST,
        "https",
        "Whether to verify that a ZooKeeper server's certificate names its host (``https``).",
    ),
    _declare_own(
        "zookeeper.sasl.mechanism",
        Choice(("DIGEST-MD5", "GSSAPI"), ignores_case=True),
        None,
        "SASL mechanism for ZooKeeper, case-insensitive; requires the extra ``sasl``.",
    ),
    _declare_own("zookeeper.sasl.username", Text(), None, "User name for SASL with ZooKeeper."),
    _declare_own("zookeeper.sasl.password", Secret(), None, "Password for SASL with ZooKeeper."),
    _declare_own(
        "zookeeper.auth.digest",
        Secret("``user:password``"),
        None,
        "Credentials for ZooKeeper's digest authentication scheme.",
    ),
    # ---- group ----
    _declare_old(
        "rebalance.max.retries",
        Integer(1),
        4,
        "Number of attempts after which the first rebalance raises ConsumerRebalanceFailedError; later rebalances are "
        "retried without a limit.",
    ),
    _declare_old(
        "rebalance.backoff.ms",
        Integer(0),
        None,
        "Maximum time between two attempts to rebalance, in milliseconds.",
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
        "JVM releases whose order ``roundrobin`` uses: ``1.0`` for 1.0 and 1.1, ``0.10.2`` for 0.10.2 and 0.11, "
        "``0.8.2`` for 0.8.2 to 0.10.1, where all members must read the same topics.",
    ),
    _declare_old(
        "exclude.internal.topics",
        Boolean(),
        True,
        "Whether topic filters, those of the other members included, exclude Kafka's internal topics.",
    ),
    _declare_own(
        "metadata.max.age.ms",
        Integer(1),
        30_000,
        "Interval in milliseconds at which topics and partitions of a KRaft cluster are queried.",
        counterpart=_NEW_CONSUMER,
    ),
    # ---- offsets ----
    _declare_old(
        "auto.commit.enable", Boolean(), True, "Whether to commit the offsets of consumed records periodically."
    ),
    _declare_old("auto.commit.interval.ms", Integer(1), 60_000, "Interval of the automatic commit, in milliseconds."),
    _declare_old(
        "offsets.storage",
        Choice(("zookeeper", "kafka"), ignores_case=True),
        "zookeeper",
        "Where to commit offsets; case-insensitive.",
    ),
    _declare_old(
        "dual.commit.enabled",
        Boolean(),
        None,
        "Whether offsets that are committed to Kafka are also committed to ZooKeeper.",
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
        "Maximum time to wait for the response of the group coordinator, in milliseconds.",
    ),
    _declare_old("offsets.commit.max.retries", Integer(0), 5, "Maximum number of retries of a commit to Kafka."),
    _declare_own(
        "offsets.commit.unchanged",
        Boolean(),
        False,
        "Whether to write unchanged offsets to ZooKeeper, too, and to create the group's znodes ``ids``, ``owners`` "
        "and ``offsets`` when a member registers; monitors such as Burrow and CMAK require it.",
    ),
)


def property_names() -> list[str]:
    """Return the names of all properties, in the order of the documentation."""
    return [declared.name for declared in PROPERTIES]


def property_table() -> list[Row]:
    """Return the documentation of all properties, and of those without effect."""
    return [
        *(declared.row() for declared in PROPERTIES),
        *(
            Row(name, "string", "none", "", f"Accepted without effect: {reason}.", f"``{name}``")
            for name, reason in WITHOUT_EFFECT.items()
        ),
    ]
