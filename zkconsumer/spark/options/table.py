"""The table of the data source's options: what the parser accepts, and what the documentation lists."""

from __future__ import annotations

from collections.abc import Iterator

from zkconsumer.config.declared import Declared
from zkconsumer.config.name_hints import NO_COUNTERPART, Counterpart
from zkconsumer.config.types import LONG_MAX, Boolean, Choice, Duration, Integer, Text
from zkconsumer.rebalance.topic_filter import Blacklist, Whitelist
from zkconsumer.spark.options.types import PARTITIONS, TIMES, Columns, Expression, Offsets, Timestamp, TopicNames
from zkconsumer.zookeeper.registry import MAX_STREAMS

#: Maximum number of tasks of a batch that options may require.
MAX_TASKS = 100_000

_FLAG = Boolean(ignores_case=True)
_COUNT = Integer(1, LONG_MAX)


def _make_choice(*words: str) -> Choice:
    return Choice(words, ignores_case=True)


def _declare_offsets(name: str, where: str, default: str, default_note: str, counterpart: str) -> Declared:
    """Return ``startingOffsets`` or ``endingOffsets``.

    Args:
        where: first words of the meaning.
    """
    return Declared(
        name,
        Offsets(),
        default,
        f"{where}: at the group's offsets, the log start offsets, the log end offsets, or offsets by "
        f"partition in JSON. In JSON, -1 means latest and -2 earliest, and a Java regular expression may be used as "
        f"topic. Partitions that it does not contain use the default.",
        counterpart,
        default_note,
    )


def _declare_times(prefix: str, verb: str, strategy: str, strategy_counterpart: str) -> Iterator[Declared]:
    """Yield the options that select offsets by time.

    Args:
        prefix: ``starting`` or ``ending``.
        verb: first words of the meaning.
        strategy: first words of the meaning of the last option.
        strategy_counterpart: counterpart of the last option.
    """
    offsets, by_time, timestamp = f"{prefix}Offsets", f"{prefix}OffsetsByTimestamp", f"{prefix}Timestamp"
    yield Declared(
        timestamp,
        Timestamp(),
        None,
        f"{verb} at the first record at or after this time. Takes precedence over ``{by_time}`` and ``{offsets}``.",
        f"Spark ``{timestamp}``",
    )
    yield Declared(
        by_time,
        TIMES,
        None,
        f"{verb} at the first record at or after a time by topic or partition. Takes precedence over "
        f"``{offsets}``; partitions that it does not contain use the default of ``{offsets}``.",
        f"Spark ``{by_time}``",
    )
    yield Declared(
        f"{by_time}Strategy",
        _make_choice("latest", "error"),
        "latest",
        f"{strategy} if a partition has no record at or after the time: use its end offset (``latest``), or "
        "fail (``error``).",
        strategy_counterpart,
    )


