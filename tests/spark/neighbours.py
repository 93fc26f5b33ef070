"""What is around a query: plain consumers of its group, a load, and brokers that come back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from support import Reader, wait_for

from zkconsumer import ConsumerConfig, create_consumer
from zkconsumer.devcluster import DevCluster, ExistingCluster
from zkconsumer.errors import ZkConsumerError

Cluster = DevCluster | ExistingCluster


class Plain:
    """A plain consumer whose streams are each read by a thread, until it leaves."""

    def __init__(self, config: ConsumerConfig, topics: Mapping[str, int]) -> None:
        self._connector = create_consumer(config)
        streams = self._connector.create_message_streams(topics)
        self._readers = [Reader(stream) for of_topic in streams.values() for stream in of_topic]

    @property
    def owned(self) -> list[int]:
        """Numbers of the partitions that are owned, of all topics."""
        return sorted(partition for _, partition in self._connector.assignment)

    @property
    def offsets(self) -> Counter[tuple[int, int]]:
        """How often each (partition, offset) was read."""
        return Counter((m.partition, m.offset) for reader in self._readers for m in list(reader.seen))

    @property
    def count(self) -> int:
        """How many messages were read so far."""
        return sum(len(reader.seen) for reader in self._readers)

    def wait_for_messages(self, count: int) -> None:
        """Wait until ``count`` messages were read."""
        wait_for(lambda: self.count >= count, what=f"{count} messages")

    def wait_for_more(self, count: int) -> None:
        """Wait for ``count`` messages more."""
        self.wait_for_messages(self.count + count)

    def leave(self) -> None:
        """Shut down; raises what a stream raised."""
        self._connector.shutdown()
        for reader in self._readers:
            reader.finish()


def end_offsets(cluster: Cluster, topic: str, partitions: int) -> dict[int, int]:
    """Return the end of each partition's log, from whoever leads it now."""

    def ask() -> dict[int, int]:
        with cluster.new_admin() as admin:
            try:
                admin.wait_for_leaders(topic, partitions)
                return admin.offsets(topic, partitions)
            except ZkConsumerError:
                return {}

    return wait_for(ask, what="all partitions tell their end")
