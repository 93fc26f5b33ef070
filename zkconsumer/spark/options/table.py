"""The table of the data source's options: what the parser accepts, and what the documentation lists."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from zkconsumer.config.name_hints import NO_COUNTERPART, Counterpart
from zkconsumer.config.tables import Row, to_rst

_JAVA_EXPRESSION = "Java regular expression"
_TIME = "milliseconds since 1970, not in the future"
_TIMES_JSON = '``{"a":{"0":1700000000000},"b":1700000000000}``'
_OFFSETS_JSON = '``{"a":{"0":23,"1":-1},"b":"earliest"}``'


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOption:
    """One option.

    Attributes:
        name: as the user writes it; names are case-insensitive.
        type: ``boolean``, ``duration``, ``integer``, ``JSON``, ``list`` or ``string``.
        meaning: description in reStructuredText, in one to three sentences.
        default: text of the value that applies if the option is absent; None if there is none.
        default_note: reStructuredText for the documentation if ``default`` alone is incomplete.
        choices: valid values, in lower case; empty for any text.
        minimum: lowest valid value of an integer.
        valid: reStructuredText for the documentation if ``choices`` and ``minimum`` are incomplete.
        counterpart: the corresponding option of Spark, Flink or Kafka, in reStructuredText.
    """

    name: str
    type: str
    meaning: str
    default: str | None = None
    default_note: str = ""
    choices: tuple[str, ...] = ()
    minimum: int = 1
    valid: str = ""
    counterpart: str = "none"

    def setting(self) -> Row:
        """Return the row of the documentation."""
        valid = self.valid or ", ".join(f"``{choice}``" for choice in self.choices)
        if self.type == "integer" and not valid:
            valid = f"at least {self.minimum}"
        if self.type == "duration":
            valid = "such as ``15m``, ``90s`` or ``500ms``; a number without unit is milliseconds"
        default = self.default_note or ("none" if self.default is None else f"``{self.default}``")
        return Row(self.name, self.type, default, valid, self.meaning, self.counterpart)


def _flag(name: str, default: str, meaning: str, counterpart: str) -> SourceOption:
    choices = ("true", "false")
    return SourceOption(
        name=name, type="boolean", default=default, choices=choices, meaning=meaning, counterpart=counterpart
    )


def _offsets(name: str, where: str, default: str, default_note: str, counterpart: str) -> SourceOption:
    """Return ``startingOffsets`` or ``endingOffsets``.

    Args:
        where: first words of the meaning.
    """
    return SourceOption(
        name=name,
        type="string",
        default=default,
        default_note=default_note,
        valid=f"``group``, ``earliest``, ``latest``, or JSON such as {_OFFSETS_JSON}",
        meaning=f"{where}: at the group's offsets, the log start offsets, the log end offsets, or offsets by "
        f"partition in JSON. In JSON, -1 means latest and -2 earliest, and a Java regular expression may be used as "
        f"topic. Partitions that it does not contain use the default.",
        counterpart=counterpart,
    )


def _times(prefix: str, verb: str, strategy: str, strategy_counterpart: str) -> Iterator[SourceOption]:
    """Yield the options that select offsets by time.

    Args:
        prefix: ``starting`` or ``ending``.
        verb: first words of the meaning.
        strategy: first words of the meaning of the last option.
        strategy_counterpart: counterpart of the last option.
    """
    offsets, by_time, timestamp = f"{prefix}Offsets", f"{prefix}OffsetsByTimestamp", f"{prefix}Timestamp"
    yield SourceOption(
        name=timestamp,
        type="integer",
        valid=_TIME,
        meaning=f"{verb} at the first record at or after this time. Takes precedence over ``{by_time}`` and "
        f"``{offsets}``.",
        counterpart=f"Spark ``{timestamp}``",
    )
    yield SourceOption(
        name=by_time,
        type="JSON",
        valid=f"such as {_TIMES_JSON}, {_TIME}",
        meaning=f"{verb} at the first record at or after a time by topic or partition. Takes precedence over "
        f"``{offsets}``; partitions that it does not contain use the default of ``{offsets}``.",
        counterpart=f"Spark ``{by_time}``",
    )
    yield SourceOption(
        name=f"{by_time}Strategy",
        type="string",
        default="latest",
        choices=("latest", "error"),
        meaning=f"{strategy} if a partition has no record at or after the time: use its end offset (``latest``), or "
        "fail (``error``).",
        counterpart=strategy_counterpart,
    )


#: All options of the data source, in the order of the documentation. Every property of the consumer is an option, too.
OPTIONS = (
    SourceOption(
        name="subscribe",
        type="list",
        default_note="none; exactly one of the first five options is required",
        valid="topic names",
        meaning="Topics to read, separated by commas.",
        counterpart="Spark ``subscribe``",
    ),
    SourceOption(
        name="subscribePattern",
        type="string",
        valid=f"{_JAVA_EXPRESSION} without a comma",
        meaning="Read the topics whose whole name matches the expression.",
        counterpart="Spark ``subscribePattern``",
    ),
    SourceOption(
        name="whitelist",
        type="string",
        valid=f"{_JAVA_EXPRESSION}; a comma means ``|``",
        meaning="Read the topics whose whole name matches the expression.",
        counterpart="Kafka 1.1 ``Whitelist``",
    ),
    SourceOption(
        name="blacklist",
        type="string",
        valid=f"{_JAVA_EXPRESSION}; a comma means ``|``",
        meaning="Read the topics whose whole name does not match the expression.",
        counterpart="Kafka 1.1 ``Blacklist``",
    ),
    SourceOption(
        name="assign",
        type="JSON",
        valid='such as ``{"a":[0,1],"b":[2]}``',
        meaning="Partitions to read, by topic. Requires ``membership=none``.",
        counterpart="Spark ``assign``",
    ),
    SourceOption(
        name="membership",
        type="string",
        default="group",
        default_note="``group``; ``none`` for batch reads",
        choices=("group", "none"),
        meaning="``group``: join the consumer group and read the assigned partitions. ``none``: read all partitions "
        "without joining the group.",
        counterpart="``none``: as in Spark",
    ),
    SourceOption(
        name="streams",
        type="integer",
        default="1",
        meaning="Number of consumer threads per topic that the query registers in the group, at most 1000. It "
        "determines the query's share of the partitions.",
        counterpart="Kafka 1.1 ``topicCountMap``",
    ),
    _offsets(
        "startingOffsets",
        "Where a query without a checkpoint starts reading",
        default="group",
        default_note="``group``; ``earliest`` for batch reads",
        counterpart="Spark ``startingOffsets`` (default ``latest`` for streams)",
    ),
    *_times("starting", "Start", "What to do", "Spark ``startingOffsetsByTimestampStrategy`` (default ``error``)"),
    _offsets(
        "endingOffsets",
        "For batch reads only: where reading ends",
        default="latest",
        default_note="",
        counterpart="Spark ``endingOffsets``",
    ),
    *_times("ending", "For batch reads only: end", "For batch reads only: what to do", "none"),
    SourceOption(
        name="restart.from",
        type="string",
        default="furthest",
        choices=("furthest", "checkpoint", "group"),
        meaning="Where to resume after a restart: ``furthest`` (checkpoint or group offset, whichever is higher), "
        "``checkpoint`` or ``group``.",
    ),
    _flag(
        "restore.filter",
        "true",
        "Stop reading topics of the checkpoint to which the query no longer subscribes. ``false``: continue to read "
        "them; requires ``subscribe``.",
        "Flink ``disableFilterRestoredPartitionsWithSubscribedTopics``",
    ),
    SourceOption(
        name="commit.mode",
        type="string",
        default="on-batch",
        default_note="``on-batch``; ``off`` with ``membership=none``",
        choices=("on-batch", "off"),
        meaning="``on-batch``: commit the group's offsets when a batch has finished. ``off``: do not commit them.",
        counterpart="Flink ``setCommitOffsetsOnCheckpoints``",
    ),
    _flag(
        "failOnDataLoss",
        "true",
        "Fail the query if records were deleted before they were read. ``false``: skip missing records. Losses that "
        "are found when a batch is planned are logged by the driver, those that tasks find by the executors.",
        "Spark ``failOnDataLoss``",
    ),
    SourceOption(
        name="maxOffsetsPerTrigger",
        type="integer",
        default="10000000",
        default_note="``10000000`` (ten million)",
        meaning="Maximum number of offsets per batch, divided fairly among partitions.",
        counterpart="Spark ``maxOffsetsPerTrigger`` (no limit by default)",
    ),
    SourceOption(
        name="minOffsetsPerTrigger",
        type="integer",
        valid="at least 1, at most ``maxOffsetsPerTrigger``",
        meaning="Minimum number of offsets per batch. A smaller batch is delayed by up to ``maxTriggerDelay``.",
        counterpart="Spark ``minOffsetsPerTrigger``",
    ),
    SourceOption(
        name="maxTriggerDelay",
        type="duration",
        default="15m",
        meaning="Maximum time to delay a batch after the previous one while fewer than ``minOffsetsPerTrigger`` "
        "offsets are available.",
        counterpart="Spark ``maxTriggerDelay``",
    ),
    SourceOption(
        name="maxBytesPerTrigger",
        type="integer",
        meaning="Maximum size of the keys and values of a batch in bytes, estimated from the next records.",
    ),
    SourceOption(
        name="maxBytesPerSecond",
        type="integer",
        meaning="Maximum rate of keys and values, in bytes per second, averaged over time.",
        counterpart="Flink ``setRateLimiter``",
    ),
    SourceOption(
        name="minPartitions",
        type="integer",
        default_note="number of executor cores, or of brokers times ``num.consumer.fetchers`` if that is more",
        meaning="Minimum number of tasks per batch, at most 100,000. By default, a partition is divided among several "
        "tasks only if each of them reads at least 50,000 offsets.",
        counterpart="Spark ``minPartitions``",
    ),
    SourceOption(
        name="maxRecordsPerPartition",
        type="integer",
        meaning="Maximum number of offsets of one partition that a task reads.",
        counterpart="Spark ``maxRecordsPerPartition``",
    ),
    SourceOption(
        name="maxAlignmentLag",
        type="duration",
        meaning="Maximum difference in event time by which a partition may be ahead of the slowest active partition.",
        counterpart="Flink watermark alignment",
    ),
    SourceOption(
        name="idleTimeout",
        type="duration",
        default="1m",
        meaning="Time without new records after which a partition is idle and no longer holds back the other "
        "partitions. Requires ``maxAlignmentLag``.",
        counterpart="Flink ``withIdleness``",
    ),
    _flag("includeHeaders", "false", "Add the column ``headers``.", "Spark ``includeHeaders``"),
    SourceOption(
        name="columns",
        type="list",
        default_note="all; ``headers`` only with ``includeHeaders``",
        valid="``key``, ``value``, ``topic``, ``partition``, ``offset``, ``timestamp``, ``timestampType``, ``headers``",
        meaning="Columns of the DataFrame, in this order, separated by commas.",
    ),
    SourceOption(
        name="decoder",
        type="string",
        valid="``package.module:Name``",
        meaning="Class that converts records to rows, derived from ``RecordDecoder`` or ``BatchDecoder``. Cannot be "
        "combined with ``columns`` and ``includeHeaders``.",
        counterpart="Flink ``KafkaDeserializationSchema``",
    ),
    SourceOption(
        name="decoder.*",
        type="string",
        valid="any",
        meaning="Options that are passed to the decoder without the prefix ``decoder.``, with names in lower case.",
    ),
    SourceOption(
        name="corrupt.record.policy",
        type="string",
        default="raise",
        choices=("raise", "skip", "quarantine"),
        meaning="What to do with corrupt record batches and with records that the decoder cannot decode: fail the "
        "query (``raise``), skip them (``skip``), or return them in the additional column ``corrupt`` "
        "(``quarantine``).",
    ),
    SourceOption(
        name="handover.timeout.ms",
        type="integer",
        default="5000",
        minimum=0,
        meaning="Maximum time to wait for in-flight batches before a revoked partition is released, in milliseconds. "
        "Keep it below the time for which other members retry a rebalance (``rebalance.max.retries`` times "
        "``rebalance.backoff.ms``, by default 8 s).",
    ),
    SourceOption(
        name="unavailable.timeout.ms",
        type="integer",
        default="120000",
        meaning="Maximum time for which brokers may be unreachable before the query fails, in milliseconds. The first "
        "rebalance may take this time plus ``handover.timeout.ms``. A query that resumes from a checkpoint also waits "
        "this time for a connection to ZooKeeper; a new query waits for ``zookeeper.connection.timeout.ms``.",
        counterpart="Spark ``kafkaConsumer.pollTimeoutMs``, ``fetchOffset.numRetries``",
    ),
)

#: Options by name in lower case.
BY_NAME = {option.name.lower(): option for option in OPTIONS}

#: Properties of the consumer that a query cannot set, with the reason. Names are in lower case.
REFUSED_PROPERTIES = {
    "auto.commit.enable": "offsets are committed when a batch has finished; use commit.mode",
    "auto.commit.interval.ms": "offsets are committed when a batch has finished; use commit.mode",
    "consumer.timeout.ms": "a query without new records keeps waiting; use unavailable.timeout.ms for broker outages",
    "consumer.id": "each start of the query is a new consumer in the group",
}

#: Options of Spark's own source that this source does not have, with the remedy. Names are in lower case.
REFUSED_SPARK_OPTIONS = {
    "kafkaconsumer.polltimeoutms": "use unavailable.timeout.ms",
    "fetchoffset.numretries": "requests to brokers are retried for unavailable.timeout.ms",
    "fetchoffset.retryintervalms": "requests to brokers are retried for unavailable.timeout.ms",
    "groupidprefix": "set group.id; the query joins that group",
    "topic": "the data source cannot write",
}

#: Properties of other clients whose counterpart is another one in a Spark query. Names are in lower case.
FOREIGN_OPTIONS = {
    "autocommit.enable": Counterpart(("commit.mode",)),
    "autocommit.interval.ms": NO_COUNTERPART,
    "commit.offsets.on.checkpoint": Counterpart(("commit.mode",)),
    "consumerid": NO_COUNTERPART,
    "enable.auto.commit": Counterpart(("commit.mode",)),
    "key.deserializer": Counterpart(("decoder",)),
    "partition.discovery.interval.ms": Counterpart(("metadata.max.age.ms",)),
    "topics": Counterpart(("subscribe",)),
    "value.deserializer": Counterpart(("decoder",)),
}


def documentation() -> str:
    """Return the table of ``docs/spark-options.rst``."""
    return to_rst((option.setting() for option in OPTIONS), counterpart="Counterpart")
