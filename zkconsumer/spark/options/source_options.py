"""The parsed options of one query: data source options and consumer properties."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructField, StructType

from zkconsumer.config.consumer_config import ConsumerConfig
from zkconsumer.config.problems import Problems
from zkconsumer.config.properties import property_names
from zkconsumer.errors import ConfigurationError
from zkconsumer.spark.compat import to_utc_arrow_schema
from zkconsumer.spark.executor import decoders
from zkconsumer.spark.executor.row_schema import CORRUPT_FIELD, RowSchema
from zkconsumer.spark.options.group_use import GroupUse
from zkconsumer.spark.options.limits import Limits
from zkconsumer.spark.options.option_reader import OptionReader, did_you_mean
from zkconsumer.spark.options.starting_offsets import StartingOffsets
from zkconsumer.spark.options.subscription import Subscription
from zkconsumer.spark.options.table import BY_NAME, REJECTED_PROPERTIES, REJECTED_SPARK_OPTIONS
from zkconsumer.spark.options.types import COLUMNS

#: Options that Spark passes to every source, but that this source ignores.
_IGNORED = ("path",)

_DECODER_PREFIX = "decoder."

#: Property that Spark sets for each table; see ``check_not_table``.
_TABLE_PROPERTY = "owner"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The validated options of one query. See ``options/table.py`` for the option descriptions.

    Attributes:
        subscription: topics or partitions to read.
        is_member: whether the query joins the group.
        commits: whether the group's offsets are committed when a batch has finished.
        has_zookeeper: whether the query connects to ZooKeeper, for group membership, offsets or broker discovery.
        streams: number of thread ids per topic.
        starting_offsets: options that determine where reading starts.
        ending_offsets: options that determine where a batch read ends; unused by streaming queries.
        keeps_unsubscribed: whether to keep reading topics in the checkpoint that the subscription no longer contains.
        fails_on_data_loss: whether to fail if records were deleted before they were read, instead of skipping them.
        limits: batch limits.
        alignment: ``maxAlignmentLag`` in milliseconds and ``idleTimeout`` in seconds; None without alignment.
        min_partitions: minimum number of tasks per batch; None for the default.
        max_records_per_partition: maximum number of offsets that a task reads from one partition; None for no limit.
        columns: column names of the DataFrame, in order; unused with a decoder.
        planned_ranges: whether to call the decoder's ``decode_range`` method: ``false``, ``true``, or ``only`` to call
            only this method, and fetch no records.
        decoder: decoder class name and decoder options; None without a decoder.
        corrupt_record_policy: ``raise``, ``skip`` or ``quarantine``.
        revoke_timeout_s: maximum seconds to wait for in-flight batches before a revoked partition is released.
        unavailable_timeout_s: maximum time that ZooKeeper or the brokers may be unreachable, in seconds.
        consumer: the consumer properties.
    """

    subscription: Subscription
    is_member: bool
    commits: bool
    has_zookeeper: bool
    streams: int
    starting_offsets: StartingOffsets
    ending_offsets: StartingOffsets
    keeps_unsubscribed: bool
    fails_on_data_loss: bool
    limits: Limits
    alignment: tuple[int, float] | None
    min_partitions: int | None
    max_records_per_partition: int | None
    columns: tuple[str, ...]
    decoder: tuple[str, Mapping[str, str]] | None
    planned_ranges: str
    corrupt_record_policy: str
    revoke_timeout_s: float
    unavailable_timeout_s: float
    consumer: ConsumerConfig

    @classmethod
    def parse(cls, options: Mapping[str, str], *, batch: bool = False) -> SourceOptions:
        """Parse and validate the options of a query. Option names are case-insensitive.

        Args:
            options: options as passed by Spark to the data source.
            batch: whether the options belong to a batch read (``spark.read``), which does not join a group and
                by default reads from the earliest to the latest offsets.

        Raises:
            ConfigurationError: an option is unknown or invalid, or options conflict. The message lists all problems,
                one per line.
        """
        check_not_table(options)
        problems = Problems()
        get = problems.attempt
        reader = OptionReader(_remove_unsupported(_remove_kafka_prefix(options, problems), problems))

        def read(name: str) -> Any:
            return get(reader.get, name)

        subscription = get(Subscription.parse, reader)
        use = get(GroupUse.parse, reader, subscription or Subscription(), batch=batch)
        values: dict[str, Any] = {
            "subscription": subscription,
            "decoder": get(_read_decoder, reader),
            "planned_ranges": get(_read_planned_ranges, reader),
            "streams": read("numStreams"),
            "starting_offsets": get(
                StartingOffsets.parse,
                reader,
                default="earliest" if batch else None,
                rejected="latest" if batch else None,
            ),
            "ending_offsets": get(
                StartingOffsets.parse, reader, prefix="ending", rejected="earliest" if batch else None
            ),
            "keeps_unsubscribed": not read("ignoreUnsubscribedTopics"),
            "fails_on_data_loss": read("failOnDataLoss"),
            "limits": get(Limits.parse, reader),
            "alignment": get(_read_alignment, reader),
            "min_partitions": read("minPartitions"),
            "max_records_per_partition": read("maxRecordsPerPartition"),
            "columns": get(_read_columns, reader),
            "corrupt_record_policy": read("corrupt.record.policy"),
            "revoke_timeout_s": read("revokeTimeout"),
            "unavailable_timeout_s": read("clusterUnavailableTimeout"),
            "consumer": _read_consumer(reader, use, problems),
        }
        if use is not None:
            problems.attempt(use.check_consumer, values["consumer"])
            values |= {"is_member": use.is_member, "commits": use.commits, "has_zookeeper": use.has_zookeeper}
        problems.check()
        return cls(**values)

    def for_consumer(self, consumer: ConsumerConfig, topics: Mapping[str, int]) -> SourceOptions:
        """Return a copy of these options with the given consumer properties and topics.

        Args:
            topics: number of thread ids by topic.
        """
        subscription = Subscription(topics=tuple(topics), threads=dict(topics))
        return dataclasses.replace(self, subscription=subscription, consumer=consumer)

    @property
    def schema(self) -> Any:
        """The DataFrame schema as a DDL string, or as a ``StructType`` if the decoder declares one."""
        schema: Any = ", ".join(f"{name} {COLUMNS[name]}" for name in self.columns)
        if self.decoder is not None:
            schema = decoders.load(self.decoder[0]).schema
        if self.corrupt_record_policy != "quarantine":
            return schema
        if isinstance(schema, str):
            return f"{schema}, {CORRUPT_FIELD.name} {decoders.CORRUPT}"
        return StructType([*schema, StructField(CORRUPT_FIELD.name, from_arrow_type(CORRUPT_FIELD.type))])

    def row_schema(self, schema: StructType | None = None) -> RowSchema:
        """Return the schema of the rows that tasks create.

        Args:
            schema: DataFrame schema as passed by Spark; None for the schema of the columns in ``columns``.
        """
        if schema is None:
            return RowSchema.from_columns(self.columns)
        name, options = self.decoder or (None, {})
        return RowSchema(to_utc_arrow_schema(schema), name, options, self.corrupt_record_policy)

    @property
    def passes_ranges(self) -> bool:
        """Whether the decoder receives the planned ranges."""
        return self.planned_ranges != "false"

    @property
    def may_skip(self) -> bool:
        """Whether tasks may skip records."""
        return not self.fails_on_data_loss or self.corrupt_record_policy == "skip"

    @property
    def has_an_end(self) -> bool:
        """Whether the decoder can end the query."""
        return self.decoder is not None and decoders.can_end_stream(decoders.load(self.decoder[0]))