#: All options of the data source, in the order of the documentation. Every property of the consumer is an option, too.
OPTIONS = (
    Declared(
        "subscribe",
        TopicNames(),
        None,
        "Topics to read, separated by commas.",
        "Spark ``subscribe``",
        default_note="none; exactly one of the first five options is required",
    ),
    Declared(
        "subscribePattern",
        Expression(Whitelist, "Java regular expression without a comma", has_commas=False),
        None,
        "Read the topics whose whole name matches the expression.",
        "Spark ``subscribePattern``",
    ),
    Declared(
        "whitelist",
        Expression(Whitelist),
        None,
        "Read the topics whose whole name matches the expression.",
        "Kafka 1.1 ``Whitelist``",
    ),
    Declared(
        "blacklist",
        Expression(Blacklist, may_be_empty=True),
        None,
        "Read the topics whose whole name does not match the expression.",
        "Kafka 1.1 ``Blacklist``",
    ),
    Declared(
        "assign", PARTITIONS, None, "Partitions to read, by topic. Requires ``membership=none``.", "Spark ``assign``"
    ),
    Declared(
        "membership",
        _make_choice("group", "none"),
        "group",
        "``group``: join the consumer group and read the assigned partitions. ``none``: read all partitions "
        "without joining the group.",
        "``none``: as in Spark",
        default_note="``group``; ``none`` for batch reads",
    ),
    Declared(
        "numStreams",
        Integer(1, MAX_STREAMS),
        1,
        "Number of consumer threads per topic that the query registers in the group. It determines "
        "the query's share of the partitions.",
        "Kafka 1.1 ``topicCountMap``",
    ),
    _declare_offsets(
        "startingOffsets",
        "Where a query without a checkpoint starts reading",
        default="group",
        default_note="``group``; ``earliest`` for batch reads",
        counterpart="Spark ``startingOffsets`` (default ``latest`` for streams)",
    ),
    *_declare_times(
        "starting", "Start", "What to do", "Spark ``startingOffsetsByTimestampStrategy`` (default ``error``)"
    ),
    _declare_offsets(
        "endingOffsets",
        "For batch reads only: where reading ends",
        default="latest",
        default_note="",
        counterpart="Spark ``endingOffsets``",
    ),
    *_declare_times("ending", "For batch reads only: end", "For batch reads only: what to do", "none"),
    Declared(
        "resumeFrom",
        _make_choice("furthest", "checkpoint", "group"),
        "furthest",
        "Where to resume after a restart: ``furthest`` (checkpoint or group offset, whichever is higher), "
        "``checkpoint`` or ``group``.",
    ),
    Declared(
        "ignoreUnsubscribedTopics",
        _FLAG,
        True,
        "Stop reading topics of the checkpoint to which the query no longer subscribes. ``false``: continue to read "
        "them; requires ``subscribe``.",
        "Flink ``disableFilterRestoredPartitionsWithSubscribedTopics``",
    ),
    Declared(
        "commitOffsets",
        _FLAG,
        True,
        "Commit the group's offsets when a batch has finished.",
        "Flink ``setCommitOffsetsOnCheckpoints``",
        default_note="``true``; ``false`` with ``membership=none``",
    ),
    Declared(
        "failOnDataLoss",
        _FLAG,
        True,
        "Fail the query if records were deleted before they were read. ``false``: skip missing records. Losses that "
        "are found when a batch is planned are logged by the driver, those that tasks find by the executors.",
        "Spark ``failOnDataLoss``",
    ),
    Declared(
        "maxOffsetsPerTrigger",
        _COUNT,
        10_000_000,
        "Maximum number of offsets per batch, divided fairly among partitions.",
        "Spark ``maxOffsetsPerTrigger`` (no limit by default)",
    ),
    Declared(
        "maxOffsetsPerPartition",
        _COUNT,
        None,
        "Maximum number of offsets of each partition in a batch.",
        "Spark 2.4 ``spark.streaming.kafka.maxRatePerPartition``",
    ),
    Declared(
        "minOffsetsPerTrigger",
        _COUNT,
        None,
        "Minimum number of offsets per batch, at most ``maxOffsetsPerTrigger``. A smaller batch is delayed by up to "
        "``maxTriggerDelay``.",
        "Spark ``minOffsetsPerTrigger``",
    ),
    Declared(
        "maxTriggerDelay",
        Duration(),
        "15m",
        "Maximum time to delay a batch after the previous one while fewer than ``minOffsetsPerTrigger`` "
        "offsets are available.",
        "Spark ``maxTriggerDelay``",
    ),
    Declared(
        "maxBytesPerTrigger",
        _COUNT,
        None,
        "Maximum size of the keys and values of a batch in bytes, estimated from the next records.",
    ),
    Declared(
        "maxBytesPerPartition",
        _COUNT,
        None,
        "Maximum size of the keys and values of each partition in a batch in bytes, estimated from the next records; "
        "at least one record.",
    ),
    Declared(
        "maxBytesPerSecond",
        _COUNT,
        None,
        "Maximum rate of keys and values, in bytes per second, averaged over time.",
        "Flink ``setRateLimiter``",
    ),
    Declared(
        "minPartitions",
        Integer(1, MAX_TASKS),
        None,
        "Minimum number of tasks per batch. By default, a partition is divided among several tasks "
        "only if each of them reads at least 50,000 offsets.",
        "Spark ``minPartitions``",
        default_note="number of executor cores, or of brokers times ``num.consumer.fetchers`` if that is more",
    ),
    Declared(
        "maxRecordsPerPartition",
        _COUNT,
        None,
        "Maximum number of offsets of one partition that a task reads.",
        "Spark ``maxRecordsPerPartition``",
    ),
    Declared(
        "maxAlignmentLag",
        Duration(),
        None,
        "Maximum difference in event time by which a partition may be ahead of the slowest active partition.",
        "Flink watermark alignment",
    ),
    Declared(
        "idleTimeout",
        Duration(is_positive=True),
        "1m",
        "Time without new records after which a partition is idle and no longer holds back the other "
        "partitions. Requires ``maxAlignmentLag``.",
        "Flink ``withIdleness``",
    ),
    Declared("includeHeaders", _FLAG, False, "Add the column ``headers``.", "Spark ``includeHeaders``"),
    Declared(
        "columns",
        Columns(),
        None,
        "Columns of the DataFrame, in this order, separated by commas.",
        default_note="all; ``headers`` only with ``includeHeaders``",
    ),
    Declared(
        "decoder",
        Text("``package.module:Name``"),
        None,
        "Class that converts records to rows, derived from ``RecordDecoder`` or ``BatchDecoder``. Cannot be "
        "combined with ``columns`` and ``includeHeaders``.",
        "Flink ``KafkaDeserializationSchema``",
    ),
    Declared(
        "decoder.*",
        Text("any"),
        None,
        "Options that are passed to the decoder without the prefix ``decoder.``, with names in lower case.",
    ),
    Declared(
        "plannedRanges",
        _FLAG,
        False,
        "Call the method ``decode_range`` of the decoder once for each partition of a batch, with its end offset and "
        "the number of offsets after it. Requires a decoder derived from ``BatchDecoder``.",
    ),
    Declared(
        "corrupt.record.policy",
        _make_choice("raise", "skip", "quarantine"),
        "raise",
        "What to do with corrupt record batches and with records that the decoder cannot decode: fail the "
        "query (``raise``), skip them (``skip``), or return them in the additional column ``corrupt`` "
        "(``quarantine``).",
    ),
    Declared(
        "revokeTimeout",
        Duration(),
        "5s",
        "Maximum time to wait for in-flight batches before a revoked partition is released. Keep it below the time "
        "for which other members retry a rebalance (``rebalance.max.retries`` times ``rebalance.backoff.ms``, by "
        "default 8 s).",
    ),
    Declared(
        "clusterUnavailableTimeout",
        Duration(is_positive=True),
        "2m",
        "Maximum time for which brokers may be unreachable before the query fails. The first rebalance may take this "
        "time plus ``revokeTimeout``. A query that resumes from a checkpoint also waits this time for a connection to "
        "ZooKeeper; a new query waits for ``zookeeper.connection.timeout.ms``.",
        "Spark ``kafkaConsumer.pollTimeoutMs``, ``fetchOffset.numRetries``",
    ),
)

