"""KafkaStream: the messages or Arrow batches that an application reads.

Source: Kafka 1.1 kafka.consumer.KafkaStream, ConsumerIterator. Deliberate differences: a message counts as consumed
when the next one is requested, not when it is delivered, so it is redelivered after a crash instead of being lost; and
a stream remains usable after an error.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Generic

from zkconsumer.argument_checks import check_flag, check_integer
from zkconsumer.config import ConsumerConfig
from zkconsumer.consumer.decoded_items import Decode, DecodedItems, OpenChunk, decode_batches, decode_messages
from zkconsumer.consumer.owner import StreamOwner
from zkconsumer.consumer.positions import Delivery, StreamPositions
from zkconsumer.consumer.reader_guard import ReaderGuard
from zkconsumer.errors import ConsumerTimeoutError, CorruptRecordError
from zkconsumer.fetcher.arrow import ArrowReader
from zkconsumer.fetcher.chunk import Chunk, PositionChanged
from zkconsumer.fetcher.corrupt_records import log_skipped
from zkconsumer.fetcher.decode import MAX_ROWS
from zkconsumer.fetcher.queues import StreamQueue
from zkconsumer.log import get_logger
from zkconsumer.message import K, MessageAndMetadata, MessageDecoders, MessageIterator, MessageRows, TopicPartition, V

if TYPE_CHECKING:
    import pyarrow as pa

#: All streams of this process; used by ``_after_fork``.
_streams: weakref.WeakSet[KafkaStream[Any, Any]] = weakref.WeakSet()


def _after_fork() -> None:
    """Discard decoded items in the child process; only the parent may deliver them."""
    for stream in list(_streams):
        stream._set_block(None)
        stream.positions.drop_current_after_fork()


os.register_at_fork(after_in_child=_after_fork)


class CorruptBatchAction(Enum):
    """What a stream does with a corrupt batch."""

    #: Refetch the batch and raise the error.
    RAISE = auto()
    #: Refetch the batch without raising the error.
    REFETCH = auto()
    #: Skip the batch.
    SKIP = auto()


class CorruptBatches:
    """Decides how a stream handles corrupt batches; used by the application thread.

    A batch is skipped only if it is still corrupt after a refetch, because it may have been corrupted in transit. A
    batch whose end is unknown cannot be skipped.

    Args:
        skips: whether ``corrupt.record.policy`` is ``skip``.
    """

    def __init__(self, *, skips: bool) -> None:
        self._skips = skips
        self._last_offsets: dict[TopicPartition, int] = {}

    def decide(self, partition: TopicPartition, error: CorruptRecordError) -> CorruptBatchAction:
        """Return the action for a batch that was corrupt in the last fetch."""
        if not self._skips:
            return CorruptBatchAction.RAISE
        is_corrupt_again = self._last_offsets.get(partition) == error.offset
        self._last_offsets[partition] = error.offset
        if error.after < 0:
            return CorruptBatchAction.RAISE
        return CorruptBatchAction.SKIP if is_corrupt_again else CorruptBatchAction.REFETCH


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """Settings shared by all streams of a consumer.

    Attributes:
        decoders: decoders of keys and values.
        timeout_s: seconds to wait for a record before ``ConsumerTimeoutError`` is raised; None to wait indefinitely.
        check_crcs: whether to verify the checksums of record batches.
        skips_corrupt_batches: whether to skip corrupt batches instead of raising ``CorruptRecordError``.
    """

    client_id: str
    decoders: MessageDecoders
    timeout_s: float | None
    check_crcs: bool
    skips_corrupt_batches: bool

    @classmethod
    def from_config(cls, config: ConsumerConfig, decoders: MessageDecoders) -> StreamSettings:
        """Create the settings from consumer properties."""
        return cls(
            client_id=config.client_id,
            decoders=decoders,
            timeout_s=config.consumer_timeout_s,
            check_crcs=config.check_crcs,
            skips_corrupt_batches=config.corrupt_record_policy == "skip",
        )


class KafkaStream(MessageIterator, Generic[K, V]):
    """A stream of records from the partitions that are assigned to one thread id.

    Iterate over the stream to read messages, or over ``batches()`` to read Arrow record batches, but not both. Only one
    application thread may use a stream at a time. The iteration ends when the consumer is stopped or shut down.

    The iteration may raise the following errors; the stream remains usable after each of them:

    - ``ConsumerTimeoutError``: no record was received within ``consumer.timeout.ms``.
    - ``CorruptRecordError``: a batch is corrupt; it is fetched again.
    - ``ZkConsumerError``: a fetcher or the group member failed, or another thread is reading the stream. These
      conditions are checked once per decoded block of records, not for each message.

    ``K`` and ``V`` are the types of the decoded keys and values, as in ``MessageAndMetadata``.

    Only the application thread modifies the fields. ``positions`` is shared with the member thread.

    Args:
        topic: topic, or regular expression of a filter.
        queue: queue that the fetchers fill.
        owner: consumer that owns the stream.
        settings: settings shared by all streams of the consumer.
    """

    def __init__(self, topic: str, queue: StreamQueue, owner: StreamOwner, settings: StreamSettings) -> None:
        self.topic = topic
        self.client_id = settings.client_id
        #: Delivered and consumed offsets; used by the runtime.
        self.positions = StreamPositions(queue, owner)
        self._queue = queue
        self._owner = owner
        self._settings = settings
        self._log = get_logger("zkconsumer.stream")
        self._guard = ReaderGuard(repr(self))
        self._corrupt_batches = CorruptBatches(skips=settings.skips_corrupt_batches)
        self._chunk: OpenChunk | None = None  # kept after its end, for ``clear``
        self._decoded: Iterator[DecodedItems] = iter(())
        self._batches: _Batches | None = None
        self._peeked: Any = None  # item that ``peek`` returned last
        self._set_block(None)
        _streams.add(self)

    def _set_block(self, block: MessageRows[MessageAndMetadata[K, V]] | None) -> None:
        self._block = block
        # The base class returns these messages without a lock and without calling this class; None ends that.
        self._rows = block
        if self._queue.is_stopped:  # checked last, because ``stop`` may be called between any two instructions
            self._rows = None

    if TYPE_CHECKING:  # the base class implements the method

        def __next__(self) -> MessageAndMetadata[K, V]: ...

    def __repr__(self) -> str:
        # The representation must not consume the stream (KAFKA-1146).
        return f"<KafkaStream {self.client_id} {self.topic}>"

    # ---- called by the application ----

    def has_next(self) -> bool:
        """Wait for a message; return True if there is one, or False if the stream has ended.

        After this call, the previous message may count as consumed.

        Raises:
            ZkConsumerError: see ``KafkaStream``; the method can be called again.
        """
        try:
            self.peek()
        except StopIteration:
            return False
        return True

    def peek(self) -> MessageAndMetadata[K, V]:
        """Wait for a message and return it; the next ``next()`` returns the same message.

        Raises:
            StopIteration: the stream has ended.
            ZkConsumerError: see ``KafkaStream``.
        """
        peeked = self._peek_in_block()
        if peeked is None:
            peeked = self._advance(self._decode_messages, peek=True)
        self._peeked = peeked
        return peeked

    def _peek_in_block(self) -> MessageAndMetadata[K, V] | None:
        """Return the first message of the current block; None if there is none."""
        rows = self._rows
        try:
            return rows.peek() if rows is not None else None
        except IndexError:
            return None  # all messages were delivered, or the partition was released

    def clear(self) -> None:
        """Discard the fetched records of the current partition; undelivered records will be fetched again."""
        self.positions.consume_current()
        self._set_block(None)
        self._refetch()

    def batches(self, max_rows: int = MAX_ROWS, *, include_headers: bool = False) -> Iterator[pa.RecordBatch]:
        """Return an iterator over Arrow record batches, each from a single partition.

        The columns match those of Spark's Kafka source. A batch counts as consumed when the next one is requested. The
        iterator remains usable after an error, and further calls return the same iterator.

        Args:
            max_rows: maximum number of rows per Arrow batch. An Arrow batch that contains a single record batch of the
                log can have more rows, up to 65,536. The size is also limited to 2 MiB, unless a single record is
                larger.
            include_headers: whether to add a column with the record headers.

        Raises:
            ConfigurationError: an argument is invalid.
        """
        max_rows = check_integer("max_rows", max_rows, 1, (1 << 31) - 1)
        include_headers = check_flag("include_headers", include_headers)
        if self._batches is None:
            reader = ArrowReader(
                include_headers=include_headers, check_crcs=self._settings.check_crcs, max_rows=max_rows
            )
            self._batches = _Batches(self, reader)
        return self._batches

    # ---- called by the runtime ----

    def stop(self) -> None:
        """End the iteration after the current item. May be called in a signal handler, so it acquires no lock."""
        self._queue.stop()
        self._rows = None

    def close(self) -> None:
        """End the iteration."""
        self._queue.close()
        self.positions.release_all()

    # ---- reading and decoding ----

    def _next_message(self) -> Any:
        return self._advance(self._decode_messages)

    def _advance(self, decode: Decode, *, peek: bool = False) -> Any:
        """Mark the current items as consumed, decode the next ones, and return the first of them.

        Args:
            peek: whether to keep the returned item in the stream.
        """
        try:
            self._guard.enter()
            return self._next_item(decode, peek)
        finally:
            self._guard.leave()

    def _next_item(self, decode: Decode, peek: bool) -> Any:
        timeout_s = self._settings.timeout_s
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            if self._queue.is_stopped:
                return self._next_peeked_item(peek)
            items = self.positions.consume_current()
            if self._block is not None or self._rows is not None:
                self._set_block(None)  # its buffers must not remain in memory while this thread waits
            if items is not None:
                self._owner.on_consumed(items.partition, items.rows)
            items = self._decode_next()
            if items is None:
                self._finish_chunk()
                self._take_item(decode, deadline)
                continue
            try:
                return self._first_of(items, peek)
            except IndexError:
                continue  # the partition was released, or the stream was stopped

    def _first_of(self, items: DecodedItems, peek: bool) -> Any:
        """Return the first of the items that were just decoded.

        Raises:
            IndexError: the item must not be delivered, or the stream was stopped.
        """
        delivery = self.positions.deliver(items)
        if delivery is Delivery.ALLOWED:
            remaining: Any = items.remaining
            block = remaining if isinstance(remaining, MessageRows) else None
            if block is not None:
                self._set_block(block)
            if not self._queue.is_stopped:
                return block.peek() if peek and block is not None else remaining.popleft()
        elif delivery is Delivery.ITEMS_MISSING:
            self._refetch()
        else:
            self._decoded, self._chunk = iter(()), None
        raise IndexError("the item is not delivered")

    def _next_peeked_item(self, peek: bool) -> Any:
        """Return the item that ``peek`` returned, unless ``next`` has returned it as well.

        Otherwise, ``next`` would raise StopIteration if the stream is stopped after ``has_next`` has returned True.

        Raises:
            StopIteration: there is no such item. The delivered items count as consumed.
        """
        block = self._block
        if block is not None and self._peeked is not None:
            try:
                if block.peek() is self._peeked:
                    return self._peeked if peek else block.popleft()
            except IndexError:
                pass  # it was delivered, or its partition was released
        self.positions.consume_current()
        self._set_block(None)
        raise StopIteration

    def _decode_next(self) -> DecodedItems | None:
        """Decode the next items of the current chunk; return None at the end of the chunk."""
        try:
            return next(self._decoded, None)
        except CorruptRecordError as error:
            if self._handle_corrupt_batch(error) is CorruptBatchAction.RAISE:
                raise
            return None
        except BaseException:  # such as KeyboardInterrupt; do not wait for the next chunk to notice it
            self._refetch()
            raise

    def _finish_chunk(self) -> None:
        if self._chunk is not None and not self.positions.finish(self._chunk):
            self._refetch()

    def _handle_corrupt_batch(self, error: CorruptRecordError) -> CorruptBatchAction:
        assert self._chunk is not None
        partition = self._chunk.partition
        if self.positions.position(partition) != self._chunk.position:
            self._refetch()  # an exception, such as KeyboardInterrupt, discarded items before the batch
            return CorruptBatchAction.REFETCH
        action = self._corrupt_batches.decide(partition, error)
        if action is CorruptBatchAction.SKIP:
            log_skipped(self._log, partition, error)
            self._owner.on_skipped(partition, error.after - error.offset)
            self.positions.skip_to(partition, error.after)
            self._refetch_from(error.after)
        else:
            self._refetch_from(error.offset)
        return action

    def _refetch(self) -> None:
        """Discard the current chunk, and refetch its partition from the current position."""
        if self._chunk is not None:
            position = self.positions.position(self._chunk.partition)
            self._refetch_from(-1 if position is None else position)

    def _refetch_from(self, offset: int) -> None:
        """Discard the current chunk, and refetch its partition from ``offset``."""
        assert self._chunk is not None
        self._decoded = iter(())
        self._owner.refetch(self._chunk.queue, self._chunk.partition, offset)
        self._chunk = None

    def _take_item(self, decode: Decode, deadline: float | None) -> None:
        """Take the next item from the queue, waiting at most until ``deadline`` (indefinitely if it is None).

        Position changes do not extend the deadline.

        Raises:
            StopIteration: the stream was closed or stopped.
            ConsumerTimeoutError: no item was received in time.
        """
        taken = self._queue.take(None if deadline is None else max(0.0, deadline - time.monotonic()))
        if taken is None:
            if self._queue.has_ended:
                raise StopIteration
            assert self._settings.timeout_s is not None
            raise ConsumerTimeoutError(
                f"no record was received from {self.topic!r} within "
                f"consumer.timeout.ms = {self._settings.timeout_s * 1000:.0f}"
            )
        queue, item = taken
        if isinstance(item, PositionChanged):
            self._chunk = OpenChunk(queue, item.partition, item.offset, item.offset, is_decoded=True)
            self.positions.apply(queue, item)
        elif not queue.is_closed:  # otherwise, the partition was released in the meantime
            self._chunk = OpenChunk(queue, item.partition, item.fetch_offset, item.next_offset)
            self._decoded = decode(self._chunk, item)

    def _decode_messages(self, opened: OpenChunk, chunk: Chunk) -> Iterator[DecodedItems]:
        settings = self._settings
        return decode_messages(opened, chunk, settings.decoders, check_crcs=settings.check_crcs)


class _Batches:
    """Iterator over a stream's Arrow batches; not a generator, because a generator ends after an error."""

    def __init__(self, stream: KafkaStream[Any, Any], reader: ArrowReader) -> None:
        self._stream = stream
        self._reader = reader

    def __iter__(self) -> _Batches:
        return self

    def __next__(self) -> Any:
        return self._stream._advance(self._decode_batches)

    def _decode_batches(self, opened: OpenChunk, chunk: Chunk) -> Iterator[DecodedItems]:
        return decode_batches(opened, chunk, self._reader)
