"""Converts fetched log chunks to Arrow batches with the schema of the query's DataFrame.

``corrupt.record.policy`` determines what happens to corrupt record batches and to records that the decoder rejects: the
task fails, they are skipped, or each becomes a row in which only the column ``corrupt`` is set.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from zkconsumer.errors import ConfigurationError, CorruptRecordError
from zkconsumer.fetcher.arrow import ArrowReader, find_clamped
from zkconsumer.fetcher.chunk import Chunk
from zkconsumer.fetcher.corrupt_records import log_skipped
from zkconsumer.fetcher.decode import read_messages
from zkconsumer.log import get_logger
from zkconsumer.message import MessageAndMetadata, TopicPartition
from zkconsumer.spark.executor import decoders
from zkconsumer.spark.executor.decoders import BatchDecoder, PlannedRange, RecordDecoder, UndecodableRecordError
from zkconsumer.spark.executor.row_schema import CORRUPT_FIELD, RowSchema

#: Maximum number of rows per Arrow batch from a record decoder, and maximum number of records to decode at a time.
_ROWS, _RECORDS = 10_000, 1024

#: A rejected record: the error, and the record's topic, partition, offset, key and value.
_Rejected = tuple[UndecodableRecordError, tuple[Any, ...]]

#: Columns of a batch that identify and contain a rejected record, in the order of the fields of ``CORRUPT_FIELD``.
_RECORD_COLUMNS = ["topic", "partition", "offset", "key", "value"]


class RowReader(ABC):
    """Converts the chunks of one task to rows.

    Attributes:
        has_ended: whether the last chunk contained the end of the stream. The rest of the chunk's partition must
            not be read.
        rejected: number of skipped records that the decoder rejected, by partition (``corrupt.record.policy=skip``).
    """

    def __init__(self, row_schema: RowSchema, check_crcs: bool) -> None:
        self.has_ended = False
        self.rejected: Counter[TopicPartition] = Counter()
        self._policy = row_schema.policy
        self._schema = row_schema.schema
        #: The schema without the column ``corrupt``.
        self._valid_schema = row_schema.schema
        if row_schema.policy == "quarantine":
            self._valid_schema = row_schema.schema.remove(len(row_schema.schema) - 1)
        self._check_crcs = check_crcs
        self._log = get_logger("zkconsumer.spark")

    @abstractmethod
    def read(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a chunk.

        Raises:
            CorruptRecordError: a record batch is corrupt; the rows before it were yielded.
            UndecodableRecordError: the decoder rejected a record, and the policy is ``raise``.
        """

    def read_range(self, planned: PlannedRange) -> Iterator[pa.RecordBatch]:
        """Yield the rows for a partition's range in the batch; see ``BatchDecoder.decode_range``.

        Raises:
            ConfigurationError: the decoder is not a ``BatchDecoder``.
        """
        raise ConfigurationError(
            f"option plannedRanges requires a subclass of BatchDecoder as decoder (partition {planned.partition})"
        )

    def read_corrupt(self, partition: TopicPartition, error: CorruptRecordError) -> Iterator[pa.RecordBatch]:
        """Yield the rows that replace a corrupt record batch.

        Raises:
            CorruptRecordError: the policy is ``raise``, or the last offset of the record batch is unknown.
        """
        if self._policy == "raise" or error.after < 0:
            raise error
        log_skipped(self._log, partition, error)
        if self._policy == "quarantine":
            yield self._create_corrupt_rows([(*partition, error.offset, None, error.entry, str(error))])

    def _read_rejected(self, rejected: list[_Rejected]) -> Iterator[pa.RecordBatch]:
        """Yield the rows that replace rejected records; see ``corrupt.record.policy``."""
        if not rejected:
            return
        error, (topic, partition, offset, *_) = rejected[0]
        if self._policy == "raise":
            raise error
        if self._policy == "skip":
            self.rejected[TopicPartition(topic, partition)] += len(rejected)
            self._log.error(
                "undecodable_records_skipped",
                topic=topic,
                partition=partition,
                offset=offset,
                records=len(rejected),
                error=str(error),
            )
            return
        yield self._create_corrupt_rows([(*record, str(error)) for error, record in rejected])

    def _separate_clamped(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, list[_Rejected]]:
        """Separate the records whose timestamps the column cannot hold, if corrupt records are quarantined.

        Args:
            batch: a batch with the columns of Spark's Kafka source.

        Returns:
            The other records, and the separated ones.
        """
        is_clamped = find_clamped(batch) if self._policy == "quarantine" else None
        if is_clamped is None:
            return batch, []
        clamped = batch.select(_RECORD_COLUMNS).filter(is_clamped).to_pylist()
        valid = batch.filter(pc.invert(is_clamped))
        error = UndecodableRecordError(
            "the timestamp is outside the range of the column 'timestamp' (64-bit microseconds)"
        )
        return valid, [(error, tuple(record[name] for name in _RECORD_COLUMNS)) for record in clamped]

    def _create_corrupt_rows(self, found: list[tuple[Any, ...]]) -> pa.RecordBatch:
        """Return rows in which only the column ``corrupt`` is set.

        Args:
            found: field values of the column ``corrupt``, one tuple per row.
        """
        names = [field.name for field in CORRUPT_FIELD.type]
        corrupt = pa.array([dict(zip(names, values, strict=True)) for values in found], CORRUPT_FIELD.type)
        nulls = [pa.nulls(len(found), field.type) for field in self._valid_schema]
        return pa.RecordBatch.from_arrays([*nulls, corrupt], schema=self._schema)

    def _add_corrupt_column(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return ``batch``, with an additional null column ``corrupt`` if the schema has this column."""
        if self._valid_schema is self._schema:
            return batch
        nulls = pa.nulls(batch.num_rows, CORRUPT_FIELD.type)
        return pa.RecordBatch.from_arrays([*batch.columns, nulls], schema=self._schema)


class _ColumnReader(RowReader):
    """Reads rows with the columns of Spark's Kafka source."""

    def __init__(self, row_schema: RowSchema, check_crcs: bool) -> None:
        super().__init__(row_schema, check_crcs)
        self._names = self._valid_schema.names
        self._reader = ArrowReader(include_headers="headers" in self._names, check_crcs=check_crcs)

    def read(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        """See ``RowReader.read``."""
        for whole, _ in self._reader.read(chunk):
            batch, rejected = self._separate_clamped(whole)
            yield self._add_corrupt_column(batch if batch.schema.names == self._names else batch.select(self._names))
            yield from self._read_rejected(rejected)


class _RecordReader(RowReader):
    """Reads rows with a ``RecordDecoder``."""

    def __init__(self, row_schema: RowSchema, check_crcs: bool, decoder: RecordDecoder, can_end: bool) -> None:
        super().__init__(row_schema, check_crcs)
        self._decoder = decoder
        self._can_end = can_end

    def read(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        """See ``RowReader.read``. Rows after the end of the stream are discarded."""
        self.has_ended = False
        for records, _ in read_messages(chunk, check_crcs=self._check_crcs, max_rows=_RECORDS):
            rows: list[tuple[Any, ...]] = []
            rejected: list[_Rejected] = []
            for record in records:
                try:
                    rows += self._decode_record(record)
                except UndecodableRecordError as error:
                    rejected.append((error, record[:5]))
                if self.has_ended:
                    break
                while len(rows) >= _ROWS:
                    yield from self._create_batch(rows[:_ROWS], chunk.partition)
                    del rows[:_ROWS]
            yield from self._create_batch(rows, chunk.partition)
            yield from self._read_rejected(rejected)
            if self.has_ended:
                return

    def _decode_record(self, record: MessageAndMetadata) -> list[tuple[Any, ...]]:
        rows = list(decoders.decode_record(self._decoder, record))
        if self._policy != "raise":  # reject only this record if its rows do not match the schema
            decoders.to_batch(rows, self._valid_schema, TopicPartition(*record[:2]))
        if self._can_end:
            for index, row in enumerate(rows):
                if decoders.is_end_of_stream(self._decoder, row, record):
                    self.has_ended = True
                    return rows[:index]
        return rows

    def _create_batch(self, rows: list[tuple[Any, ...]], partition: TopicPartition) -> Iterator[pa.RecordBatch]:
        if rows:
            yield self._add_corrupt_column(decoders.to_batch(rows, self._valid_schema, partition))


class _BatchReader(RowReader):
    """Reads rows with a ``BatchDecoder``."""

    def __init__(self, row_schema: RowSchema, check_crcs: bool, decoder: BatchDecoder) -> None:
        super().__init__(row_schema, check_crcs)
        self._decoder = decoder
        self._reader = ArrowReader(include_headers=decoder.wants_headers, check_crcs=check_crcs)

    def read(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        """See ``RowReader.read``."""
        for whole, _ in self._reader.read(chunk):
            batch, rejected = self._separate_clamped(whole)
            for decoded in self._decode(batch, rejected):
                yield self._add_corrupt_column(decoded)
            yield from self._read_rejected(rejected)

    def read_range(self, planned: PlannedRange) -> Iterator[pa.RecordBatch]:
        """See ``RowReader.read_range``."""
        decoded = self._decoder.decode_range(planned)
        if decoded is not None:
            table = pa.Table.from_batches([decoded.select(self._valid_schema.names)])
            yield from map(self._add_corrupt_column, table.cast(self._valid_schema).to_batches())

    def _decode(self, batch: pa.RecordBatch, rejected: list[_Rejected]) -> list[pa.RecordBatch]:
        """Decode a batch. If the decoder rejects it, its halves are decoded to find the rejected records."""
        if not batch.num_rows:  # all records were separated
            return []
        try:
            result = self._decoder.decode(batch)
            decoded = [result] if isinstance(result, pa.RecordBatch) else list(result or ())
            if not decoded:
                return []
            for part in decoded:
                if not isinstance(part, pa.RecordBatch):
                    raise TypeError(
                        "decode() must return a RecordBatch, an iterable of RecordBatch objects or None, "
                        f"got {type(part).__name__} in {type(result).__name__}"
                    )
            table = pa.Table.from_batches([part.select(self._valid_schema.names) for part in decoded])
            return list(table.cast(self._valid_schema).to_batches())
        except MemoryError:
            raise
        except Exception as error:
            if not self._decoder.rejects_records:
                raise
            if batch.num_rows > 1 and self._policy != "raise":
                middle = batch.num_rows // 2
                return self._decode(batch.slice(0, middle), rejected) + self._decode(batch.slice(middle), rejected)
            rejected.append(self._reject(batch, error))
            return []

    def _reject(self, batch: pa.RecordBatch, cause: Exception) -> _Rejected:
        records = batch.select(_RECORD_COLUMNS)  # Python cannot represent all timestamps
        first, last = (records.slice(index, 1).to_pylist()[0] for index in (0, batch.num_rows - 1))
        place = f"topic {first['topic']!r} partition {first['partition']} offsets {first['offset']} to {last['offset']}"
        error = decoders.undecodable_error(place, self._decoder, cause)
        error.__cause__ = cause
        return error, tuple(first[name] for name in _RECORD_COLUMNS)


def create_reader(row_schema: RowSchema, *, check_crcs: bool, can_end: bool) -> RowReader:
    """Create the row reader for one task.

    Args:
        check_crcs: whether to verify record batch checksums.
        can_end: whether to call the decoder's ``is_end_of_stream``.
    """
    if row_schema.decoder is None:
        return _ColumnReader(row_schema, check_crcs)
    decoder = decoders.open_decoder(row_schema.decoder, row_schema.options)
    if isinstance(decoder, RecordDecoder):
        return _RecordReader(row_schema, check_crcs, decoder, can_end)
    return _BatchReader(row_schema, check_crcs, decoder)
