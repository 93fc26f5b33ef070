"""KafkaStream: the messages or Arrow batches that an application reads.

Source: Kafka 1.1 kafka.consumer.KafkaStream, ConsumerIterator. Deliberate differences: a message counts as consumed
when the next one is requested, not when it is handed out, so a crash repeats it instead of losing it; and a stream can
be used after an error.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Set
from typing import Any

from zkconsumer.consumer.decoded_items import Decode, DecodedItems, decode_batches, decode_messages
from zkconsumer.errors import ClosedError, ConsumerTimeoutError, CorruptRecordError, ZkConsumerError
from zkconsumer.fetcher.arrow import ArrowReader
from zkconsumer.fetcher.chunk import Chunk, PositionChanged
from zkconsumer.fetcher.decode import MAX_ROWS, log_skipped
from zkconsumer.fetcher.queues import PartitionQueue, StreamQueue
from zkconsumer.log import get_logger
from zkconsumer.message import MessageAndMetadata, TopicPartition

#: All streams, for ``_after_fork``.
_streams: weakref.WeakSet[KafkaStream] = weakref.WeakSet()


def _after_fork() -> None:
    """Discard decoded items in the child process; only the parent may hand them out."""
    for stream in list(_streams):
        stream._pop_item, stream._current = deque[Any]().popleft, None


os.register_at_fork(after_in_child=_after_fork)


class KafkaStream:
    """The records of the partitions that are assigned to one thread id.

    Iterate over the stream to read messages, or over ``batches()`` to read Arrow record batches, but not both. Only one
    application thread may use a stream at a time. The iteration ends when the consumer is shut down.

    Iterating raises the following errors; the stream can be used after each of them:

    - ``ConsumerTimeoutError``: no record was received within ``consumer.timeout.ms``.
    - ``CorruptRecordError``: a batch is corrupt; it is fetched again.
    - ``ZkConsumerError``: a fetcher or the group member has failed, or another thread is reading the stream. The thread
      is checked once for each decoded block of records, not for each message.

    ``_lock`` guards the positions, the committed offsets and the current items, which the member's thread uses, too.
    Only the application's thread writes the other fields.
    """

    def __init__(
        self,
        topic: str,
        client_id: str,
        queue: StreamQueue,
        *,
        message_type: type[MessageAndMetadata],
        timeout_s: float | None,
        check_crcs: bool,
        holds_lease: Callable[[], bool],
        refetch: Callable[[PartitionQueue, TopicPartition, int], None],
        on_reset: Callable[[TopicPartition], object],
        on_consumed: Callable[[TopicPartition, int], object],
        on_skipped: Callable[[TopicPartition, int], object] | None = None,
    ) -> None:
        self.topic = topic
        self.client_id = client_id
        self._queue = queue
        self._message_type = message_type
        self._timeout_s = timeout_s
        self._check_crcs = check_crcs
        self._holds_lease = holds_lease
        self._refetch = refetch
        self._on_reset = on_reset
        self._on_consumed = on_consumed
        self._on_skipped = on_skipped
        self._log = get_logger("zkconsumer.stream")
        self._lock = threading.Lock()  # held for a short time; never while blocking
        self._positions: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._current: DecodedItems | None = None
        self._reading_thread: threading.Thread | None = None  # guarded by _lock
        # The following fields are written by the application's thread only.
        self._pop_item: Callable[[], Any] = deque[Any]().popleft
        self._decoded: Iterator[DecodedItems] = iter(())
        self._corrupt_offsets: dict[TopicPartition, int] = {}
        self._chunk_source: tuple[PartitionQueue, TopicPartition] | None = None
        self._batches: _Batches | None = None
        self._process_id = os.getpid()
        _streams.add(self)

    def __repr__(self) -> str:
        # Does not consume the stream (KAFKA-1146).
        return f"<KafkaStream {self.client_id} {self.topic}>"

    # ---- for the application ----

    def __iter__(self) -> KafkaStream:
        return self

    def __next__(self) -> Any:
        try:
            return self._pop_item()
        except IndexError:
            pass  # all current items were handed out
        return self._advance(self._decode_messages)

    def has_next(self) -> bool:
        """Wait for a message; returns False if the stream has ended. The previous message counts as consumed.

        Raises:
            ZkConsumerError: an error of the iteration, see ``KafkaStream``; the method can be called again.
        """
        try:
            self.peek()
        except StopIteration:
            return False
        return True

    def peek(self) -> Any:
        """Wait for a message and return it; the next ``next()`` returns the same message.

        Raises:
            StopIteration: the stream has ended.
            ZkConsumerError: an error of the iteration, see ``KafkaStream``.
        """
        current = self._current
        if current is not None:
            try:
                return current.remaining[0]
            except IndexError:
                pass  # all items were handed out, or the partition was released
        return self._advance(self._decode_messages, peek=True)

    def clear(self) -> None:
        """Discard the fetched records of the current partition; those that were not handed out are fetched again."""
        with self._lock:
            current, self._current = self._current, None
            if current is not None:
                handed_out = current.size - len(current.remaining)
                current.remaining.clear()
                if handed_out:
                    self._positions[current.partition] = current.offset_after(handed_out)
        self._pop_item = deque[Any]().popleft
        if self._chunk_source is not None:
            self._refetch_from(None)

    def batches(self, max_rows: int = MAX_ROWS, *, include_headers: bool = False) -> Iterator[Any]:
        """Return an iterator over Arrow record batches, each of one partition.

        The columns are those of Spark's Kafka source. A batch counts as consumed when the next one is requested. The
        iterator can be used after an error, and further calls return the same iterator.

        Args:
            max_rows: maximum rows per batch. A batch has fewer rows if they exceed 2 MiB, and more, up to 65,536, if a
                single record batch in the log has more.
            include_headers: add a column with the headers.
        """
        if self._batches is None:
            reader = ArrowReader(include_headers=include_headers, check_crcs=self._check_crcs, max_rows=max_rows)
            self._batches = _Batches(self, reader)
        return self._batches

    # ---- for the runtime, in the member's thread ----

    def acquire(self, partition: TopicPartition, offset: int) -> None:
        """Record the position of an assigned partition; -1 if it is not known yet."""
        with self._lock:
            self._positions[partition] = offset

    def release(self, partitions: Set[TopicPartition]) -> dict[TopicPartition, int]:
        """Stop handing out records of the partitions, and return the next offset to consume of each.

        Their queues must have been closed.
        """
        with self._lock:
            if self._current is not None and self._current.partition in partitions:
                self._discard_current(self._current)
            released = {p: self._positions.pop(p) for p in partitions if p in self._positions}
            return {p: max(offset, self._committed.pop(p, -1)) for p, offset in released.items()}

    def lease_ended(self) -> None:  # in the thread of the lease
        """Stop handing out the current items, unless the member has registered again meanwhile."""
        with self._lock:
            current = self._current
            if current is not None and not self._holds_lease():
                self._discard_current(current)
                current.queue.close()

    def _discard_current(self, current: DecodedItems) -> None:  # with the lock held
        discarded = 0
        try:
            while True:  # from the end, because the application's thread takes items from the front meanwhile
                current.remaining.pop()
                discarded += 1
        except IndexError:
            pass
        handed_out = current.size - discarded
        if handed_out:
            self._positions[current.partition] = current.offset_of(handed_out - 1)
        self._current = None

    def positions(self, *, handed_out: bool) -> dict[TopicPartition, int]:
        """Return the next offset to consume of each partition, -1 if it is not known yet.

        Args:
            handed_out: count the item that was handed out last as consumed.
        """
        with self._lock:
            positions = dict(self._positions)
            current = self._current
            if current is not None:
                count = current.size - len(current.remaining)
                if count:
                    positions[current.partition] = current.offset_after(count if handed_out else count - 1)
            return {p: max(offset, self._committed.get(p, -1)) for p, offset in positions.items()}

    def mark_committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Count records as consumed if their offsets are below those that the application has committed."""
        with self._lock:
            self._committed.update({p: offset for p, offset in offsets.items() if p in self._positions})

    def close(self) -> None:
        """End the iteration."""
        self._queue.close()
        with self._lock:
            partitions = set(self._positions)
        self.release(partitions)

    # ---- the application's thread ----

    def _advance(self, decode: Decode, *, peek: bool = False) -> Any:
        """Mark the current items as consumed, decode the next ones, and return the first of them.

        Args:
            peek: do not remove the item that is returned.
        """
        if os.getpid() != self._process_id:
            raise ClosedError(
                f"this stream was created in process {self._process_id} and cannot be used after a fork; create a new "
                "consumer in this process"
            )
        thread = threading.current_thread()
        try:
            with self._lock:
                reading = self._reading_thread
                if reading is not None and reading is not thread:
                    raise ZkConsumerError(
                        f"{self!r} is being read by thread {reading.name!r}; only one thread may read a stream "
                        "at a time. Create one stream for each thread with create_message_streams({topic: threads})"
                    )
                self._reading_thread = thread
            return self._next_item(decode, peek)
        finally:
            if self._reading_thread is thread:
                self._reading_thread = None

    def _next_item(self, decode: Decode, peek: bool) -> Any:
        deadline = None if self._timeout_s is None else time.monotonic() + self._timeout_s
        while True:
            with self._lock:
                items, self._current = self._current, None
                if items is not None:
                    self._positions[items.partition] = items.next_offset
            if items is not None and items.rows:
                self._on_consumed(items.partition, items.rows)
            items = self._decode_next()
            if items is None:
                self._take_chunk(decode, deadline)
                continue
            with self._lock:
                if not self._holds_lease():
                    items.queue.close()  # the member claims the partition again, with a new queue
                if items.queue.is_closed or self._queue.is_closed:
                    self._decoded = iter(())
                    continue
                self._current = items
            self._pop_item = items.remaining.popleft
            try:
                return items.remaining[0] if peek else self._pop_item()
            except IndexError:
                continue  # the partition was released before an item was handed out

    def _decode_next(self) -> DecodedItems | None:
        """Decode the next items of the current chunk; returns None at its end."""
        try:
            return next(self._decoded, None)
        except CorruptRecordError as error:
            if self._on_skipped is not None and self._skip_if_corrupt_again(error, self._on_skipped):
                return None
            self._refetch_from(error.offset)
            if self._on_skipped is not None and error.after >= 0:
                return None  # skipped only if it is corrupt again, because it may have been damaged in transit
            raise
        except BaseException:  # such as KeyboardInterrupt; the rest of the chunk must not be skipped
            self._refetch_from(None)
            raise

    def _skip_if_corrupt_again(
        self, error: CorruptRecordError, on_skipped: Callable[[TopicPartition, int], object]
    ) -> bool:
        """Skip a batch that is corrupt after it was fetched again; returns whether it was skipped.

        A batch whose end is unknown cannot be skipped.
        """
        assert self._chunk_source is not None
        _, partition = self._chunk_source
        is_corrupt_again = self._corrupt_offsets.get(partition) == error.offset
        self._corrupt_offsets[partition] = error.offset
        if not is_corrupt_again or error.after < 0:
            return False
        log_skipped(self._log, partition, error)
        on_skipped(partition, error.after - error.offset)
        with self._lock:
            self._positions[partition] = error.after
        self._refetch_from(error.after)
        return True

    def _refetch_from(self, offset: int | None) -> None:
        """Discard the current chunk, and fetch its partition again from ``offset``; None is the current position."""
        assert self._chunk_source is not None
        queue, partition = self._chunk_source
        self._decoded = iter(())
        with self._lock:
            position = self._positions.get(partition, -1)
        self._refetch(queue, partition, position if offset is None else offset)

    def _take_chunk(self, decode: Decode, deadline: float | None) -> None:
        """Wait for the next chunk, until ``deadline``, which chunks without records do not extend.

        Raises:
            StopIteration: the stream was closed.
            ConsumerTimeoutError: no chunk was received in time.
        """
        taken = self._queue.take(None if deadline is None else max(0.0, deadline - time.monotonic()))
        if taken is None:
            if self._queue.is_closed:
                raise StopIteration
            assert self._timeout_s is not None
            raise ConsumerTimeoutError(
                f"no record was received from {self.topic!r} within consumer.timeout.ms = {self._timeout_s * 1000:.0f}"
            )
        queue, item = taken
        partition = item.partition
        self._chunk_source = queue, partition
        with self._lock:
            position = self._positions.get(partition)
            if queue.is_closed or position is None:
                return  # the partition was released meanwhile
            if isinstance(item, PositionChanged):
                self._positions[partition] = item.offset
                self._committed.pop(partition, None)
        if isinstance(item, PositionChanged):
            self._on_reset(partition)
        elif item.fetch_offset != position:
            self._refetch_from(None)  # a KeyboardInterrupt has discarded the previous chunk
        else:
            self._decoded = decode(queue, item)

    def _decode_messages(self, queue: PartitionQueue, chunk: Chunk) -> Iterator[DecodedItems]:
        return decode_messages(queue, chunk, self._message_type, check_crcs=self._check_crcs)


class _Batches:
    """The record batches of a stream. It is not a generator, because a generator ends after an error."""

    def __init__(self, stream: KafkaStream, reader: ArrowReader) -> None:
        self._stream = stream
        self._reader = reader

    def __iter__(self) -> _Batches:
        return self

    def __next__(self) -> Any:
        return self._stream._advance(self._decode_batches)

    def _decode_batches(self, queue: PartitionQueue, chunk: Chunk) -> Iterator[DecodedItems]:
        return decode_batches(queue, chunk, self._reader)
