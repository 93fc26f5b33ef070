"""ConsumerFetcherManager: which fetcher thread has which partition, and which have no leader.

Source: Kafka 1.1 kafka.consumer.ConsumerFetcherManager, kafka.server.AbstractFetcherManager.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence

from zkconsumer.errors import ZkConsumerError
from zkconsumer.fetcher.leader_finder import LeaderFinderThread
from zkconsumer.fetcher.partition import PartitionTopicInfo
from zkconsumer.fetcher.queues import PartitionQueue
from zkconsumer.fetcher.settings import FetchSettings
from zkconsumer.fetcher.thread import ConsumerFetcherThread
from zkconsumer.javahash import java_hash, signed32
from zkconsumer.message import Endpoint, TopicPartition
from zkconsumer.metrics import Metrics


def fetcher_id(partition: TopicPartition, num_fetchers: int) -> int:
    """Return which of a broker's fetchers has the partition.

    Source: Kafka 1.1 AbstractFetcherManager.getFetcherId, with ``Utils.abs``, for which abs(-2^31) is 0.
    """
    signed = signed32(31 * java_hash(partition.topic) + partition.partition)
    return (0 if signed == -(1 << 31) else abs(signed)) % num_fetchers


class ConsumerFetcherManager:
    """Owns the leader finder and the fetcher threads.

    New partitions first have no leader; the leader finder places them. The lock guards the maps and is never
    held while a broker is asked or a thread is waited for; the leader finder's and the fetchers' own are taken
    inside it, never the other way round.

    Args:
        name: part of the names of the threads.
        brokers: returns the brokers that may be asked for leaders; called by the leader finder.
        num_fetchers: fetcher threads per broker.
        on_failure: given an error that a partition's reader has to be told.
        metrics: where it is counted.
    """

    def __init__(
        self,
        name: str,
        settings: FetchSettings,
        brokers: Callable[[], Sequence[Endpoint]],
        *,
        num_fetchers: int,
        on_failure: Callable[[PartitionTopicInfo, ZkConsumerError], None],
        metrics: Metrics | None = None,
    ) -> None:
        self._name = name
        self._settings = settings
        self._num_fetchers = num_fetchers
        self._on_failure = on_failure
        self._metrics = metrics or Metrics()
        self._lock = threading.Lock()
        self._infos: dict[TopicPartition, PartitionTopicInfo] = {}
        self._fetchers: dict[tuple[int, int], ConsumerFetcherThread] = {}
        self._leader_finder = LeaderFinderThread(
            f"{name}-leader-finder-thread", settings, brokers, self._add_fetchers, self._retire_idle, on_failure
        )

    def start_connections(self) -> None:
        """Start looking for leaders."""
        self._leader_finder.start()

    def stop_connections(self) -> None:
        """Stop the leader finder, then all fetchers at once (KAFKA-880, KAFKA-4319)."""
        self._leader_finder.close()
        with self._lock:
            fetchers = list(self._fetchers.values())
            self._fetchers.clear()
            self._infos.clear()
        for fetcher in fetchers:
            fetcher.close(join=False)
        for fetcher in fetchers:
            fetcher.close()

    def add_partitions(
        self,
        infos: Iterable[PartitionTopicInfo],
        leaders: Mapping[TopicPartition, tuple[int, Endpoint]] | None = None,
    ) -> None:
        """Fetch these partitions from wherever their leader is.

        Args:
            leaders: node id and endpoint where they were known a moment ago; the others are looked for.
        """
        wanted = list(infos)
        known = leaders or {}
        with self._lock:
            self._infos.update({info.partition: info for info in wanted})
        self._add_fetchers({info: known[info.partition] for info in wanted if info.partition in known})
        self._leader_finder.add_no_leader_partitions([info for info in wanted if info.partition not in known])

    def remove_partitions(self, partitions: Iterable[TopicPartition]) -> list[PartitionTopicInfo]:
        """Fetch these partitions no more; returns those that were fetched."""
        gone = set(partitions)
        with self._lock:
            infos = [self._infos.pop(partition) for partition in gone if partition in self._infos]
            fetchers = list(self._fetchers.values())
        self._leader_finder.remove_no_leader_partitions(gone)
        for fetcher in fetchers:
            fetcher.remove_partitions(gone)
        return infos

    def refetch(self, queue: PartitionQueue, partition: TopicPartition, offset: int) -> None:
        """Drop what is queued of a partition and fetch it again from ``offset``.

        The partition gets a new queue, so that an answer that is under way ends in the closed one.
        """
        with self._lock:
            info = self._infos.get(partition)
            if info is None or info.queue is not queue:
                return  # released meanwhile
            renewed = PartitionTopicInfo(partition, queue.renewed(), offset, info.until, info.reset)
            self._infos[partition] = renewed
            fetchers = list(self._fetchers.values())
            self._leader_finder.add_no_leader_partitions([renewed])
        queue.close()
        for fetcher in fetchers:
            fetcher.remove_infos([info])

    @property
    def infos(self) -> list[PartitionTopicInfo]:
        """All partitions that are to be fetched."""
        with self._lock:
            return list(self._infos.values())

    @property
    def min_fetch_rate(self) -> float:
        """Requests per second of the fetcher that makes the fewest."""
        with self._lock:
            fetchers = list(self._fetchers.values())
        return min((fetcher.request_rate for fetcher in fetchers), default=0.0)

    @property
    def no_leader_partitions(self) -> set[TopicPartition]:
        """Partitions whose leader is being looked for."""
        return self._leader_finder.no_leader_partitions

    def _add_fetchers(self, leaders: Mapping[PartitionTopicInfo, tuple[int, Endpoint]]) -> None:
        """Give partitions to the thread of their (broker, fetcher id)."""
        grouped: dict[tuple[int, int], tuple[Endpoint, list[PartitionTopicInfo]]] = {}
        replaced: list[ConsumerFetcherThread] = []
        with self._lock:
            for info, (node, endpoint) in leaders.items():
                if self._infos.get(info.partition) is info:  # else it was released meanwhile
                    key = (node, fetcher_id(info.partition, self._num_fetchers))
                    grouped.setdefault(key, (endpoint, []))[1].append(info)
            for (node, number), (endpoint, infos) in grouped.items():
                fetcher = self._fetchers.get((node, number))
                if fetcher is not None and (fetcher.endpoint != endpoint or fetcher.has_ended):  # the broker moved
                    replaced.append(fetcher)
                    fetcher = None
                if fetcher is None:
                    fetcher = ConsumerFetcherThread(
                        f"ConsumerFetcherThread-{self._name}-{number}-{node}",
                        endpoint,
                        self._settings,
                        self._find_leaders,
                        self._on_failure,
                        self._metrics,
                    )
                    self._fetchers[node, number] = fetcher
                    fetcher.start()
                fetcher.add_partitions(infos)
        for fetcher in replaced:
            self._find_leaders(fetcher.infos)
            fetcher.close()

    def _find_leaders(self, infos: Iterable[PartitionTopicInfo]) -> None:
        """Have the leaders of partitions looked for that are still to be fetched; called by the fetchers."""
        with self._lock:
            current = [info for info in infos if self._infos.get(info.partition) is info]
            self._leader_finder.add_no_leader_partitions(current)

    def _retire_idle(self) -> None:
        """Stop fetchers that have no partition left; called by the leader finder."""
        with self._lock:
            idle = [key for key, fetcher in self._fetchers.items() if not fetcher.infos]
            fetchers = [self._fetchers.pop(key) for key in idle]
        for fetcher in fetchers:
            fetcher.close()
