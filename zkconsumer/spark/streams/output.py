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


#: Topic, partition (-1 for the choice of the producer), timestamp, key, value and headers of a record.
RecordFields = tuple[str, int, int, bytes | None, bytes | None, list[Header]]


def read_records(output: TaskOutput, *, has_sequence_headers: bool) -> Iterator[RecordFields]:
    """Yield the records of an output.

    Args:
        output: the output.
        has_sequence_headers: whether to add a header with the task and the sequence number of the record.
    """
    if output.blob is None:
        return iter(())
    table = from_blob(output.blob)
    columns = (
        _read_dictionary(table.column("topic")),
        table.column("partition").fill_null(-1).to_pylist(),
        *(table.column(name).to_pylist() for name in ("timestamp", "key", "value")),
    )
    headers = table.column("headers")
    pairs: Iterable[list[Header]] = itertools.repeat([], table.num_rows)
    if headers.null_count < table.num_rows:
        pairs = map(_to_pairs, headers.to_pylist())
    if has_sequence_headers:
        task = output.task.encode()
        numbered = zip(pairs, range(output.sequence, output.sequence + table.num_rows), strict=True)
        # A generator, because Python's garbage collector would visit a list of all headers several times.
        pairs = ([*of_record, (SEQUENCE_HEADER, b"%b:%d" % (task, number))] for of_record, number in numbered)
    return zip(*columns, pairs, strict=True)


def _read_dictionary(column: pa.ChunkedArray) -> list[str]:
    """Return the values of a dictionary column, which is slower with ``to_pylist``."""
    values: list[str] = []
    for chunk in column.chunks:
        values += map(chunk.dictionary.to_pylist().__getitem__, chunk.indices.to_pylist())
    return values


def _to_pairs(headers: Sequence[Mapping[str, Any]] | None) -> list[Header]:
    return [(header["key"], header["value"]) for header in headers] if headers else []
