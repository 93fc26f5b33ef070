"""The options of the data source: those of its own, and every property of the consumer."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import StructField, StructType

from zkconsumer.config import ConsumerConfig, property_names
from zkconsumer.errors import ConfigurationError
from zkconsumer.spark.executor import decoders
from zkconsumer.spark.executor.rows import CORRUPT_FIELD, Layout
from zkconsumer.spark.options.limits import Limits
from zkconsumer.spark.options.option_reader import OptionReader, duration, number
from zkconsumer.spark.options.starting_offsets import StartingOffsets
from zkconsumer.spark.options.subscription import Subscription

#: Properties that would contradict what the query does, with the reason.
_REFUSED = {
    "auto.commit.enable": "offsets are stored when a batch is done; see commit.mode",
    "auto.commit.interval.ms": "offsets are stored when a batch is done; see commit.mode",
    "consumer.timeout.ms": "a query that finds nothing waits; see unavailable.timeout.ms",
    "consumer.id": "each start of the query is a new member",
}

#: Options of Spark's own source that have no meaning here, with what to use.
_OTHERS = {
    "kafkaconsumer.polltimeoutms": "see unavailable.timeout.ms",
    "fetchoffset.numretries": "brokers are asked again for unavailable.timeout.ms",
    "fetchoffset.retryintervalms": "brokers are asked again for unavailable.timeout.ms",
    "groupidprefix": "set group.id: the query is a member of that group",
    "topic": "the source does not write",
}

_OWN = (
    "subscribe",
    "subscribePattern",
    "assign",
    "whitelist",
    "blacklist",
    "membership",
    "streams",
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingOffsetsByTimestamp",
    "endingTimestamp",
    "endingOffsetsByTimestampStrategy",
    "restart.from",
    "restore.filter",
    "commit.mode",
    "failOnDataLoss",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxBytesPerTrigger",
    "maxBytesPerSecond",
    "maxAlignmentLag",
    "idleTimeout",
    "includeHeaders",
    "columns",
    "decoder",
    "handover.timeout.ms",
    "unavailable.timeout.ms",
)

#: The columns of Spark's own source, with their types there.
COLUMNS = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key: string, value: binary>>",
}

# What readStream itself passes on.
_FOREIGN = ("path",)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of one query, checked; ``docs/spark.rst`` has a table of them.

    Attributes:
        subscription: from ``subscribe``, ``subscribePattern``, ``assign``, ``whitelist`` or ``blacklist``.
        is_member: ``membership``: ``group`` (default), or ``none`` for all partitions without joining.
        ends: where a batch read ends; of a stream it is not used.
        streams: thread ids per topic, default 1: the query's share of the group.
        starts: where it begins.
        keeps_restored: ``restore.filter`` = false: topics of the checkpoint are read on although not subscribed.
        commits: ``commit.mode``: ``on-batch`` (default for members), or ``off`` (default without membership).
        fails_on_data_loss: ``failOnDataLoss``, default true.
        limits: how much a batch may take.
        alignment: ``maxAlignmentLag`` in milliseconds, and ``idleTimeout`` (1m) in seconds; None for no alignment.
        min_partitions: ``minPartitions``: at least so many tasks per batch; default the number of cores.
        max_records_per_partition: ``maxRecordsPerPartition``: a task reads at most so many offsets of a partition.
        columns: of the frame, in this order, where there is no decoder.
        decoder: ``decoder``: the name of a user's class, and the options that begin with ``decoder.``.
        policy: ``corrupt.record.policy``: ``raise`` (default), ``skip``, or ``quarantine`` for a column ``corrupt``.
        handover_timeout: seconds, from ``handover.timeout.ms`` (5000): how long a partition that goes to another
            member waits for its batch. Keep it below what JVM members retry for (4 times 2 s by default).
        unavailable_timeout: seconds, from ``unavailable.timeout.ms`` (120000): how long brokers may be away, and the
            first rebalance of a query, or the ZooKeeper of one that goes on, may take.
        has_zookeeper: False where neither membership nor offsets need it, and brokers are named.
        consumer: every other option, by the names of the old consumer.
    """

    subscription: Subscription
    is_member: bool
    streams: int
    starts: StartingOffsets
    ends: StartingOffsets
    keeps_restored: bool
    commits: bool
    fails_on_data_loss: bool
    limits: Limits
    alignment: tuple[int, float] | None
    min_partitions: int | None
    max_records_per_partition: int | None
    columns: tuple[str, ...]
    decoder: tuple[str, Mapping[str, str]] | None
    policy: str
    handover_timeout: float
    unavailable_timeout: float
    has_zookeeper: bool
    consumer: ConsumerConfig

    @property
    def schema(self) -> Any:
        """The columns as Spark's DDL has them, or a ``StructType`` where the decoder has one."""
        schema: Any = ", ".join(f"{name} {COLUMNS[name]}" for name in self.columns)
        if self.decoder is not None:
            schema = decoders.find(self.decoder[0]).schema
        if self.policy != "quarantine":
            return schema
        if isinstance(schema, str):
            return f"{schema}, {CORRUPT_FIELD.name} {decoders.CORRUPT}"
        return StructType([*schema, StructField(CORRUPT_FIELD.name, from_arrow_type(CORRUPT_FIELD.type))])

    def layout(self, schema: StructType | None = None) -> Layout:
        """Return how the rows of tasks are made.

        Args:
            schema: of the frame, as Spark has it; None for the columns of Spark's own source.
        """
        if schema is None:
            return Layout.of(self.columns)
        name, options = self.decoder or (None, {})
        return Layout(to_arrow_schema(schema, timezone="UTC"), name, options, self.policy)

    @property
    def has_an_end(self) -> bool:
        """Whether a decoder may end the query."""
        return self.decoder is not None and decoders.has_an_end(decoders.find(self.decoder[0]))

    def for_consumer(self, consumer: ConsumerConfig, topics: Mapping[str, int]) -> SourceOptions:
        """Return these options for a consumer that is set up already, with thread ids by topic."""
        subscription = Subscription(topics=tuple(topics), threads=dict(topics))
        return dataclasses.replace(self, subscription=subscription, consumer=consumer)

    @classmethod
    def parse(cls, options: Mapping[str, str], *, batch: bool = False) -> SourceOptions:
        """Check options as Spark hands them over, their names in any case.

        Args:
            batch: for ``spark.read``, which joins no group, begins at the earliest offsets and ends at the latest.

        Raises:
            ConfigurationError: names the option, the value and what is expected.
        """
        left = _without_kafka({key.lower(): value for key, value in options.items() if key.lower() not in _FOREIGN})
        for name, reason in (*_REFUSED.items(), *_OTHERS.items()):
            if name in left:
                raise ConfigurationError(f"option {name!r} cannot be set for a Spark query: {reason}")

        def take(name: str) -> str | None:
            return left.pop(name.lower(), None)

        subscription = Subscription.parse(take)
        is_member = _choice(take, "membership", ("none" if batch else "group", "group", "none")) == "group"
        if batch and is_member:
            raise ConfigurationError("option membership = 'group': a batch read does not join a group; leave it out")
        if not batch and (ending := [name for name in left if name.startswith("ending")]):
            raise ConfigurationError(f"option {ending[0]!r} is for batch reads; a stream has no end")
        if is_member and subscription.assigned:
            raise ConfigurationError(
                "option assign: a member of a group cannot choose its partitions; set membership=none, or subscribe"
            )
        mode = _choice(take, "commit.mode", ("on-batch" if is_member else "off", "on-batch", "off", "periodic"))
        if mode == "periodic":
            raise ConfigurationError(
                "option commit.mode = 'periodic': offsets that the clock stores may be ahead of the batches that are "
                "done, which would lose records; use 'on-batch' or 'off'"
            )
        commits = mode == "on-batch"
        has_zookeeper = is_member or commits or "zookeeper.connect" in left or "bootstrap.servers" not in left
        if not is_member and left.get("offsets.storage", "zookeeper").lower() != "zookeeper":
            raise ConfigurationError("option offsets.storage: without membership only ZooKeeper's offsets are known")
        if not has_zookeeper:
            if left.get("startingoffsets", "").lower() == "group":
                raise ConfigurationError("option startingOffsets = 'group' needs zookeeper.connect")
            left["zookeeper.connect"] = "none"
        if not is_member and not commits:
            left.setdefault("group.id", "zkconsumer-spark")
        decoder = _decoder(take, left)
        return cls(
            subscription,
            is_member,
            number(take, "streams", 1) or 1,
            StartingOffsets.parse(take, default="earliest" if batch else "group"),
            StartingOffsets.parse(take, prefix="ending", default="latest"),
            not _flag(take, "restore.filter", True),
            commits,
            _flag(take, "failOnDataLoss", True),
            Limits.parse(take),
            _alignment(take),
            number(take, "minPartitions", None),
            number(take, "maxRecordsPerPartition", None),
            _columns(take),
            decoder,
            _choice(take, "corrupt.record.policy", ("raise", "raise", "skip", "quarantine")),
            (number(take, "handover.timeout.ms", 5000, 0) or 0) / 1000,
            (number(take, "unavailable.timeout.ms", 120_000) or 0) / 1000,
            has_zookeeper,
            _consumer(left),
        )


