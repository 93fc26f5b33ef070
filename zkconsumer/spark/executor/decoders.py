"""Interface for user-defined decoders, which convert records to rows with a custom schema.

``.option("decoder", "package.module:Name")`` names a class that the driver and the executors can import. A
``RecordDecoder`` receives one record at a time, a ``BatchDecoder`` one Arrow batch.

Source: Flink 1.15 KafkaDeserializationSchema for ``open``, zero or more rows per record, and ``is_end_of_stream``.
"""

from __future__ import annotations

import functools
import importlib
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import pyarrow as pa

from zkconsumer.errors import ConfigurationError, ZkConsumerError
from zkconsumer.message import MessageAndMetadata, TopicPartition

if TYPE_CHECKING:
    from zkconsumer.spark.executor.fetch_task import FetchTask

#: Type of the column that ``corrupt.record.policy=quarantine`` adds. The column is null in rows of valid records.
CORRUPT = "struct<topic: string, partition: int, offset: bigint, key: binary, value: binary, error: string>"


class UndecodableRecordError(ZkConsumerError):
    """Raised when a decoder raises an exception, or returns rows that do not match its schema."""


class _Decoder:
    """Common base class of ``RecordDecoder`` and ``BatchDecoder``.

    Attributes:
        schema: schema of the DataFrame, as a DDL string or a ``StructType``.
    """

    schema: ClassVar[Any]

    def open(self, options: Mapping[str, str]) -> None:
        """Initialize the decoder. Called once per task, and in the planning process if ``maxAlignmentLag`` is set.

        Args:
            options: query options that start with ``decoder.``, without this prefix and with lowercase names.
        """


class RecordDecoder(_Decoder, ABC):
    """Decodes one record at a time."""

    @abstractmethod
    def decode(self, record: MessageAndMetadata) -> Iterable[tuple[Any, ...]] | None:
        """Return the rows of a record: tuples with the fields in ``schema`` order, or None for no rows.

        ``corrupt.record.policy`` determines what happens if this method raises an exception.
        """

    def is_end_of_stream(self, row: tuple[Any, ...]) -> bool:
        """Return whether ``row`` marks the end of the stream. If so, the query ends after the current batch.

        The row, and later rows of the same partition in this batch, are discarded. Not called for batch reads
        (``spark.read``), which stop at their ending offsets.
        """
        del row
        return False

    def event_time(self, record: MessageAndMetadata) -> int | None:
        """Return a record's event time in milliseconds since the epoch, or None if the record has no event time.

        Used by ``maxAlignmentLag``.
        """
        return record.timestamp if record.timestamp_type >= 0 else None


class PlannedRange(NamedTuple):
    """The range of a partition in a batch. If Spark repeats the batch, the range is the same.

    Attributes:
        partition: topic and partition number.
        until: end offset of the range, exclusive.
        lag: number of offsets from ``until`` to the log end offset when the batch was planned.
        planned_ms: time when the batch was planned, in milliseconds since the epoch.
        fetch: with ``plannedRanges=only``, the task that fetches the range; None if the range is empty. Pass it to
            ``zkconsumer.spark.executor.reader.read``.
    """

    partition: TopicPartition
    until: int
    lag: int
    planned_ms: int
    fetch: FetchTask | None = None


class BatchDecoder(_Decoder, ABC):
    """Decodes one Arrow batch at a time.

    Input batches have the columns of Spark's Kafka source. Decoded batches have the columns of ``schema``.

    Attributes:
        wants_headers: whether input batches contain the column ``headers``.
        rejects_records: whether an exception of ``decode`` means that a record is invalid, so that
            ``corrupt.record.policy`` determines what happens. If False, the task fails with the exception.
    """

    wants_headers: ClassVar[bool] = False
    rejects_records: ClassVar[bool] = True

    @abstractmethod
    def decode(self, batch: pa.RecordBatch) -> pa.RecordBatch | Iterable[pa.RecordBatch] | None:
        """Return the decoded rows of a batch from one partition, or None for no rows.

        The columns are cast to the types of ``schema``.
        """

    def decode_range(self, planned: PlannedRange) -> pa.RecordBatch | None:
        """Return rows for a partition's range in a batch, or None for no rows; see the option ``plannedRanges``.

        One task calls this method for all partitions of a batch, including those with an empty range.
        """
        del planned
        return None


#: Decoder whose class is named by the option ``decoder``.
RowDecoder = RecordDecoder | BatchDecoder


