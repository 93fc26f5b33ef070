"""PartitionMap: the partitions of one fetcher thread.

Source: Kafka 1.1 AbstractFetcherThread.partitionStates.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from zkconsumer.fetcher.partition import PartitionTopicInfo
from zkconsumer.message import TopicPartition


class PartitionMap:
    """The partitions that a fetcher thread fetches, in request order.

    All methods may be called from any thread. At any time, a partition can be removed and re-added as a new
    ``PartitionTopicInfo``. Methods that take ``PartitionTopicInfo`` objects do nothing for objects that were replaced.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the map; never held during I/O
        self._infos: dict[TopicPartition, PartitionTopicInfo] = {}

    def add(self, infos: Iterable[PartitionTopicInfo]) -> None:
        """Add partitions, replacing existing objects for the same partitions."""
        with self._lock:
            self._infos.update({info.partition: info for info in infos})

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove partitions, regardless of the objects that the map holds for them."""
        with self._lock:
            for partition in partitions:
                self._infos.pop(partition, None)

    def remove_infos(self, infos: Iterable[PartitionTopicInfo]) -> list[PartitionTopicInfo]:
        """Remove exactly the given objects, and return the objects that were in the map."""
        with self._lock:
            held = [info for info in infos if self._infos.get(info.partition) is info]
            for info in held:
                del self._infos[info.partition]
        return held

    def move_to_end(self, info: PartitionTopicInfo) -> None:
        """Move the partition to the end of the request order."""
        with self._lock:
            if self._infos.get(info.partition) is info:
                del self._infos[info.partition]
                self._infos[info.partition] = info

    def holds(self, info: PartitionTopicInfo) -> bool:
        """Return whether the map holds this object."""
        return self._infos.get(info.partition) is info

    def infos(self) -> list[PartitionTopicInfo]:
        """Return all partitions, in request order."""
        with self._lock:
            return list(self._infos.values())
