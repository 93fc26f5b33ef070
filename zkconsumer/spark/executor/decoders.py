"""Decoders of users: from records to rows of their own, made in the tasks.

``.option("decoder", "package.module:Name")`` names a class that the driver and the executors can import. A
``RecordDecoder`` gets one record at a time, a ``BatchDecoder`` a whole Arrow batch.

Source: Flink 1.15 KafkaDeserializationSchema for ``open``, none to many rows and ``is_end_of_stream``.
"""

from __future__ import annotations

import functools
import importlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

import pyarrow as pa

from zkconsumer.errors import ConfigurationError, ZkConsumerError
from zkconsumer.message import MessageAndMetadata, TopicPartition

#: The type of the column that ``corrupt.record.policy=quarantine`` adds: null for what could be read.
CORRUPT = "struct<topic: string, partition: int, offset: bigint, key: binary, value: binary, error: string>"


class UndecodableRecordError(ZkConsumerError):
    """A user's decoder raised an exception for a record; the cause is attached."""


class _Decoder:
    """What both kinds have.

    Attributes:
        schema: the columns of the frame, as Spark's DDL or a ``StructType``.
    """

    schema: ClassVar[Any]

    def open(self, options: Mapping[str, str]) -> None:
        """Prepare, once per task; also once in the process that plans, where event times are asked for.

        Args:
            options: those of the query that begin with ``decoder.``, without that, names in lower case.
        """


class RecordDecoder(_Decoder, ABC):
    """Turns each record into rows."""

    @abstractmethod
    def decode(self, record: MessageAndMetadata) -> Iterable[tuple[Any, ...]] | None:
        """Return the rows of a record, tuples in the order of ``schema``; None or nothing where it has none.

        What is raised here is dealt with as ``corrupt.record.policy`` says.
        """

    def is_end_of_stream(self, row: tuple[Any, ...]) -> bool:
        """Whether the query ends after the batch that has this row; the row, and what follows it in its partition in
        this batch, is left out. A batch read (``spark.read``) has its ends by options, and does not ask.
        """
        del row
        return False

    def event_time(self, record: MessageAndMetadata) -> int | None:
        """Return the time of a record in milliseconds, for ``maxAlignmentLag``; None where it has none."""
        return record.timestamp if record.timestamp_type >= 0 else None


class BatchDecoder(_Decoder, ABC):
    """Turns Arrow batches in the layout of Spark's own source into batches of ``schema``.

    Attributes:
        wants_headers: whether the batches have the column ``headers``.
    """

    wants_headers: ClassVar[bool] = False

    @abstractmethod
    def decode(self, batch: pa.RecordBatch) -> pa.RecordBatch | Iterable[pa.RecordBatch] | None:
        """Return what a batch of one partition becomes; its columns are cast to the types of ``schema``."""


Decoder = RecordDecoder | BatchDecoder


def find(name: str) -> type[Decoder]:
    """Return the class that ``module:Name`` names.

    Raises:
        ConfigurationError: it cannot be imported, or is no decoder.
    """
    module, colon, path = name.partition(":")
    try:
        if not colon:
            raise ValueError("a colon is expected between module and class")
        found = functools.reduce(getattr, path.split("."), importlib.import_module(module))
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(
            f"option decoder = {name!r}: {error}; a class is expected that driver and executors can import, such as "
            "'package.module:Name'"
        ) from error
    if not isinstance(found, type) or not issubclass(found, RecordDecoder | BatchDecoder):
        raise ConfigurationError(
            f"option decoder = {name!r}: it is not a class made from zkconsumer.spark.RecordDecoder or BatchDecoder"
        )
    if not hasattr(found, "schema"):
        raise ConfigurationError(f"option decoder = {name!r}: the class has no attribute 'schema'")
    return found


def has_an_end(decoder: type[Decoder]) -> bool:
    """Whether a decoder may end the query."""
    return issubclass(decoder, RecordDecoder) and decoder.is_end_of_stream is not RecordDecoder.is_end_of_stream


def opened(name: str, options: Mapping[str, str]) -> Decoder:
    """Return a decoder that is ready."""
    decoder = find(name)()
    decoder.open(options)
    return decoder


def rows_of(decoder: RecordDecoder, record: MessageAndMetadata) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a record.

    Raises:
        UndecodableRecordError: names the place; what the decoder raised is its cause.
    """
    try:
        yield from decoder.decode(record) or ()
    except Exception as error:
        raise _undecodable(decoder, record, error) from error


def is_the_end(decoder: RecordDecoder, row: tuple[Any, ...], record: MessageAndMetadata) -> bool:
    """Whether the stream ends at a row of a record.

    Raises:
        UndecodableRecordError: as for ``rows_of``.
    """
    try:
        return bool(decoder.is_end_of_stream(row))
    except Exception as error:
        raise _undecodable(decoder, record, error) from error


def _undecodable(decoder: RecordDecoder, record: MessageAndMetadata, error: Exception) -> UndecodableRecordError:
    topic, partition, offset = record[:3]
    return UndecodableRecordError(
        f"topic {topic!r} partition {partition} offset {offset}: decoder {type(decoder).__qualname__} raised "
        f"{error!r}. Mend the decoder, or set corrupt.record.policy to skip or quarantine"
    )


def to_batch(rows: list[tuple[Any, ...]], schema: pa.Schema, place: TopicPartition) -> pa.RecordBatch:
    """Return rows as a batch.

    Raises:
        UndecodableRecordError: a row does not fit the schema.
    """
    try:
        columns = zip(*rows, strict=True) if rows else ([] for _ in schema)
        arrays = [pa.array(list(column), field.type) for column, field in zip(columns, schema, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise UndecodableRecordError(
            f"topic {place.topic!r} partition {place.partition}: rows of the decoder do not fit its schema "
            f"({', '.join(schema.names)}): {error}"
        ) from error
