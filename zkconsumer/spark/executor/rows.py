"""From chunks of the log to Arrow batches in the layout of a query's frame: its columns, or what its decoder makes.

What cannot be read is dealt with as ``corrupt.record.policy`` says: it ends the task, is left out, or becomes a row of
which the column ``corrupt`` alone is set.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from zkconsumer.errors import CorruptRecordError
from zkconsumer.fetcher.arrow import ArrowReader
from zkconsumer.fetcher.chunk import Chunk
from zkconsumer.fetcher.decode import log_skipped, read_messages
from zkconsumer.log import get_logger
from zkconsumer.message import ARROW_SCHEMA_WITH_HEADERS, MessageAndMetadata, TopicPartition
from zkconsumer.spark.executor import decoders
from zkconsumer.spark.executor.decoders import BatchDecoder, RecordDecoder, UndecodableRecordError

#: Rows of a batch that a decoder has made, and records that are looked at together.
_ROWS, _RECORDS = 10_000, 1024

CORRUPT_FIELD = pa.field(
    "corrupt",
    pa.struct(
        [
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("error", pa.string()),
        ]
    ),
)


@dataclass(frozen=True)
class Layout:
    """How the rows of a query are made; travels with each task.

    Attributes:
        schema: of the frame, with the column ``corrupt`` last where there is one.
        decoder: the name of a user's class, or None.
        options: of the decoder.
        policy: ``raise``, ``skip`` or ``quarantine``.
    """

    schema: pa.Schema
    decoder: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    policy: str = "raise"

    @classmethod
    def of(cls, columns: tuple[str, ...]) -> Layout:
        """Return that of some columns of Spark's own source."""
        return cls(pa.schema([ARROW_SCHEMA_WITH_HEADERS.field(name) for name in columns]))

    def rows(self, *, check_crcs: bool, ends: bool) -> Rows:
        """Return what makes the rows of one task.

        Args:
            ends: whether a decoder may end the stream; else the row that would is one like the others.
        """
        if self.decoder is None:
            return _Columns(self, check_crcs)
        decoder = decoders.opened(self.decoder, self.options)
        if isinstance(decoder, RecordDecoder):
            return _Records(self, check_crcs, decoder, ends)
        return _Batches(self, check_crcs, decoder)