def load(name: str) -> type[RowDecoder]:
    """Import a decoder class.

    Args:
        name: class name, as ``package.module:Name``.

    Raises:
        ConfigurationError: the class cannot be imported, or is not a decoder class with a schema.
    """
    module, colon, path = name.partition(":")
    if not colon:
        raise ConfigurationError(f"option 'decoder' must be 'package.module:Name', got {name!r}")
    try:
        found = functools.reduce(getattr, path.split("."), _import(module))
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(
            f"option decoder = {name!r}: could not import the class: {error}; check the name, and that the module is "
            "installed on the driver and the executors, or was added with --py-files or addPyFile before load()"
        ) from error
    if not isinstance(found, type) or not issubclass(found, RecordDecoder | BatchDecoder):
        raise ConfigurationError(
            f"option decoder = {name!r}: {path} must be a subclass of zkconsumer.spark.RecordDecoder or BatchDecoder"
        )
    if not hasattr(found, "schema"):
        raise ConfigurationError(
            f"option decoder = {name!r}: {path} must have a class attribute 'schema', such as 'word string, length int'"
        )
    return found


def _import(module: str) -> ModuleType:
    """Import a module. If it is not found, search the archives that were added after the source was registered."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        if not _add_archives():
            raise
        return importlib.import_module(module)


def _add_archives() -> bool:
    """Add the archives among Spark's files to ``sys.path``; return whether there are new ones.

    ``addPyFile`` copies all files to one directory. Spark's Python processes search only those archives in it that had
    been added when the data source was registered.
    """
    from pyspark import SparkContext, SparkFiles  # decoders can be tested without pyspark

    if not SparkFiles._is_running_on_worker:
        return False
    files = sorted(Path(SparkFiles.getRootDirectory()).glob("*"))
    added = [
        str(file)
        for file in files
        if file.suffix.lower() in SparkContext.PACKAGE_EXTENSIONS and str(file) not in sys.path
    ]
    sys.path += added
    importlib.invalidate_caches()
    return bool(added)


def can_end_stream(decoder: type[RowDecoder]) -> bool:
    """Return whether a decoder class overrides ``is_end_of_stream``."""
    return issubclass(decoder, RecordDecoder) and decoder.is_end_of_stream is not RecordDecoder.is_end_of_stream


def open_decoder(name: str, options: Mapping[str, str]) -> RowDecoder:
    """Create and initialize a decoder."""
    decoder = load(name)()
    decoder.open(options)
    return decoder


def decode_record(decoder: RecordDecoder, record: MessageAndMetadata) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a record.

    Raises:
        UndecodableRecordError: the decoder raised an exception (set as ``__cause__``), or did not return tuples.
        MemoryError: out of memory; the record itself may be valid.
    """
    try:
        rows = decoder.decode(record)
        for row in _check_rows(rows):
            if isinstance(row, MessageAndMetadata):
                row = tuple(row)
            elif not isinstance(row, tuple | list):
                raise TypeError(f"decode() must return rows that are tuples, got a row of type {type(row).__name__}")
            yield row
    except MemoryError:
        raise
    except Exception as error:
        raise _undecodable_record_error(decoder, record, error) from error


def _check_rows(rows: Iterable[tuple[Any, ...]] | None) -> Iterable[tuple[Any, ...]]:
    """Return the rows of a decoder result; reject strings and mappings, whose items are not rows."""
    if isinstance(rows, str | bytes | bytearray | Mapping):
        raise TypeError(f"decode() must return None or an iterable of tuples, got {type(rows).__name__}")
    return rows or ()


def is_end_of_stream(decoder: RecordDecoder, row: tuple[Any, ...], record: MessageAndMetadata) -> bool:
    """Return whether the decoder considers ``row`` the end of the stream.

    Raises:
        UndecodableRecordError: the decoder raised an exception (set as ``__cause__``).
    """
    try:
        return bool(decoder.is_end_of_stream(row))
    except MemoryError:
        raise
    except Exception as error:
        raise _undecodable_record_error(decoder, record, error) from error


def _undecodable_record_error(
    decoder: RecordDecoder, record: MessageAndMetadata, error: Exception
) -> UndecodableRecordError:
    topic, partition, offset = record[:3]
    return undecodable_error(f"topic {topic!r} partition {partition} offset {offset}", decoder, error)


def undecodable_error(records: str, decoder: RowDecoder, error: Exception) -> UndecodableRecordError:
    """Return the error for an exception that a decoder raised.

    Args:
        records: topic, partition and offsets of the records, for the message.
    """
    return UndecodableRecordError(
        f"{records}: decoder {type(decoder).__qualname__} raised {error!r}. To continue after such records, set "
        "corrupt.record.policy to 'skip' or 'quarantine'"
    )


def to_batch(rows: list[tuple[Any, ...]], schema: pa.Schema, partition: TopicPartition) -> pa.RecordBatch:
    """Convert rows of a partition to an Arrow batch.

    Raises:
        UndecodableRecordError: a row does not match the schema.
    """
    try:
        columns = zip(*rows, strict=True) if rows else ([] for _ in schema)
        arrays = [pa.array(list(column), field.type) for column, field in zip(columns, schema, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
    except MemoryError:  # base class of pa.ArrowMemoryError
        raise
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise UndecodableRecordError(
            f"topic {partition.topic!r} partition {partition.partition}: the decoder's rows do not match its schema "
            f"({', '.join(schema.names)}): {error}"
        ) from error