#: Options by name in lower case.
BY_NAME = {option.name.lower(): option for option in OPTIONS}

#: Properties of the consumer that a query cannot set, with the reason. Names are in lower case.
REFUSED_PROPERTIES = {
    "auto.commit.enable": "offsets are committed when a batch has finished; use commitOffsets",
    "auto.commit.interval.ms": "offsets are committed when a batch has finished; use commitOffsets",
    "consumer.timeout.ms": "a query without new records waits; use clusterUnavailableTimeout for broker outages",
    "consumer.id": "each start of the query is a new consumer in the group",
}

#: Options of Spark's own source that this source does not have, with the remedy. Names are in lower case.
REFUSED_SPARK_OPTIONS = {
    "kafkaconsumer.polltimeoutms": "use clusterUnavailableTimeout",
    "fetchoffset.numretries": "requests to brokers are retried for clusterUnavailableTimeout",
    "fetchoffset.retryintervalms": "requests to brokers are retried for clusterUnavailableTimeout",
    "groupidprefix": "set group.id; the query joins that group",
    "topic": "the data source cannot write",
}

#: Properties of other clients whose counterpart is another one in a Spark query. Names are in lower case.
FOREIGN_OPTIONS = {
    "autocommit.enable": Counterpart(("commitOffsets",)),
    "autocommit.interval.ms": NO_COUNTERPART,
    "commit.offsets.on.checkpoint": Counterpart(("commitOffsets",)),
    "consumerid": NO_COUNTERPART,
    "enable.auto.commit": Counterpart(("commitOffsets",)),
    "key.deserializer": Counterpart(("decoder",)),
    "partition.discovery.interval.ms": Counterpart(("metadata.max.age.ms",)),
    "topics": Counterpart(("subscribe",)),
    "value.deserializer": Counterpart(("decoder",)),
}