def check_not_table(options: Mapping[str, str]) -> None:
    """Raise ``ConfigurationError`` if Spark created the source for a table.

    Spark then passes table properties, such as the owner, instead of the table's options.
    """
    if any(name.lower() == _TABLE_PROPERTY for name in options):
        raise ConfigurationError(
            "the data source 'zkconsumer' does not support tables (CREATE TABLE ... USING zkconsumer), because Spark "
            "passes no table options to it; create a view instead, with "
            "spark.read.format('zkconsumer').options(...).load().createOrReplaceTempView(name)"
        )


def _remove_kafka_prefix(options: Mapping[str, str], problems: Problems) -> dict[str, str]:
    """Return the options with lowercase names, and without the prefix ``kafka.`` that Spark's Kafka source uses."""
    given = {name.lower(): text for name, text in options.items() if name.lower() not in _IGNORED}
    known = property_names()
    found = {name: text for name, text in given.items() if not name.startswith("kafka.")}
    for name, text in given.items():
        if not name.startswith("kafka.") or name in known:
            found[name] = text
        elif (short := name.removeprefix("kafka.")) not in known:
            problems.add(f"unknown property {short!r} in option {name!r}{did_you_mean(short, known)}")
        elif short in given:
            problems.add(f"options {name!r} and {short!r} are the same property; set only one of them")
        else:
            found[short] = text
    return found


