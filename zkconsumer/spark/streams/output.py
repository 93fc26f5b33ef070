"""Task output, which the operator passes to the sink as a row, and the sink settings."""

from __future__ import annotations

import base64
import enum
import itertools
import pickle
import types
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import cloudpickle

from zkconsumer.spark.streams.packing import from_blob
from zkconsumer.topology.handlers import ErrorHandler
from zkconsumer.topology.loop.records import Header

#: Columns of the rows that the operator returns, one row per task; see ``TaskOutput``. ``metrics`` contains the changes
#: of the task metrics as JSON.
OUTPUT_COLUMNS = "task string, sequence bigint, offsets string, blob binary, metrics string"

#: Name of the header with the first characters of the query id, the task id, and the sequence number of a record, such
#: as ``6f1c2b9e:0_3:17``. One header is faster to send than three.
SEQUENCE_HEADER = "zkconsumer.sequence"

#: Number of characters of the query id in ``SEQUENCE_HEADER``.
_QUERY_CHARACTERS = 8
#: Number of consecutive sequence numbers whose records without keys go to the same partition.
STICKY_RECORDS = 100

#: Name of the header of internal topic records whose timestamp is 0; see ``restore_timestamps``.
TIMESTAMP_HEADER = "zkconsumer.timestamp"
#: Timestamp that is sent instead of 0, which librdkafka replaces with the current time. Source: librdkafka 2.16
#: rd_kafka_msg_new0.
_REPLACED_TIMESTAMP = 1


class TaskOutput(NamedTuple):
    """The output of a task in a batch.

    Attributes:
        task: task id.
        sequence: number of records that the task wrote in earlier batches.
        offsets: next offset of each partition from which the task has received a range; see ``markers.encode_offsets``.
            If there is no such partition, each partition of the task has ``NO_OFFSET``.
        blob: the records; see ``packing.to_blob``. None if there are none.
    """

    task: str
    sequence: int
    offsets: str
    blob: bytes | None


class ProcessingGuarantee(enum.Enum):
    """Delivery guarantee for output records. Source: Kafka 3.9 StreamsConfig ``processing.guarantee``."""

    #: A repeated batch writes its output again. The sequence headers, if enabled, are the same.
    AT_LEAST_ONCE = "at_least_once"
    #: One transaction per task and batch: consumers with ``isolation.level=read_committed`` read each record once.
    EXACTLY_ONCE_V2 = "exactly_once_v2"


@dataclass(frozen=True, kw_only=True)
class SinkSettings:
    """Settings of the sink; pickled and sent to the workers.

    Attributes:
        application_id: the application id.
        guarantee: see ``ProcessingGuarantee``.
        client: librdkafka connection settings.
        producer: additional librdkafka producer settings.
        has_sequence_headers: whether to add a header with the task id and sequence number to records.
        partition_counts: number of partitions by topic when the application started.
        internal_topics: names of internal topics. Only the application reads them, so they get no sequence headers.
        fails_on_changed_output: see ``QuerySettings``.
        handler: ``ApplicationConfig.production_handler``.
        quarantine_topic: ``ApplicationConfig.quarantine_topic``.
    """

    application_id: str
    guarantee: ProcessingGuarantee
    client: Mapping[str, Any]
    producer: Mapping[str, Any]
    has_sequence_headers: bool
    partition_counts: Mapping[str, int]
    internal_topics: frozenset[str]
    fails_on_changed_output: bool
    handler: ErrorHandler
    quarantine_topic: str | None

    def with_servers(self, servers: str | None) -> SinkSettings:
        """Return the settings with other brokers; with the same ones if ``servers`` is None."""
        if servers is None or servers == self.client.get("bootstrap.servers"):
            return self
        return replace(self, client={**self.client, "bootstrap.servers": servers})

    def encode(self) -> str:
        """Return the settings as an option value for the sink."""
        return base64.b64encode(cloudpickle.dumps(self)).decode()

    @classmethod
    def decode(cls, text: str) -> SinkSettings:
        """Decode the settings from the result of ``encode``."""
        found = pickle.loads(base64.b64decode(text))
        assert isinstance(found, cls)
        return found


#: Arguments of ``confluent_kafka.Producer.produce`` for a record: topic, value, key, partition (-1 to let the producer
#: choose), two callbacks, timestamp, and headers. Without headers, None is faster than an empty list.
RecordFields = tuple[str, bytes | None, bytes | None, int, Callable[[Any, Any], None], None, int, list[Header] | None]

#: Function that is called with the position, the error and the message of a record that was not written.
OnFailure = Callable[[int, Any, Any], None]


