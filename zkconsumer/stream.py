"""KafkaStream: what an application reads, message by message or as Arrow batches.

Source: Kafka 1.1 kafka.consumer.KafkaStream, ConsumerIterator. Different on purpose: a message counts as
consumed when the next one is asked for, not when it is handed out, so that a crash repeats it instead of
losing it; and an error leaves the stream usable.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any

from zkconsumer.errors import ClosedError, ConsumerTimeoutError, CorruptRecordError
from zkconsumer.fetcher.arrow import ArrowReader
from zkconsumer.fetcher.chunk import Chunk
from zkconsumer.fetcher.decode import MAX_ROWS, log_skipped, read_messages
from zkconsumer.fetcher.queues import PartitionQueue, StreamQueue
from zkconsumer.log import get_logger
from zkconsumer.message import MessageAndMetadata, TopicPartition

#: Messages that are made at once: enough to make the call cheap, few enough to stay in the cache.
_MESSAGES_AT_ONCE = 2048


#: All streams, for what a fork makes of them.
_streams: weakref.WeakSet[KafkaStream] = weakref.WeakSet()


def _after_fork() -> None:
    """Have nothing handed out in the new process of what was decoded in the old one."""
    for stream in list(_streams):
        stream._pop, stream._piece = deque[Any]().popleft, None


os.register_at_fork(after_in_child=_after_fork)


@dataclass(slots=True, eq=False)
class _Piece:
    """Decoded items of one partition that are being handed out.

    ``waiting`` holds those that are not; whoever takes one from it, the application or ``release``, has it
    for good, since a deque's ``popleft`` is atomic. So no lock is needed per message.
    """

    queue: PartitionQueue
    partition: TopicPartition
    starts: Callable[[int], int]
    size: int
    rows: int
    next_offset: int
    waiting: deque[Any]

    def offset_after(self, items: int) -> int:
        """Return the next offset to consume once so many items are consumed."""
        return self.next_offset if items == self.size else self.starts(items)


class KafkaStream:
    """The records of one thread id: those of the partitions that are assigned to it.

    Iterate over it for messages, or over ``batches()`` for Arrow record batches; one or the other. Used by
    one application thread. Both end when the connector is shut down.

    Raises, while iterating:
        ConsumerTimeoutError: nothing came for ``consumer.timeout.ms``.
        CorruptRecordError: a damaged batch; the partition is fetched again from there.
        ZkConsumerError: what a fetcher or the group met that it has no answer to.

    The stream can be read on after each of them.
    """

    def __init__(
        self,
        topic: str,
        client_id: str,
        queue: StreamQueue,
        *,
        message_type: type[MessageAndMetadata],
        timeout: float | None,
        check_crcs: bool,
        refetch: Callable[[PartitionQueue, TopicPartition, int], None],
        on_reset: Callable[[TopicPartition], object],
        on_consumed: Callable[[TopicPartition, int], object],
        on_skipped: Callable[[TopicPartition, int], object] | None = None,
    ) -> None:
        self.topic = topic
        self.client_id = client_id
        self._queue = queue
        self._message_type = message_type
        self._timeout = timeout
        self._check_crcs = check_crcs
        self._refetch = refetch
        self._on_reset = on_reset
        self._on_consumed = on_consumed
        self._on_skipped = on_skipped
        self._log = get_logger("zkconsumer.stream")
        self._lock = threading.Lock()  # guards what follows, for a few assignments at a time
        self._positions: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._piece: _Piece | None = None
        # The application's thread only.
        self._pop: Callable[[], Any] = deque[Any]().popleft
        self._pieces: Iterator[_Piece] = iter(())
        self._damaged: dict[TopicPartition, int] = {}
        self._chunk_of: tuple[PartitionQueue, TopicPartition] | None = None
        self._batches: _Batches | None = None
        self._process = os.getpid()
        _streams.add(self)

    def __repr__(self) -> str:
        # Printing a stream must not read it (KAFKA-1146).
        return f"<KafkaStream {self.client_id} {self.topic}>"

    # ---- for the application ----

    def __iter__(self) -> KafkaStream:
        return self

    def __next__(self) -> Any:
        try:
            return self._pop()
        except IndexError:
            pass  # not an error: the piece in hand is used up
        return self._advance(self._message_pieces)

    def has_next(self) -> bool:
        """Wait for a message; False where the stream has ended. The one before counts as consumed then.

        Raises what iterating raises; after a ``ConsumerTimeoutError`` it can be called again.
        """
        try:
            self.peek()
        except StopIteration:
            return False
        return True

    def peek(self) -> Any:
        """Wait for a message and return it; the next ``next()`` returns it again.

        Raises:
            StopIteration: the stream has ended.
        """
        piece = self._piece
        if piece is not None:
            try:
                return piece.waiting[0]
            except IndexError:
                pass  # used up, or released
        return self._advance(self._message_pieces, look=True)

    def clear(self) -> None:
        """Drop what was fetched of the partition in hand; what was not handed out of it is fetched again."""
        with self._lock:
            piece, self._piece = self._piece, None
            if piece is not None:
                handed = piece.size - len(piece.waiting)
                piece.waiting.clear()
                if handed:
                    self._positions[piece.partition] = piece.offset_after(handed)
        self._pop = deque[Any]().popleft
        if self._chunk_of is not None:
            self._fetch_again(None)

    def batches(self, max_rows: int = MAX_ROWS, *, include_headers: bool = False) -> Iterator[Any]:
        """Return an iterator of Arrow record batches, each of one partition.

        The columns are those of Spark's own Kafka source. A batch counts as consumed when the next one is
        asked for. The iterator can be used on after an error, and asking again returns the same one.

        Args:
            max_rows: rows of a batch, unless a single batch of the log has more; fewer when 2 MiB come first.
        """
        if self._batches is None:
            reader = ArrowReader(include_headers=include_headers, check_crcs=self._check_crcs, max_rows=max_rows)
            self._batches = _Batches(self, reader)
        return self._batches

    # ---- for the connector, in the member's thread ----

    def acquire(self, partition: TopicPartition, offset: int) -> None:
        """Take note of a partition's position; -1 until it is known."""
        with self._lock:
            self._positions[partition] = offset

    def release(self, partitions: Set[TopicPartition]) -> dict[TopicPartition, int]:
        """Hand out nothing more of the partitions and return what has been consumed of each.

        Their queues are closed before.
        """
        with self._lock:
            piece = self._piece
            if piece is not None and piece.partition in partitions:
                left = 0
                try:
                    while True:
                        piece.waiting.popleft()
                        left += 1
                except IndexError:
                    pass
                handed = piece.size - left
                if handed:
                    self._positions[piece.partition] = piece.starts(handed - 1)
                self._piece = None
            released = {p: self._positions.pop(p) for p in partitions if p in self._positions}
            return {p: max(offset, self._committed.pop(p, -1)) for p, offset in released.items()}

    def positions(self, *, handed_out: bool) -> dict[TopicPartition, int]:
        """Return the next offset to consume of each partition, -1 where it is not known yet.

        Args:
            handed_out: count what the application has in hand as consumed.
        """
        with self._lock:
            positions = dict(self._positions)
            piece = self._piece
            if piece is not None:
                handed = piece.size - len(piece.waiting)
                if handed:
                    positions[piece.partition] = piece.offset_after(handed if handed_out else handed - 1)
            return {p: max(offset, self._committed.get(p, -1)) for p, offset in positions.items()}

    def committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Count as consumed what the application has committed itself, the item in hand included."""
        with self._lock:
            self._committed.update({p: offset for p, offset in offsets.items() if p in self._positions})

    def close(self) -> None:
        """End the iteration."""
        self._queue.close()
        with self._lock:
            partitions = set(self._positions)
        self.release(partitions)

    # ---- the application's thread ----

    def _advance(self, read: Callable[[PartitionQueue, Chunk], Iterator[_Piece]], *, look: bool = False) -> Any:
        """Finish the piece in hand, go on to the next one and return its first item; only look at that if asked to."""
        if os.getpid() != self._process:
            raise ClosedError("this stream belongs to another process; a fork cannot go on with it")
        while True:
            with self._lock:
                piece, self._piece = self._piece, None
                if piece is not None:
                    self._positions[piece.partition] = piece.next_offset
            if piece is not None and piece.rows:
                self._on_consumed(piece.partition, piece.rows)
            piece = self._next_piece()
            if piece is None:
                self._begin_chunk(read)
                continue
            with self._lock:
                if piece.queue.is_closed or self._queue.is_closed:
                    self._pieces = iter(())
                    continue
                self._piece = piece
            self._pop = piece.waiting.popleft
            try:
                return piece.waiting[0] if look else self._pop()
            except IndexError:
                continue  # released before anything was handed out

    def _next_piece(self) -> _Piece | None:
        try:
            return next(self._pieces, None)
        except CorruptRecordError as error:
            if self._on_skipped is not None and self._is_skipped(error, self._on_skipped):
                return None
            self._fetch_again(error.offset)
            if self._on_skipped is not None and error.after >= 0:
                return None  # it may have been damaged on its way
            raise
        except BaseException:  # Ctrl-C and the like: what is left of the chunk must not be skipped
            self._fetch_again(None)
            raise

    def _is_skipped(self, error: CorruptRecordError, on_skipped: Callable[[TopicPartition, int], object]) -> bool:
        """Go on behind a batch that is damaged for the second time; False before that, or where its end is unknown."""
        assert self._chunk_of is not None
        _, partition = self._chunk_of
        again = self._damaged.get(partition) == error.offset
        self._damaged[partition] = error.offset
        if not again or error.after < 0:
            return False
        log_skipped(self._log, partition, error)
        on_skipped(partition, error.after - error.offset)
        with self._lock:
            self._positions[partition] = error.after
        self._fetch_again(error.after)
        return True

    def _fetch_again(self, offset: int | None) -> None:
        """Drop the chunk in hand and have its partition fetched from ``offset``, or from where it is."""
        assert self._chunk_of is not None
        queue, partition = self._chunk_of
        self._pieces = iter(())
        with self._lock:
            position = self._positions.get(partition, -1)
        self._refetch(queue, partition, position if offset is None else offset)

    def _begin_chunk(self, read: Callable[[PartitionQueue, Chunk], Iterator[_Piece]]) -> None:
        taken = self._queue.take(self._timeout)
        if taken is None:
            if self._queue.is_closed:
                raise StopIteration
            assert self._timeout is not None
            raise ConsumerTimeoutError(
                f"no record of {self.topic!r} came within consumer.timeout.ms = {self._timeout * 1000:.0f}"
            )
        queue, chunk = taken
        self._chunk_of = queue, chunk.partition
        with self._lock:
            position = self._positions.get(chunk.partition)
            if queue.is_closed or position is None:
                return  # released meanwhile
            if not len(chunk.data):  # a start offset that was looked up, or looked up anew
                self._positions[chunk.partition] = chunk.fetch_offset
                self._committed.pop(chunk.partition, None)
        if not len(chunk.data):
            self._on_reset(chunk.partition)
        elif chunk.fetch_offset != position:
            self._fetch_again(None)  # a chunk before it was lost, by a Ctrl-C at the wrong moment
        else:
            self._pieces = read(queue, chunk)

    def _message_pieces(self, queue: PartitionQueue, chunk: Chunk) -> Iterator[_Piece]:
        found = read_messages(chunk, self._message_type, check_crcs=self._check_crcs, max_rows=_MESSAGES_AT_ONCE)
        for messages, next_offset in found:
            yield _Piece(
                queue,
                chunk.partition,
                lambda i, messages=messages: messages[i].offset,  # type: ignore[misc]
                len(messages),
                len(messages),
                next_offset,
                deque(messages),
            )
        yield _end_of(queue, chunk)


def _end_of(queue: PartitionQueue, chunk: Chunk) -> _Piece:
    """An empty piece that moves the position over what has no rows: markers, aborted or compacted records."""
    return _Piece(queue, chunk.partition, lambda _index: chunk.next_offset, 0, 0, chunk.next_offset, deque())


class _Batches:
    """The record batches of a stream; an iterator that survives errors, which a generator would not."""

    def __init__(self, stream: KafkaStream, reader: ArrowReader) -> None:
        self._stream = stream
        self._reader = reader

    def __iter__(self) -> _Batches:
        return self

    def __next__(self) -> Any:
        return self._stream._advance(self._pieces)

    def _pieces(self, queue: PartitionQueue, chunk: Chunk) -> Iterator[_Piece]:
        for batch, next_offset in self._reader.read(chunk):
            first = batch.column(4)[0].as_py()
            yield _Piece(
                queue,
                chunk.partition,
                lambda _index, first=first: first,  # type: ignore[misc]
                1,
                batch.num_rows,
                next_offset,
                deque([batch]),
            )
        yield _end_of(queue, chunk)