def _without_kafka(options: dict[str, str]) -> dict[str, str]:
    """Take what Spark's own source calls ``kafka.x`` for the property x, where there is one."""
    known = property_names()
    found = {name: value for name, value in options.items() if not name.startswith("kafka.")}
    for name, value in options.items():
        if not name.startswith("kafka.") or name in known:
            found[name] = value
        elif (short := name.removeprefix("kafka.")) not in known:
            raise ConfigurationError(
                f"option {name!r}: the old consumer has no property {short!r}; properties go without 'kafka.' here"
            )
        elif short in options:
            raise ConfigurationError(f"options {name!r} and {short!r} are given; they mean the same")
        else:
            found[short] = value
    return found


def _consumer(left: Mapping[str, str]) -> ConsumerConfig:
    known = property_names()
    for name in sorted(left):
        if name not in known:
            near = difflib.get_close_matches(name, [*known, *_OWN], 1, 0.5)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ConfigurationError(f"option {name!r} is not known{hint}")
    return ConsumerConfig.from_dict(left, strict=True)


def _choice(take: OptionReader, name: str, choices: tuple[str, ...]) -> str:
    text = take(name) or choices[0]
    if text.lower() not in choices:
        wanted = " or ".join(repr(choice) for choice in sorted(set(choices)))
        raise ConfigurationError(f"option {name} = {text!r}: {wanted} is expected")
    return text.lower()