def read_records(
    output: TaskOutput, settings: SinkSettings, query: str, on_failure: OnFailure
) -> Iterator[RecordFields]:
    """Yield the records of a task's output, with the header ``SEQUENCE_HEADER`` if the settings require it.

    Records without keys get the partition that ``_choose_partitions`` returns.

    Args:
        output: output of the task in a batch.
        settings: sink settings.
        query: query id, which the checkpoint contains.
        on_failure: called with the position of each record that is not written.
    """
    if output.blob is None:
        return iter(())
    table = from_blob(output.blob)
    topics = _read_dictionary(table.column("topic"))
    values, keys, timestamps = (table.column(name).to_pylist() for name in ("value", "key", "timestamp"))
    partitions = table.column("partition").fill_null(-1).to_pylist()
    if None in keys:
        partitions = _choose_partitions(output, settings.partition_counts, topics, keys, partitions)
    # Only the callback identifies a record: several can have the same topic, key, value and timestamp. Binding a method
    # is faster than ``functools.partial``.
    callbacks = map(types.MethodType, itertools.repeat(on_failure), range(table.num_rows))
    headers = table.column("headers")
    pairs: Iterable[list[Header] | None] = itertools.repeat(None, table.num_rows)
    if headers.null_count < table.num_rows:
        pairs = map(_to_pairs, headers.to_pylist())
    internal = settings.internal_topics
    if settings.has_sequence_headers and not internal.issuperset(table.column("topic").unique().to_pylist()):
        task = f"{query[:_QUERY_CHARACTERS]}:{output.task}".encode()
        numbered = zip(topics, pairs, range(output.sequence, output.sequence + table.num_rows), strict=True)
        # Use a generator, because Python's garbage collector would visit a list of all headers several times.
        pairs = (
            found if topic in internal else _add_sequence(found, b"%b:%d" % (task, number))
            for topic, found, number in numbered
        )
    unused = itertools.repeat(None, table.num_rows)
    records = zip(topics, values, keys, partitions, callbacks, unused, timestamps, pairs, strict=True)
    return _replace_timestamps(records, internal) if 0 in timestamps else records


def _add_sequence(headers: list[Header] | None, sequence: bytes) -> list[Header]:
    """Replace the header ``SEQUENCE_HEADER``, which a record that comes from another output topic already has."""
    kept = [header for header in headers if header[0] != SEQUENCE_HEADER] if headers else []
    return [*kept, (SEQUENCE_HEADER, sequence)]


def _replace_timestamps(records: Iterable[RecordFields], internal: Collection[str]) -> Iterator[RecordFields]:
    """Replace timestamp 0; in internal topics, mark the records."""
    for record in records:
        if record[6] == 0:
            headers = record[7]
            if record[0] in internal:
                headers = [*(headers or ()), (TIMESTAMP_HEADER, b"0")]
            yield (*record[:6], _REPLACED_TIMESTAMP, headers)
        else:
            yield record


def restore_timestamps(table: pa.Table) -> pa.Table:
    """Restore the timestamp 0 in records of an internal topic, and remove the header ``TIMESTAMP_HEADER``."""
    if "headers" not in table.schema.names:
        return table
    headers = table.column("headers").combine_chunks()
    if TIMESTAMP_HEADER not in pc.unique(pc.struct_field(pc.list_flatten(headers), 0)).to_pylist():
        return table
    pairs = [_to_pairs(found) or [] for found in headers.to_pylist()]
    is_marked = pa.array([(TIMESTAMP_HEADER, b"0") in found for found in pairs])
    kept = [[header for header in found if header[0] != TIMESTAMP_HEADER] or None for found in pairs]
    timestamps = table.column("timestamp")
    restored = pc.if_else(is_marked, pa.scalar(0, timestamps.type), timestamps)
    names = table.schema.names
    table = table.set_column(names.index("timestamp"), "timestamp", restored)
    return table.set_column(names.index("headers"), "headers", pa.array(kept, headers.type))


def count_replaced_timestamps(output: TaskOutput, settings: SinkSettings) -> dict[str, int]:
    """Return the number of records by topic whose timestamp is written as 1 instead of 0; see ``read_records``."""
    if output.blob is None:
        return {}
    table = from_blob(output.blob).select(["topic", "timestamp"])
    topics = _read_dictionary(table.filter(pc.equal(table.column("timestamp"), 0)).column("topic"))
    return {topic: count for topic, count in Counter(topics).items() if topic not in settings.internal_topics}


def _choose_partitions(
    output: TaskOutput,
    counts: Mapping[str, int],
    topics: Sequence[str],
    keys: Sequence[bytes | None],
    partitions: Sequence[int],
) -> list[int]:
    """Choose the partitions of records without keys from their sequence numbers.

    The producer would choose them randomly, so that a repeated batch would write the records to other partitions.
    """
    first = int(output.task.partition("_")[2])  # so that tasks with little output use different partitions
    return [
        (first + number // STICKY_RECORDS) % counts[topic]
        if key is None and partition < 0 and topic in counts
        else partition
        for number, topic, key, partition in zip(
            itertools.count(output.sequence), topics, keys, partitions, strict=False
        )
    ]


def with_callback(record: RecordFields, position: int, on_failure: OnFailure) -> RecordFields:
    """Return a record with another callback; see ``read_records``."""
    return (*record[:4], types.MethodType(on_failure, position), *record[5:])


def _read_dictionary(column: pa.ChunkedArray) -> list[str]:
    """Return the values of a dictionary column; faster than ``to_pylist``."""
    values: list[str] = []
    for chunk in column.chunks:
        values += map(chunk.dictionary.to_pylist().__getitem__, chunk.indices.to_pylist())
    return values


def _to_pairs(headers: Sequence[Mapping[str, Any]] | None) -> list[Header] | None:
    return [(header["key"], header["value"]) for header in headers] if headers else None
