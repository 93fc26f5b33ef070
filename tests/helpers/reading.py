"""Read streams, in the thread of the test or in another one, and compare what was read."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

from helpers.waiting import TIMEOUT_S
from zkconsumer import KafkaStream, MessageAndMetadata

T = TypeVar("T")


def take(stream: Iterable[T], count: int) -> list[T]:
    """Return the next ``count`` items of a stream; its consumer should have a ``consumer.timeout.ms``."""
    items = list(islice(stream, count))
    assert len(items) == count, f"the stream ended after {len(items)} of {count}"
    return items


def values(messages: Iterable[MessageAndMetadata]) -> list[Any]:
    """Return the values of messages."""
    return [message.value for message in messages]


def by_partition(items: Iterable[MessageAndMetadata]) -> dict[int, list[int]]:
    """Return the offsets of each partition in the order in which they were read."""
    found: dict[int, list[int]] = {}
    for item in items:
        found.setdefault(item.partition, []).append(item.offset)
    return found


class Reader(threading.Thread):
    """A thread that reads a stream to its end or to the first error, like an application.

    ``seen`` grows while the thread runs. ``error`` is the exception that ended it, None for a normal end.
    """

    def __init__(self, stream: KafkaStream | Iterator[Any]) -> None:
        super().__init__(name="test-reader", daemon=True)
        self.seen: list[Any] = []
        self.error: BaseException | None = None
        self._stream = stream
        self.start()

    def run(self) -> None:
        try:
            for item in self._stream:
                self.seen.append(item)
        except BaseException as error:
            self.error = error

    @property
    def values(self) -> list[bytes]:
        """Return the values that were read so far."""
        return values(list(self.seen))

    def finish(self, timeout: float = TIMEOUT_S) -> None:
        """Wait for the end of the stream; raise the error that ended it."""
        self.join(timeout)
        assert not self.is_alive(), f"the stream did not end; {len(self.seen)} items were read"
        if self.error is not None:
            raise self.error
