"""OpenChunk and DecodedItems: a chunk that is read, and its messages or Arrow batches before their delivery."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from zkconsumer.fetcher.arrow import ArrowReader
from zkconsumer.fetcher.chunk import Chunk
from zkconsumer.fetcher.decode import read_messages
from zkconsumer.fetcher.queues import PartitionQueue
from zkconsumer.message import MessageAndMetadata, MessageDecoders, MessageRows, TopicPartition

#: Maximum number of messages per block: enough to amortize the calls, few enough for blocks with small messages to stay
#: in the CPU cache.
_MESSAGES_PER_BLOCK = 8192


@dataclass(slots=True, eq=False)
class DecodedItems:
    """Decoded items of one partition: messages, or one Arrow batch.

    An item in ``remaining`` is either delivered by the application thread or discarded by ``StreamPositions``. This
    requires no lock per message, because ``pop`` and ``popleft`` are atomic.

    Attributes:
        size: number of items.
        rows: number of records in the items.
        start: offset from which the items were read.
        next_offset: next offset to consume after the last item.
        remaining: messages, or the Arrow batch, that have not been delivered.
    """

    queue: PartitionQueue
    partition: TopicPartition
    size: int
    rows: int
    start: int
    next_offset: int
    remaining: MessageRows[MessageAndMetadata] | deque[Any]

    def offset_of(self, index: int) -> int:
        """Return the offset to commit while an item is being processed.

        This is the offset of a message, or the offset from which an Arrow batch was read.
        """
        return self.remaining.offset_at(index) if isinstance(self.remaining, MessageRows) else self.start

    def offset_after(self, count: int) -> int:
        """Return the next offset to consume after the first ``count`` items."""
        return self.next_offset if count == self.size else self.offset_of(count)


@dataclass(slots=True, eq=False)
class OpenChunk:
    """The chunk that a stream is reading.

    Attributes:
        position: offset from which the next items are decoded.
        end: offset after the chunk.
        is_decoded: whether all records were decoded. It remains false if an exception interrupted the decoder.
    """

    queue: PartitionQueue
    partition: TopicPartition
    position: int
    end: int
    is_decoded: bool = False


#: Function that decodes a chunk.
Decode = Callable[[OpenChunk, Chunk], Iterator[DecodedItems]]


def decode_messages(
    opened: OpenChunk, chunk: Chunk, decoders: MessageDecoders, *, check_crcs: bool
) -> Iterator[DecodedItems]:
    """Yield the messages of a chunk.

    Raises:
        CorruptRecordError: a batch is corrupt; the messages before it were yielded.
    """
    queue, partition = opened.queue, opened.partition
    for rows, next_offset in read_messages(chunk, decoders, check_crcs=check_crcs, max_rows=_MESSAGES_PER_BLOCK):
        start, opened.position = opened.position, next_offset
        yield DecodedItems(queue, partition, len(rows), len(rows), start, next_offset, rows)
    opened.is_decoded = True


def decode_batches(opened: OpenChunk, chunk: Chunk, reader: ArrowReader) -> Iterator[DecodedItems]:
    """Yield the Arrow batches of a chunk.

    Raises:
        CorruptRecordError: a record batch is corrupt; all records before it were yielded.
    """
    queue, partition = opened.queue, opened.partition
    for batch, next_offset in reader.read(chunk):
        start, opened.position = opened.position, next_offset
        yield DecodedItems(queue, partition, 1, batch.num_rows, start, next_offset, deque((batch,)))
    opened.is_decoded = True
