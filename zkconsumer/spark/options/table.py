"""Declarations of the data source options, used by the parser and by the documentation."""

from __future__ import annotations

from collections.abc import Iterator

from zkconsumer.config.declared import Declared
from zkconsumer.config.name_hints import NO_COUNTERPART, Counterpart
from zkconsumer.config.types import LONG_MAX, Boolean, Choice, Duration, Integer, Text
from zkconsumer.spark.options.types import PARTITIONS, TIMES, Columns, Expression, OffsetsOption, Timestamp, TopicNames
from zkconsumer.topic_filter import Blacklist, Whitelist
from zkconsumer.zookeeper.registry import MAX_STREAMS

#: Maximum number of tasks per batch that ``minPartitions`` and ``maxRecordsPerPartition`` may require.
MAX_TASKS = 100_000

_FLAG = Boolean(ignores_case=True)
_COUNT = Integer(1, LONG_MAX)


def _make_choice(*words: str) -> Choice:
    return Choice(words, ignores_case=True)


def _declare_offsets(name: str, where: str, default: str, default_note: str, counterpart: str) -> Declared:
    """Return the declaration of ``startingOffsets`` or ``endingOffsets``.

    Args:
        where: first words of the option's description.
    """
    return Declared(
        name,
        OffsetsOption(),
        default,
        f"{where}: the group's offsets (``group``), the log start offsets (``earliest``), the log end offsets "
        f"(``latest``), or offsets by partition in JSON. In JSON, -1 means latest and -2 means earliest. Partitions "
        f"that are not listed use the default.",
        counterpart,
        default_note,
    )


def _declare_times(prefix: str, verb: str, strategy: str, strategy_counterpart: str) -> Iterator[Declared]:
    """Yield the options that select offsets by timestamp.

    Args:
        prefix: option name prefix, ``starting`` or ``ending``.
        verb: first words of the timestamp option descriptions.
        strategy: first words of the strategy option's description.
        strategy_counterpart: Spark option that corresponds to the strategy option, or ``none``.
    """
    offsets, by_time, timestamp = f"{prefix}Offsets", f"{prefix}OffsetsByTimestamp", f"{prefix}Timestamp"
    yield Declared(
        timestamp,
        Timestamp(),
        None,
        f"{verb} at the first record at or after this timestamp. Takes precedence over ``{by_time}`` and "
        f"``{offsets}``.",
        f"Spark ``{timestamp}``",
    )
    yield Declared(
        by_time,
        TIMES,
        None,
        f"{verb} at the first record at or after a timestamp, given by topic or partition. Takes precedence over "
        f"``{offsets}``; partitions that are not listed use the default of ``{offsets}``.",
        f"Spark ``{by_time}``",
    )
    yield Declared(
        f"{by_time}Strategy",
        _make_choice("latest", "error"),
        "latest",
        f"{strategy} if a partition has no record at or after the timestamp: use its end offset (``latest``), or "
        "fail (``error``).",
        strategy_counterpart,
    )