def _remove_unsupported(options: Mapping[str, str], problems: Problems) -> dict[str, str]:
    """Remove the options that a Spark query cannot set, and report them as problems."""
    unsupported = {**REJECTED_PROPERTIES, **REJECTED_SPARK_OPTIONS}
    for name in unsupported:
        if name in options:
            problems.add(f"option {name!r} cannot be set for a Spark query: {unsupported[name]}")
    return {name: text for name, text in options.items() if name not in unsupported}


def _read_alignment(reader: OptionReader) -> tuple[int, float] | None:
    lag, idle_timeout = reader["maxAlignmentLag"], reader["idleTimeout"]
    if lag is None and reader.given("idleTimeout"):
        raise ConfigurationError("option idleTimeout requires maxAlignmentLag")
    return None if lag is None else (round(lag * 1000), idle_timeout)


def _read_planned_ranges(reader: OptionReader) -> str:
    if reader["plannedRanges"] != "false" and reader["decoder"] is None:
        raise ConfigurationError("option plannedRanges requires the option decoder")
    return str(reader["plannedRanges"])


def _read_decoder(reader: OptionReader) -> tuple[str, Mapping[str, str]] | None:
    name, options = reader["decoder"], reader.with_prefix(_DECODER_PREFIX)
    if name is None:
        if options:
            raise ConfigurationError(f"option {_DECODER_PREFIX}{next(iter(options))} requires the option decoder")
        return None
    for other in ("columns", "includeHeaders"):
        if reader.given(other):
            raise ConfigurationError(
                f"options decoder and {other} are mutually exclusive: the schema of the decoder determines the columns"
            )
    return name, options


def _read_columns(reader: OptionReader) -> tuple[str, ...]:
    has_headers, columns = reader["includeHeaders"], reader["columns"]
    if columns is None:
        return tuple(name for name in COLUMNS if has_headers or name != "headers")
    if has_headers and "headers" not in columns:
        raise ConfigurationError("option includeHeaders is 'true', but option columns does not contain 'headers'")
    return tuple(columns)


def _read_consumer(reader: OptionReader, use: GroupUse | None, problems: Problems) -> ConsumerConfig | None:
    """Return the consumer properties, which are all options except data source options; None if one is invalid."""
    known = property_names()
    properties = {}
    for name, text in sorted(reader.unread().items()):
        if name in known:
            properties[name] = text
        elif name not in BY_NAME:  # a declared option is unread only if another problem was found
            problems.add(f"unknown option {name!r}{did_you_mean(name, known)}")
    # ``use`` is None if it could not be parsed. That problem was already added.
    defaults = {"group.id": "none", "zookeeper.connect": "none"} if use is None else use.consumer_defaults()
    if "zookeeper.connect" not in {**defaults, **properties}:
        problems.add(
            "Missing required property 'zookeeper.connect'; to read without ZooKeeper and without joining a group, set "
            "membership=none and bootstrap.servers"
        )
        defaults["zookeeper.connect"] = "none"
    return problems.attempt(ConsumerConfig.from_dict, {**defaults, **properties}, strict=True)
