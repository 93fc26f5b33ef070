"""Queues between fetchers and a stream: one bounded queue of chunks per partition.

A partition whose queue is full is left out of the next fetch request, so a fetcher never waits for room. A stream takes
chunks from its non-empty queues in turn.

Source: Kafka 1.1 PartitionTopicInfo.enqueue. It has one queue per stream, which blocks the fetcher (KAFKA-832).
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from zkconsumer.fetcher.chunk import Chunk, QueueItem

#: Maximum number of errors that are kept for a stream that is not read; the oldest ones are dropped.
_MAX_ERRORS = 100


class ByteBudget:
    """The bytes that the queues of several partitions, and the responses that fill them, may take together.

    They are exceeded by one fetch of each fetcher at most, and by one record batch of each stream.

    Args:
        limit: maximum bytes.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._queued = self._reserved = 0
        self._watchers: set[threading.Event] = set()
        self._lock = threading.Lock()  # acquired inside the locks of streams

    @property
    def is_spent(self) -> bool:
        """Whether nothing more may be queued."""
        return self._queued >= self._limit

    def reserve(self, wanted: int, minimum: int) -> int:
        """Reserve up to ``wanted`` bytes for a response, and at least ``minimum``; returns how many.

        Most responses are smaller. The minimum keeps fetchers that wait for new records from slowing down the others.
        """
        with self._lock:
            granted = max(min(wanted, minimum), min(wanted, self._limit - self._queued - self._reserved))
            self._reserved += granted
            return granted

    def release(self, granted: int) -> None:
        """Return reserved bytes."""
        with self._lock:
            self._reserved -= granted

    def add(self, size: int) -> None:
        """Count queued bytes, or bytes that have left a queue if ``size`` is negative."""
        with self._lock:
            was_spent = self.is_spent
            self._queued += size
            if was_spent and not self.is_spent:
                for event in self._watchers:
                    event.set()
                self._watchers.clear()

    def unwatch(self, event: threading.Event) -> None:
        """Undo ``watch``, when the fetcher ends."""
        with self._lock:
            self._watchers.discard(event)

    def watch(self, event: threading.Event) -> None:
        """Set an event once when the budget is no longer spent.

        A fetcher calls it before it checks its queues. All of them may be empty, so that no reader wakes it.
        """
        with self._lock:
            self._watchers.add(event)


class StreamQueue:
    """The queues of one stream: takes items from those that are not empty, in turn.

    Any number of fetchers add items; one thread takes them. ``StreamQueue`` and ``PartitionQueue`` are one unit and use
    each other's private fields, because the lock of the stream guards its partition queues, too.

    Args:
        budget: bytes that all queues of this stream share with those of other streams.
    """

    def __init__(self, budget: ByteBudget) -> None:
        self._budget = budget
        self._nbytes = 0  # of records in all queues of this stream
        self._lock = threading.Lock()  # guards this object and the items of its partition queues
        self._changed = threading.Condition(self._lock)
        self._ready: deque[PartitionQueue] = deque()
        self._closed = False
        self._errors: deque[BaseException] = deque(maxlen=_MAX_ERRORS)
        self._final_error: BaseException | None = None

    def take(self, timeout_s: float | None) -> tuple[PartitionQueue, QueueItem] | None:
        """Return the next item and its queue, or None if the stream is closed or ``timeout_s`` has passed.

        Blocks until there is an item; without a limit if ``timeout_s`` is None.

        Raises:
            BaseException: an error passed to ``fail``; once, unless it is final.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self._lock:
            while True:
                if self._errors:
                    raise self._errors.popleft()
                if self._closed:
                    return None
                if self._final_error is not None:
                    raise self._final_error.with_traceback(None)
                if self._ready:
                    break
                remaining = None if deadline is None else deadline - time.monotonic()
                if remaining is not None and remaining <= 0:
                    return None
                self._changed.wait(remaining)
            queue = self._ready.popleft()
            item = queue._items.popleft()
            self._count(-item.nbytes)
            if queue._items:
                self._ready.append(queue)
        queue.on_room()
        return queue, item

    def __len__(self) -> int:
        """Return the number of items in all queues of the stream."""
        with self._lock:
            return sum(len(queue._items) for queue in self._ready)

    def _count(self, size: int) -> None:  # with the lock held
        self._nbytes += size
        self._budget.add(size)

    @property
    def is_closed(self) -> bool:
        """Whether the stream has been closed."""
        return self._closed

    def close(self) -> None:
        """Discard all items, and make ``take`` return None."""
        with self._lock:
            self._closed = True
            for queue in self._ready:
                queue._discard_items()
            self._ready.clear()
            self._changed.notify_all()

    def fail(self, error: BaseException, *, is_final: bool = False) -> None:
        """Make ``take`` raise an error. Errors are raised in order, before any item is returned.

        Args:
            is_final: raise the error each time, until ``close``.
        """
        with self._lock:
            if is_final:
                self._final_error = error
            else:
                self._errors.append(error)
            self._changed.notify_all()


class PartitionQueue:
    """The fetched items of one partition while it is assigned.

    Args:
        capacity: number of chunks at which the queue is full; other items do not count.
    """

    def __init__(self, stream: StreamQueue, capacity: int) -> None:
        self._stream = stream
        self._capacity = capacity
        self._items: deque[QueueItem] = deque()
        self.is_closed = False
        #: Called after an item has been taken; set by the fetcher that fills the queue.
        self.on_room: Callable[[], object] = lambda: None

    @property
    def has_room(self) -> bool:
        """Whether the next fetch request may include the partition.

        If the budget is spent, partitions have room only while their whole stream has no records. Otherwise, the reader
        of this stream could wait for the reader of another one.
        """
        stream = self._stream
        if stream._nbytes and stream._budget.is_spent:
            return False
        return len(self._items) < self._capacity or self._is_below_capacity()

    def _is_below_capacity(self) -> bool:
        with self._stream._lock:
            return sum(isinstance(item, Chunk) for item in self._items) < self._capacity

    def put(self, item: QueueItem) -> None:
        """Append an item, even if the queue is full; discards the item if the queue is closed."""
        stream = self._stream
        with stream._lock:
            if self.is_closed or stream._closed:
                return
            self._items.append(item)
            stream._count(item.nbytes)
            if len(self._items) == 1:
                stream._ready.append(self)
            stream._changed.notify()

    def close(self) -> None:
        """Discard the items in the queue and those that are still added."""
        stream = self._stream
        with stream._lock:
            self.is_closed = True
            if self._items:
                self._discard_items()
                stream._ready.remove(self)

    def replacement(self) -> PartitionQueue:
        """Return an empty queue of the same stream and capacity."""
        return PartitionQueue(self._stream, self._capacity)

    def _discard_items(self) -> None:  # with the stream's lock held
        self._stream._count(-sum(item.nbytes for item in self._items))
        self._items.clear()