class Rows(ABC):
    """Makes the rows of one task.

    Attributes:
        has_ended: a decoder has seen the end of the stream in the chunk read last; nothing behind it is wanted.
    """

    def __init__(self, layout: Layout, check_crcs: bool) -> None:
        self.has_ended = False
        self._policy = layout.policy
        self._schema = layout.schema
        self._good = layout.schema.remove(len(layout.schema) - 1) if layout.policy == "quarantine" else layout.schema
        self._check_crcs = check_crcs
        self._log = get_logger("zkconsumer.spark")

    @abstractmethod
    def read(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a chunk.

        Raises:
            CorruptRecordError: what stands before the damage was yielded.
            UndecodableRecordError: of a user's decoder, where that is to end the task.
        """

    def damaged(self, partition: TopicPartition, error: CorruptRecordError) -> Iterator[pa.RecordBatch]:
        """Yield what becomes of an entry of the log that cannot be read.

        Raises:
            CorruptRecordError: that it is to end the task, or nobody can tell where it ends.
        """
        if self._policy == "raise" or error.after < 0:
            raise error
        log_skipped(self._log, partition, error)
        if self._policy == "quarantine":
            yield self._quarantined([(*partition, error.offset, None, error.entry, str(error))])

    def _undecodable(self, errors: list[tuple[UndecodableRecordError, Any]]) -> Iterator[pa.RecordBatch]:
        """Yield what becomes of records that a decoder cannot read, each with (topic, ..., key, value)."""
        if not errors:
            return
        if self._policy == "raise":
            raise errors[0][0]
        if self._policy == "skip":
            first, _ = errors[0]
            self._log.error("records_left_out", records=len(errors), first=str(first), cause=repr(first.__cause__))
            return
        yield self._quarantined([(*place, str(error)) for error, place in errors])

    def _quarantined(self, found: list[tuple[Any, ...]]) -> pa.RecordBatch:
        names = [field.name for field in CORRUPT_FIELD.type]
        what = pa.array([dict(zip(names, values, strict=True)) for values in found], CORRUPT_FIELD.type)
        nothing = [pa.nulls(len(found), field.type) for field in self._good]
        return pa.RecordBatch.from_arrays([*nothing, what], schema=self._schema)

    def _whole(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Add the column ``corrupt`` where there is one."""
        if self._good is self._schema:
            return batch
        nothing = pa.nulls(batch.num_rows, CORRUPT_FIELD.type)
        return pa.RecordBatch.from_arrays([*batch.columns, nothing], schema=self._schema)


class _Columns(Rows):
    """Columns of Spark's own source."""

    def __init__(self, layout: Layout, check_crcs: bool) -> None:
        super().__init__(layout, check_crcs)
        self._names = self._good.names
        self._reader = ArrowReader(include_headers="headers" in self._names, check_crcs=check_crcs)

    def read(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        """See ``Rows``."""
        for batch, _ in self._reader.read(chunk):
            yield self._whole(batch if batch.schema.names == self._names else batch.select(self._names))


class _Records(Rows):
    """Rows of a decoder that gets one record at a time."""

    def __init__(self, layout: Layout, check_crcs: bool, decoder: RecordDecoder, ends: bool) -> None:
        super().__init__(layout, check_crcs)
        self._decoder = decoder
        self._may_end = ends

    def read(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        """See ``Rows``; nothing behind the end of the stream."""
        self.has_ended = False
        for records, _ in read_messages(chunk, check_crcs=self._check_crcs, max_rows=_RECORDS):
            rows: list[tuple[Any, ...]] = []
            errors: list[tuple[UndecodableRecordError, Any]] = []
            for record in records:
                try:
                    rows += self._rows(record)
                except UndecodableRecordError as error:
                    errors.append((error, record[:5]))
                if self.has_ended:
                    break
                while len(rows) >= _ROWS:
                    yield from self._batch(rows[:_ROWS], chunk.partition)
                    del rows[:_ROWS]
            yield from self._batch(rows, chunk.partition)
            yield from self._undecodable(errors)
            if self.has_ended:
                return

    def _rows(self, record: MessageAndMetadata) -> list[tuple[Any, ...]]:
        rows = list(decoders.rows_of(self._decoder, record))
        if self._policy != "raise":  # so that a row that does not fit is told from those that do
            decoders.to_batch(rows, self._good, TopicPartition(*record[:2]))
        if self._may_end:
            for at, row in enumerate(rows):
                if decoders.is_the_end(self._decoder, row, record):
                    self.has_ended = True
                    return rows[:at]
        return rows

    def _batch(self, rows: list[tuple[Any, ...]], partition: TopicPartition) -> Iterator[pa.RecordBatch]:
        if rows:
            yield self._whole(decoders.to_batch(rows, self._good, partition))


class _Batches(Rows):
    """Rows of a decoder that gets Arrow batches."""

    def __init__(self, layout: Layout, check_crcs: bool, decoder: BatchDecoder) -> None:
        super().__init__(layout, check_crcs)
        self._decoder = decoder
        self._reader = ArrowReader(include_headers=decoder.wants_headers, check_crcs=check_crcs)

    def read(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        """See ``Rows``."""
        for batch, _ in self._reader.read(chunk):
            errors: list[tuple[UndecodableRecordError, Any]] = []
            for made in self._decoded(batch, errors):
                yield self._whole(made)
            yield from self._undecodable(errors)

    def _decoded(self, batch: pa.RecordBatch, errors: list[Any]) -> list[pa.RecordBatch]:
        """Return what a batch becomes; what fails is halved, until single records are left that fail."""
        try:
            made = self._decoder.decode(batch)
            found = [made] if isinstance(made, pa.RecordBatch) else list(made or ())
            if not found:
                return []
            table = pa.Table.from_batches([one.select(self._good.names) for one in found])
            return list(table.cast(self._good).to_batches())
        except Exception as error:
            if batch.num_rows > 1 and self._policy != "raise":
                middle = batch.num_rows // 2
                return self._decoded(batch.slice(0, middle), errors) + self._decoded(batch.slice(middle), errors)
            errors.append(self._failure(batch, error))
            return []

    def _failure(self, batch: pa.RecordBatch, error: Exception) -> tuple[UndecodableRecordError, Any]:
        first, last = (batch.slice(at, 1).to_pylist()[0] for at in (0, batch.num_rows - 1))
        found = UndecodableRecordError(
            f"topic {first['topic']!r} partition {first['partition']} offsets {first['offset']} to {last['offset']}: "
            f"decoder {type(self._decoder).__qualname__} raised {error!r}. Mend the decoder, or set "
            "corrupt.record.policy to skip or quarantine"
        )
        found.__cause__ = error
        return found, tuple(first[name] for name in ("topic", "partition", "offset", "key", "value"))
