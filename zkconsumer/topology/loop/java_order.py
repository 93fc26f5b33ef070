"""Iteration orders of Java collections.

They determine topology descriptions, and the processing order of records and punctuations with equal timestamps.

Source: java.util.HashMap and java.util.PriorityQueue in OpenJDK 17.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from zkconsumer.javahash import java_hash, signed32

T = TypeVar("T")

_LOAD_FACTOR = 0.75


def topic_partition_hash(topic: str, partition: int) -> int:
    """Return the ``hashCode`` of a ``TopicPartition`` in Kafka's Java client."""
    return signed32(31 * (31 + partition) + java_hash(topic))


def hash_order(items: Iterable[T], hash_of: Callable[[T], int], *, copied: bool = False) -> list[T]:
    """Return the distinct items in the iteration order of a ``HashMap``.

    Args:
        items: items in insertion order.
        hash_of: function that returns an item's Java hash code.
        copied: whether the map was created from a collection, which can increase the map's initial capacity.
    """
    distinct = list(dict.fromkeys(items))
    size = 16
    if copied:
        while size < max(int(len(distinct) / _LOAD_FACTOR) + 1, 16):
            size *= 2
    while len(distinct) > size * _LOAD_FACTOR:
        size *= 2

    def bucket(item: T) -> int:
        value = hash_of(item) & 0xFFFFFFFF
        return (value ^ (value >> 16)) & (size - 1)

    return sorted(distinct, key=bucket)


def string_order(texts: Iterable[str], *, copied: bool = False) -> list[str]:
    """Return strings in the iteration order of a ``HashSet``; see ``hash_order``."""
    return hash_order(texts, java_hash, copied=copied)


class PriorityQueue(Generic[T]):
    """A binary heap that orders equal elements as ``java.util.PriorityQueue`` does.

    Args:
        key: function that returns an element's priority; the lowest comes first. The priority of a queued element must
            not change, unless it is the first element and is removed next.

    Attributes:
        items: elements in heap array order, which determines the order of elements with equal priority.
    """

    def __init__(self, key: Callable[[T], int]) -> None:
        self._key = key
        self.items: list[T] = []

    def __len__(self) -> int:
        return len(self.items)

    def peek(self) -> T | None:
        """Return the first element, or None if the queue is empty."""
        return self.items[0] if self.items else None

    def add(self, element: T) -> None:
        """Insert an element."""
        self.items.append(element)
        if len(self.items) > 1:
            self._sift_up(len(self.items) - 1, element)

    def poll(self) -> T | None:
        """Remove and return the first element, or return None if the queue is empty."""
        if not self.items:
            return None
        first, last = self.items[0], self.items.pop()
        if self.items:
            self._sift_down(0, last)
        return first

    def _sift_up(self, index: int, element: T) -> None:
        heap, key = self.items, self._key
        own = key(element)
        while index > 0:
            parent = (index - 1) >> 1
            if own >= key(heap[parent]):
                break
            heap[index] = heap[parent]
            index = parent
        heap[index] = element

    def _sift_down(self, index: int, element: T) -> None:
        heap, key = self.items, self._key
        own, half = key(element), len(heap) >> 1
        while index < half:
            child = 2 * index + 1
            if child + 1 < len(heap) and key(heap[child]) > key(heap[child + 1]):
                child += 1
            if own <= key(heap[child]):
                break
            heap[index] = heap[child]
            index = child
        heap[index] = element
