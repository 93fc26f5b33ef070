"""The output of a task in a batch, as a row between the operator and the sink, and the settings of the sink."""

from __future__ import annotations

import base64
import enum
import functools
import itertools
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark import cloudpickle

from zkconsumer.spark.streams.packing import from_blob
from zkconsumer.topology.handlers import ErrorHandler
from zkconsumer.topology.records import Header

#: Columns of the rows that the operator returns, one for each task; see ``TaskOutput``. ``metrics`` are changes of its
#: metrics as JSON.
OUTPUT_COLUMNS = "task string, sequence bigint, offsets string, blob binary, metrics string"

#: Name of the header with the task and the number of a record in its output, as ``0_3:17``. One header is faster to
#: send than two.
SEQUENCE_HEADER = "zkconsumer.sequence"


class TaskOutput(NamedTuple):
    """The output of a task in a batch.

    Attributes:
        task: id of the task.
        sequence: number of records that the task has written in earlier batches.
        offsets: next offset of each partition of the task; see ``markers.encode_offsets``.
        blob: the records; see ``packing.to_blob``. None if there are none.
    """

    task: str
    sequence: int
    offsets: str
    blob: bytes | None


class ProcessingGuarantee(enum.Enum):
    """How often a record is in the output after a failure. Source: Kafka 3.9 StreamsConfig ``processing.guarantee``."""

    #: A batch that is repeated writes its output again, with the same sequence numbers in a header.
    AT_LEAST_ONCE = "at_least_once"
    #: A transaction for each task and batch: consumers with ``isolation.level=read_committed`` read each record once.
    EXACTLY_ONCE_V2 = "exactly_once_v2"


@dataclass(frozen=True, kw_only=True)
class SinkSettings:
    """What the sink needs of an application; pickled to the workers.

    Attributes:
        application_id: name of the application.
        guarantee: see ``ProcessingGuarantee``.
        client: settings of librdkafka with which it connects.
        producer: further settings of librdkafka's producer.
        has_sequence_headers: whether records get a header with the task and their sequence number.
        internal_topics: topics whose records do not get a sequence header, because only the application reads them.
        commits_to_kafka: whether offsets are committed to Kafka.
        fails_on_changed_output: see ``QuerySettings``.
        handler: ``ApplicationConfig.production_handler``.
        quarantine_topic: ``ApplicationConfig.quarantine_topic``.
    """

    application_id: str
    guarantee: ProcessingGuarantee
    client: Mapping[str, Any]
    producer: Mapping[str, Any]
    has_sequence_headers: bool
    internal_topics: frozenset[str]
    commits_to_kafka: bool
    fails_on_changed_output: bool
    handler: ErrorHandler
    quarantine_topic: str | None

    def encode(self) -> str:
        """Return the settings as an option of the sink."""
        return base64.b64encode(cloudpickle.dumps(self)).decode()

    @classmethod
    @functools.lru_cache(maxsize=16)  # the same in all batches of a query
    def decode(cls, text: str) -> SinkSettings:
        """Return the settings of ``encode``."""
        found = pickle.loads(base64.b64decode(text))
        assert isinstance(found, cls)
        return found


#: A record as arguments of ``confluent_kafka.Producer.produce``: topic, value, key, partition (-1 for the choice of the
#: producer), two callbacks, timestamp, and headers. The producer is faster with None than with an empty list.
RecordFields = tuple[str, bytes | None, bytes | None, int, None, None, int, list[Header] | None]


def read_records(output: TaskOutput, settings: SinkSettings) -> Iterator[RecordFields]:
    """Yield the records of an output, with the header ``SEQUENCE_HEADER`` if the settings require it."""
    if output.blob is None:
        return iter(())
    table = from_blob(output.blob)
    topics = _read_dictionary(table.column("topic"))
    values, keys, timestamps = (table.column(name).to_pylist() for name in ("value", "key", "timestamp"))
    partitions = table.column("partition").fill_null(-1).to_pylist()
    callbacks = [None] * table.num_rows
    headers = table.column("headers")
    pairs: Iterable[list[Header] | None] = itertools.repeat(None, table.num_rows)
    if headers.null_count < table.num_rows:
        pairs = map(_to_pairs, headers.to_pylist())
    internal = settings.internal_topics
    if settings.has_sequence_headers and not internal.issuperset(table.column("topic").unique().to_pylist()):
        task = output.task.encode()
        numbered = zip(topics, pairs, range(output.sequence, output.sequence + table.num_rows), strict=True)
        # A generator, because Python's garbage collector would visit a list of all headers several times.
        pairs = (
            found if topic in internal else [*(found or ()), (SEQUENCE_HEADER, b"%b:%d" % (task, number))]
            for topic, found, number in numbered
        )
    return zip(topics, values, keys, partitions, callbacks, callbacks, timestamps, pairs, strict=True)


def _read_dictionary(column: pa.ChunkedArray) -> list[str]:
    """Return the values of a dictionary column, which is slower with ``to_pylist``."""
    values: list[str] = []
    for chunk in column.chunks:
        values += map(chunk.dictionary.to_pylist().__getitem__, chunk.indices.to_pylist())
    return values


def _to_pairs(headers: Sequence[Mapping[str, Any]] | None) -> list[Header] | None:
    return [(header["key"], header["value"]) for header in headers] if headers else None