def _flag(take: OptionReader, name: str, default: bool) -> bool:
    return _choice(take, name, (str(default).lower(), "true", "false")) == "true"


def _alignment(take: OptionReader) -> tuple[int, float] | None:
    lag, idle = duration(take, "maxAlignmentLag", None), duration(take, "idleTimeout", None)
    if lag is None and idle is not None:
        raise ConfigurationError("option idleTimeout is given, but not maxAlignmentLag, which it belongs to")
    if idle is not None and idle <= 0:
        raise ConfigurationError("option idleTimeout: a duration of more than 0 is expected")
    return None if lag is None else (round(lag * 1000), 60.0 if idle is None else idle)


def _decoder(take: OptionReader, left: dict[str, str]) -> tuple[str, Mapping[str, str]] | None:
    prefix = "decoder."
    options = {name.removeprefix(prefix): left.pop(name) for name in sorted(left) if name.startswith(prefix)}
    name = take("decoder")
    if name is None:
        if options:
            raise ConfigurationError(f"option {prefix}{next(iter(options))} is given, but no option decoder")
        return None
    for other in ("columns", "includeHeaders"):
        if other.lower() in left:
            raise ConfigurationError(f"options decoder and {other} are given; a decoder has columns of its own")
    return name.strip(), options


def _columns(take: OptionReader) -> tuple[str, ...]:
    headers, text = _flag(take, "includeHeaders", False), take("columns")
    if text is None:
        return tuple(name for name in COLUMNS if headers or name != "headers")
    by_lower = {name.lower(): name for name in COLUMNS}
    wanted = [part.strip().lower() for part in text.split(",")]
    unknown = [name for name in wanted if name not in by_lower]
    if unknown or len(set(wanted)) < len(wanted):
        raise ConfigurationError(f"option columns = {text!r}: some of {', '.join(COLUMNS)} are expected, each once")
    if headers and "headers" not in wanted:
        raise ConfigurationError("option includeHeaders = 'true', but columns does not name headers")
    return tuple(by_lower[name] for name in wanted)