#: All data source options, in documentation order. Consumer properties can also be set as options.
OPTIONS = (
    Declared(
        "subscribe",
        TopicNames(),
        None,
        "Comma-separated list of topics to read.",
        "Spark ``subscribe``",
        default_note="none; exactly one of ``subscribe``, ``subscribePattern``, ``whitelist``, ``blacklist`` and "
        "``assign`` is required",
    ),
    Declared(
        "subscribePattern",
        Expression(Whitelist, "Java regular expression without a comma", has_commas=False),
        None,
        "Read the topics whose full name matches the regular expression.",
        "Spark ``subscribePattern``",
    ),
    Declared(
        "whitelist",
        Expression(Whitelist),
        None,
        "Read the topics whose full name matches the regular expression.",
        "Kafka 1.1 ``Whitelist``",
    ),
    Declared(
        "blacklist",
        Expression(Blacklist, may_be_empty=True),
        None,
        "Read the topics whose full name does not match the regular expression.",
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
        "Number of consumer threads that the query registers in the group for each topic. It determines "
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
        "Where a batch read ends",
        default="latest",
        default_note="",
        counterpart="Spark ``endingOffsets``",
    ),
    *_declare_times("ending", "End a batch read", "What to do in a batch read", "none"),
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
        "Stop reading topics in the checkpoint to which the query no longer subscribes. ``false``: continue to read "
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
        "Fail the query if records were deleted before they were read. ``false``: skip missing records and log a "
        "warning, in the driver if the loss is detected during planning, or in the executor if a task detects it.",
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
        "Maximum number of offsets per partition in a batch.",
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
        "Maximum time to wait for ``minOffsetsPerTrigger`` offsets, measured from the previous batch. Then a smaller "
        "batch runs.",
        "Spark ``maxTriggerDelay``",
    ),
    Declared(
        "maxBytesPerTrigger",
        _COUNT,
        None,
        "Maximum size of the keys, values and headers in a batch, in bytes, estimated by sampling the next records.",
    ),
    Declared(
        "maxBytesPerPartition",
        _COUNT,
        None,
        "Maximum size of each partition's keys, values and headers in a batch, in bytes, estimated by sampling the "
        "next records. At least one record is read.",
    ),
    Declared(
        "maxBytesPerSecond",
        _COUNT,
        None,
        "Maximum average rate of keys, values and headers, in bytes per second.",
        "Flink ``setRateLimiter``",
    ),
    Declared(
        "minPartitions",
        Integer(1, MAX_TASKS),
        None,
        "Minimum number of tasks per batch. By default, a partition is divided among several tasks "
        "only if each of them reads at least 50,000 offsets.",
        "Spark ``minPartitions``",
        default_note="number of executor cores, or brokers times ``num.consumer.fetchers``, whichever is higher",
    ),
    Declared(
        "maxRecordsPerPartition",
        _COUNT,
        None,
        "Maximum number of offsets that a task reads from one partition.",
        "Spark ``maxRecordsPerPartition``",
    ),
    Declared(
        "maxAlignmentLag",
        Duration(),
        None,
        "Maximum event-time difference by which a partition may be ahead of the slowest active partition.",
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
        "Comma-separated list of the DataFrame's columns, in order.",
        default_note="all; ``headers`` only with ``includeHeaders``",
    ),
    Declared(
        "decoder",
        Text("``package.module:Name``"),
        None,
        "Class that converts records to rows; a subclass of ``RecordDecoder`` or ``BatchDecoder``. Cannot be "
        "combined with ``columns`` or ``includeHeaders``.",
        "Flink ``KafkaDeserializationSchema``",
    ),
    Declared(
        "decoder.*",
        Text("any"),
        None,
        "Options passed to the decoder, without the prefix ``decoder.`` and with lowercase names.",
    ),
    Declared(
        "plannedRanges",
        _make_choice("false", "true", "only"),
        "false",
        "Call the decoder's ``decode_range`` method once per partition and batch, with the end offset of the range "
        "and the number of offsets after it. With ``only``, the tasks fetch no records, and ``decode_range`` also "
        "receives the task that fetches the range. Requires a subclass of ``BatchDecoder``.",
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
        "Maximum time to wait for in-flight batches before a revoked partition is released. Keep it below the "
        "rebalance retry time of the other members (``rebalance.max.retries`` times ``rebalance.backoff.ms``, 8 s by "
        "default).",
    ),
    Declared(
        "clusterUnavailableTimeout",
        Duration(is_positive=True),
        "2m",
        "Maximum time that brokers may be unreachable before the query fails. The first rebalance may take this long "
        "plus ``revokeTimeout``. A query that resumes from a checkpoint also waits this long for a connection to "
        "ZooKeeper; a new query waits up to ``zookeeper.connection.timeout.ms``.",
        "Spark ``kafkaConsumer.pollTimeoutMs``, ``fetchOffset.numRetries``",
    ),
)

#: Options by lowercase name.
BY_NAME = {option.name.lower(): option for option in OPTIONS}

#: Consumer properties that a query cannot set, with the reason. Names are lowercase.
REJECTED_PROPERTIES = {
    "auto.commit.enable": "offsets are committed when a batch has finished; use commitOffsets",
    "auto.commit.interval.ms": "offsets are committed when a batch has finished; use commitOffsets",
    "consumer.timeout.ms": "a query without new records waits; use clusterUnavailableTimeout for broker outages",
    "consumer.id": "each query start adds a new consumer to the group",
}

#: Options of Spark's Kafka source that this source does not support, with the remedy. Names are lowercase.
REJECTED_SPARK_OPTIONS = {
    "kafkaconsumer.polltimeoutms": "use clusterUnavailableTimeout",
    "fetchoffset.numretries": "requests to brokers are retried for clusterUnavailableTimeout",
    "fetchoffset.retryintervalms": "requests to brokers are retried for clusterUnavailableTimeout",
    "groupidprefix": "set group.id; the query joins that group",
    "usedeprecatedoffsetfetching": "the source looks up offsets without a Kafka consumer; remove the option",
    "topic": "this data source is read-only",
}

#: Properties of other clients whose counterparts in a Spark query differ from those in ``FOREIGN_PROPERTIES``, by
#: lowercase name.
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
