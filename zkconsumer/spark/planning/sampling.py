"""Samples the next records of partitions to determine their event times and sizes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from zkconsumer.broker.log_offsets import LogOffsets
from zkconsumer.errors import CorruptRecordError, RetriableError
from zkconsumer.fetcher.batch_headers import make_chunk
from zkconsumer.fetcher.chunk import Chunk
from zkconsumer.fetcher.decode import read_messages
from zkconsumer.message import MessageAndMetadata, TopicPartition

#: Default maximum sample size per partition, in bytes.
SAMPLE_BYTES = 64 << 10

#: Maximum number of fetches for one sample. Several are needed if a fetch returns only transaction markers
#: or aborted records.
_FETCHES = 8

#: Maximum number of bytes to fetch if a broker does not return a record batch that is larger than a sample.
_LARGE_BATCH_BYTES = 16 << 20

#: Maximum number of records that are read at once.
_BLOCK_RECORDS = 1024

#: Number of records that is enough for a sample of record sizes. A compressed record batch can contain a million.
SIZE_RECORDS = _BLOCK_RECORDS

#: Minimum seconds between two samples of record sizes for progress reports.
_SIZE_INTERVAL_S = 10.0

#: Maximum number of partitions in a sample for progress reports.
_SIZE_PARTITIONS = 4


@dataclass(frozen=True, slots=True)
class Sample:
    """Consecutive records of a partition.

    Attributes:
        start: first offset of the sample.
        until: next offset after the sample. Some offsets between ``start`` and ``until`` may have no record, for
            example the offsets of transaction markers.
        records: the records, at least one.
    """

    start: int
    until: int
    records: Sequence[MessageAndMetadata]

    @property
    def bytes_per_offset(self) -> float:
        """Average size of key, value and headers per offset, in bytes."""
        return sum(map(_measure, self.records)) / max(1, self.until - self.start)


def sample(
    logs: LogOffsets,
    positions: Mapping[TopicPartition, int],
    size: int = SAMPLE_BYTES,
    *,
    min_records: int | None = None,
) -> dict[TopicPartition, Sample]:
    """Return the next records of each partition. Partitions whose next record is missing or corrupt are omitted.

    Args:
        size: maximum bytes to fetch from each partition; a larger first record batch is fetched as a whole.
        min_records: number of records of each partition after which reading ends; a sample can have up to 1,023 more.
            None to read all fetched records.

    Raises:
        RetriableError: a partition has no leader, or a leader did not respond.
    """
    found: dict[TopicPartition, Sample] = {}
    wanted = dict(positions)
    for _ in range(_FETCHES):
        chunks = _fetch_chunks(logs, wanted, size) if wanted else {}
        wanted = {}
        for partition, chunk in chunks.items():
            try:
                records, until = _read(chunk, min_records)
            except CorruptRecordError:
                continue  # the task that reads the corrupt record reports the error
            if records:
                found[partition] = Sample(positions[partition], until, records)
            else:  # the chunk has only transaction markers or aborted records
                wanted[partition] = chunk.next_offset
    return found


class RecordSizes:
    """Samples the record sizes of a query for its progress reports. Used by Spark's thread.

    Attributes:
        bytes_per_record: average size of a record in the last sample, in bytes; 0 if there is none.
    """

    def __init__(self, logs: LogOffsets) -> None:
        self.bytes_per_record = 0.0
        self._logs = logs
        self._sampled_at = -_SIZE_INTERVAL_S

    def sample(self, positions: Mapping[TopicPartition, int]) -> None:
        """Sample the sizes of the next records, unless the last sample is recent."""
        now = time.monotonic()
        if positions and now > self._sampled_at + _SIZE_INTERVAL_S:
            self._sampled_at = now
            with contextlib.suppress(RetriableError):  # the size is informational
                some = dict(list(positions.items())[:_SIZE_PARTITIONS])
                samples = sample(self._logs, some, min_records=SIZE_RECORDS).values()
                offsets = sum(one.until - one.start for one in samples)
                size = sum(one.bytes_per_offset * (one.until - one.start) for one in samples)
                self.bytes_per_record = size / max(1, offsets)


def _measure(record: MessageAndMetadata) -> int:
    size = len(record.key or b"") + len(record.value or b"")
    return size + sum(len(name.encode()) + len(value or b"") for name, value in record.headers)


def _read(chunk: Chunk, min_records: int | None) -> tuple[list[MessageAndMetadata], int]:
    """Return the first records of a chunk, and the next offset after them; that after the chunk if they are all."""
    records: list[MessageAndMetadata] = []
    for rows, until in read_messages(chunk, max_rows=_BLOCK_RECORDS, max_slice_rows=_BLOCK_RECORDS):
        records.extend(rows)
        if min_records is not None and len(records) >= min_records:
            return records, until
    return records, chunk.next_offset


def _fetch_chunks(logs: LogOffsets, positions: Mapping[TopicPartition, int], size: int) -> dict[TopicPartition, Chunk]:
    """Fetch a chunk at each position. Partitions without one are omitted."""
    chunks: dict[TopicPartition, Chunk] = {}
    answers = logs.fetch(positions, size)
    for partition, position in positions.items():
        if (data := answers.get(partition)) is None:
            continue
        chunk = make_chunk(partition, position, data.records, aborted=data.aborted)
        if chunk.next_offset == position and data.high_watermark > position:
            chunk = _fetch_large_batch(logs, partition, position, size)
        if chunk.next_offset > position:
            chunks[partition] = chunk
    return chunks


def _fetch_large_batch(logs: LogOffsets, partition: TopicPartition, position: int, size: int) -> Chunk:
    """Fetch a chunk whose first record batch is larger than ``size``; empty if the log no longer contains ``position``.

    In the response to a request, a broker returns such a batch for one partition only; brokers before 0.10.1 never do.
    """
    for max_bytes in (size, _LARGE_BATCH_BYTES):
        data = logs.fetch({partition: position}, max_bytes).get(partition)
        if data is None:
            break
        chunk = make_chunk(partition, position, data.records, aborted=data.aborted)
        if chunk.next_offset > position:
            return chunk
    return make_chunk(partition, position, b"")
