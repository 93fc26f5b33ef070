"""Queues between fetchers and a stream: one bounded queue of chunks per partition.

A partition whose queue is full is left out of the next fetch request, so a fetcher never blocks on a full queue. A
stream takes chunks from its non-empty queues round-robin.

See docs/decisions/11-queue-per-partition.rst.

Source: Kafka 1.1 PartitionTopicInfo.enqueue. The Scala consumer has one queue per stream, and a full queue blocks the
fetcher (KAFKA-832).
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from zkconsumer.fetcher.chunk import Chunk, QueueItem
from zkconsumer.threads import WAKE_INTERVAL_S, WakeUp

#: Maximum number of errors kept for a stream that is not being read; the oldest errors are dropped.
_MAX_ERRORS = 100


class ByteBudget:
    """Byte limit shared by the queues of several partitions and the responses that fill them.

    The limit is exceeded by at most one fetch per fetcher and one record batch per stream.

    Args:
        limit: maximum bytes.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._queued = self._reserved = 0
        self._watchers: set[WakeUp] = set()
        self._lock = threading.Lock()  # may be acquired while a stream's lock is held

    @property
    def is_spent(self) -> bool:
        """Whether the number of queued bytes has reached the limit."""
        return self._queued >= self._limit

    def reserve(self, wanted: int, minimum: int) -> int:
        """Reserve up to ``wanted`` bytes for a response, but at least ``minimum``; return the number of bytes reserved.

        A fetcher that waits for new records holds its whole reservation, although most responses are smaller. The
        minimum ensures that this does not stop other fetchers.
        """
        with self._lock:
            granted = max(min(wanted, minimum), min(wanted, self._limit - self._queued - self._reserved))
            self._reserved += granted
            return granted

    def release(self, granted: int) -> None:
        """Release ``granted`` reserved bytes."""
        with self._lock:
            self._reserved -= granted

    def add(self, size: int) -> None:
        """Add ``size`` to the number of queued bytes; ``size`` is negative for bytes that left a queue."""
        with self._lock:
            was_spent = self.is_spent
            self._queued += size
            if was_spent and not self.is_spent:
                for wake_up in self._watchers:
                    wake_up.set()
                self._watchers.clear()

    def unwatch(self, wake_up: WakeUp) -> None:
        """Undo ``watch``; called when the fetcher terminates."""
        with self._lock:
            self._watchers.discard(wake_up)

    def watch(self, wake_up: WakeUp) -> None:
        """Set ``wake_up`` once, when the budget is no longer spent.

        A fetcher calls this before it checks its queues. If they are all empty, no reader takes items from them, so
        only the budget can wake the fetcher. Otherwise, the items that readers take need not wake it.
        """
        with self._lock:
            self._watchers.add(wake_up)


class StreamQueue:
    """The queues of one stream; items are taken from the non-empty queues round-robin.

    Any number of fetchers add items; one thread takes them. ``StreamQueue`` and ``PartitionQueue`` are one unit and use
    each other's private fields, because the stream's lock also guards its partition queues.

    Args:
        budget: byte limit shared with the queues of other streams.
    """

    def __init__(self, budget: ByteBudget) -> None:
        self._budget = budget
        self._nbytes = 0  # total size of the records in this stream's queues
        self._lock = threading.Lock()  # guards this object and the items of its partition queues
        self._changed = WakeUp()
        self._ready: deque[PartitionQueue] = deque()
        self._closed = False
        #: Whether ``stop`` was called.
        self.is_stopped = False
        self._errors: deque[BaseException] = deque(maxlen=_MAX_ERRORS)
        self._final_error: BaseException | None = None

    def take(self, timeout_s: float | None) -> tuple[PartitionQueue, QueueItem] | None:
        """Return the next item and its queue, or None if the stream has ended or ``timeout_s`` expires.

        Blocks until an item is available, indefinitely if ``timeout_s`` is None.

        Raises:
            BaseException: an error passed to ``fail``; it is raised only once, unless it is final.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            taken = None
            with self._lock:
                if self._errors:
                    raise self._errors.popleft()
                if self.has_ended:
                    return None
                if self._final_error is not None:
                    raise self._final_error.with_traceback(None)
                if self._ready:
                    taken = self._take_ready()
            if taken is not None:
                taken[0].on_room(taken[0])
                return taken
            remaining = None if deadline is None else deadline - time.monotonic()
            if remaining is not None and remaining <= 0:
                return None
            self._changed.wait(WAKE_INTERVAL_S if remaining is None else min(remaining, WAKE_INTERVAL_S))

    def _take_ready(self) -> tuple[PartitionQueue, QueueItem]:  # the caller must hold the lock
        queue = self._ready.popleft()
        item = queue._items.popleft()
        self._count(-item.nbytes)
        if queue._items:
            self._ready.append(queue)
        return queue, item

    def __len__(self) -> int:
        """Return the number of items in all queues of the stream."""
        with self._lock:
            return sum(len(queue._items) for queue in self._ready)

    def _count(self, size: int) -> None:  # the caller must hold the lock
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
        self._changed.set()

    @property
    def has_ended(self) -> bool:
        """Whether the stream was closed or stopped."""
        return self._closed or self.is_stopped

    def stop(self) -> None:
        """Make ``take`` return None, and keep all items. May be called in a signal handler, so it acquires no lock."""
        self.is_stopped = True
        self._changed.set()

    def fail(self, error: BaseException, *, is_final: bool = False) -> None:
        """Make ``take`` raise ``error``; errors are raised in order, before any item is returned.

        Args:
            is_final: whether to raise the error on every call until ``close``.
        """
        with self._lock:
            if is_final:
                self._final_error = error
            else:
                self._errors.append(error)
        self._changed.set()


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
        #: Function that is called with the queue after an item is taken; set by the fetcher that fills the queue.
        self.on_room: Callable[[PartitionQueue], object] = lambda _: None

    @property
    def has_room(self) -> bool:
        """Whether the next fetch request may include the partition.

        If the budget is spent, a partition has room only if its stream has no queued records. Without this exception,
        the reader of an empty stream might have to wait for the readers of other streams.
        """
        stream = self._stream
        if stream._nbytes and stream._budget.is_spent:
            return False
        return len(self._items) < self._capacity or self._is_below_capacity()

    def _is_below_capacity(self) -> bool:
        with self._stream._lock:
            return sum(isinstance(item, Chunk) for item in self._items) < self._capacity

    @property
    def stream(self) -> StreamQueue:
        """The stream that takes the items."""
        return self._stream

    @property
    def is_empty(self) -> bool:
        """Whether all items were taken."""
        return not self._items

    def put(self, item: QueueItem) -> None:
        """Append an item, even if the queue is full; discard the item if the queue is closed."""
        stream = self._stream
        with stream._lock:
            if self.is_closed or stream._closed:
                return
            self._items.append(item)
            stream._count(item.nbytes)
            if len(self._items) == 1:
                stream._ready.append(self)
        stream._changed.set()

    def close(self) -> None:
        """Discard all items in the queue, and all items that are added later."""
        stream = self._stream
        with stream._lock:
            self.is_closed = True
            if self._items:
                self._discard_items()
                stream._ready.remove(self)

    def replacement(self) -> PartitionQueue:
        """Return an empty queue with the same stream and capacity."""
        return PartitionQueue(self._stream, self._capacity)

    def _discard_items(self) -> None:  # the caller must hold the stream's lock
        self._stream._count(-sum(item.nbytes for item in self._items))
        self._items.clear()
