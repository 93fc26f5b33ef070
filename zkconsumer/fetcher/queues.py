"""Chunks on their way from fetchers to a stream: one bounded queue per partition.

A full queue makes its partition stay out of the next fetch request; nobody waits for room. A stream takes
from those of its queues that have something, in turn.

Source: Kafka 1.1 PartitionTopicInfo.enqueue, whose one queue per stream blocks the fetcher (KAFKA-832).
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from zkconsumer.fetcher.chunk import Chunk

#: Errors that are kept for a stream that is not read; older ones are forgotten.
_ERRORS = 100


class StreamQueue:
    """What the queues of one stream have in common: the lock, and which of them have something.

    Any number of fetchers put; one thread takes.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards this object and the chunks of its queues; never held for long
        self._changed = threading.Condition(self._lock)
        self._ready: deque[PartitionQueue] = deque()
        self._closed = False
        self._errors: deque[BaseException] = deque(maxlen=_ERRORS)

    def take(self, timeout: float | None) -> tuple[PartitionQueue, Chunk] | None:
        """Wait for the next chunk, or None when ``timeout`` seconds passed or the stream is closed.

        Raises:
            BaseException: what ``fail`` was told, once.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._lock:
            while True:
                if self._errors:
                    raise self._errors.popleft()
                if self._closed:
                    return None
                if self._ready:
                    break
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return None
                self._changed.wait(left)
            queue = self._ready.popleft()
            chunk = queue._chunks.popleft()
            if queue._chunks:
                self._ready.append(queue)
        queue.on_room()
        return queue, chunk

    def __len__(self) -> int:
        """Chunks that wait, in all queues of the stream."""
        with self._lock:
            return sum(len(queue._chunks) for queue in self._ready)

    @property
    def is_closed(self) -> bool:
        """Whether nothing will come any more."""
        return self._closed

    def close(self) -> None:
        """End the stream; what is queued is dropped."""
        with self._lock:
            self._closed = True
            for queue in self._ready:
                queue._chunks.clear()
            self._ready.clear()
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """Have a ``take`` raise it, after those before it."""
        with self._lock:
            self._errors.append(error)
            self._changed.notify_all()


class PartitionQueue:
    """The chunks of one partition, for the time that it is owned.

    Args:
        capacity: chunks (answers to fetches) that are kept at most.
    """

    def __init__(self, stream: StreamQueue, capacity: int) -> None:
        self._stream = stream
        self._capacity = capacity
        self._chunks: deque[Chunk] = deque()
        self.is_closed = False
        #: Called when a chunk was taken; set by the fetcher that fills the queue.
        self.on_room: Callable[[], object] = lambda: None

    @property
    def has_room(self) -> bool:
        """Whether the partition belongs into the next fetch request."""
        return len(self._chunks) < self._capacity

    @property
    def nbytes(self) -> int:
        """Bytes of records that wait here."""
        with self._stream._lock:
            return sum(chunk.nbytes for chunk in self._chunks)

    def put(self, chunk: Chunk) -> None:
        """Append a chunk; after ``close`` it is dropped."""
        stream = self._stream
        with stream._lock:
            if self.is_closed or stream._closed:
                return
            self._chunks.append(chunk)
            if len(self._chunks) == 1:
                stream._ready.append(self)
            stream._changed.notify()

    def close(self) -> None:
        """Drop what is queued, and what still comes."""
        stream = self._stream
        with stream._lock:
            self.is_closed = True
            if self._chunks:
                self._chunks.clear()
                stream._ready.remove(self)

    def renewed(self) -> PartitionQueue:
        """Return an empty queue of the same stream and capacity."""
        return PartitionQueue(self._stream, self._capacity)
