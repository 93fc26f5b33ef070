"""Helpers for tests of a query in a group: plain consumers and end offsets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from helpers.reading import Reader
from helpers.waiting import wait_for

from zkconsumer import ConsumerConfig, create_consumer


class Plain:
    """A plain consumer with one thread per stream, which reads until the consumer leaves the group."""

    def __init__(self, config: ConsumerConfig, topics: Mapping[str, int]) -> None:
        self._connector = create_consumer(config)
        streams = self._connector.create_message_streams(topics)
        self._readers = [Reader(stream) for of_topic in streams.values() for stream in of_topic]

    @property
    def owned(self) -> list[int]:
        """Return the numbers of the owned partitions of all topics."""
        return sorted(partition for _, partition in self._connector.assignment)

    @property
    def offsets(self) -> Counter[tuple[int, int]]:
        """Return how often each (partition, offset) was read."""
        return Counter((m.partition, m.offset) for reader in self._readers for m in list(reader.seen))

    @property
    def count(self) -> int:
        """Return the number of messages read so far."""
        return sum(len(reader.seen) for reader in self._readers)

    def wait_for_messages(self, count: int) -> None:
        """Wait until ``count`` messages were read."""
        wait_for(lambda: self.count >= count, what=f"{count} messages")

    def wait_for_more(self, count: int) -> None:
        """Wait for ``count`` more messages."""
        self.wait_for_messages(self.count + count)

    def leave(self) -> None:
        """Shut down; raise the error of a stream if there was one."""
        self._connector.shutdown()
        for reader in self._readers:
            reader.finish()
