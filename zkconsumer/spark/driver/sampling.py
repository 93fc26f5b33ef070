"""Looks at the records that come next, for what a plan has to know of them: their times and their sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from zkconsumer.broker.log_offsets import LogOffsets
from zkconsumer.errors import CorruptRecordError
from zkconsumer.fetcher.chunk import Chunk
from zkconsumer.fetcher.decode import native, read_messages
from zkconsumer.message import MessageAndMetadata, TopicPartition

#: Bytes of a partition that are looked at, and how often more of them where they have no record for a reader.
SIZE, _TIMES = 64 << 10, 8

#: Bytes to ask for where one batch is larger than that.
_LARGE = 16 << 20


@dataclass(frozen=True, slots=True)
class Sample:
    """The records from some offset on, as many as were looked at.

    ``until`` is the offset behind them; between may be some that are not for readers, such as marks of transactions.
    """

    start: int
    until: int
    records: Sequence[MessageAndMetadata]

    @property
    def bytes_per_offset(self) -> float:
        """What an offset is worth in bytes of keys and values."""
        size = sum(len(record.key or b"") + len(record.value or b"") for record in self.records)
        return size / max(1, self.until - self.start)


def sample(logs: LogOffsets, positions: Mapping[TopicPartition, int], size: int = SIZE) -> dict[TopicPartition, Sample]:
    """Return the next records of each partition; those that have none, or are damaged there, are left out.

    Args:
        size: bytes to look at, of each.

    Raises:
        RetriableError: a leader is missing or does not answer.
    """
    found: dict[TopicPartition, Sample] = {}
    wanted = dict(positions)
    for _ in range(_TIMES):
        chunks = _chunks(logs, wanted, size) if wanted else {}
        wanted = {}
        for partition, chunk in chunks.items():
            try:
                records = [record for some, _ in read_messages(chunk, max_rows=1024) for record in some]
            except CorruptRecordError:
                continue  # a task will tell
            if records:
                found[partition] = Sample(positions[partition], chunk.next_offset, records)
            else:  # marks of transactions and the like
                wanted[partition] = chunk.next_offset
    return found


def _chunks(logs: LogOffsets, positions: Mapping[TopicPartition, int], size: int) -> dict[TopicPartition, Chunk]:
    """Return what can be read at each position; a batch that is larger than ``size`` is asked for alone."""
    chunks: dict[TopicPartition, Chunk] = {}
    answers = logs.fetch(positions, size)
    for partition, position in positions.items():
        data = answers.get(partition)
        if data is not None and native.next_offset(data.records)[0] < 0 and data.high_watermark > position:
            data = logs.fetch({partition: position}, _LARGE)[partition]
        until = native.next_offset(data.records)[0] if data is not None else -1
        if data is not None and until > position:
            chunks[partition] = Chunk(partition, position, until, data.records, data.aborted)
    return chunks
