"""ConsumerFetcherManager: assigns partitions to fetcher threads by leader.

Source: Kafka 1.1 kafka.consumer.ConsumerFetcherManager, kafka.server.AbstractFetcherManager.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence

from zkconsumer.errors import ZkConsumerError
from zkconsumer.fetcher.channel_pool import ChannelPool
from zkconsumer.fetcher.fetch_settings import FetchSettings
from zkconsumer.fetcher.leader_finder import LeaderFinderThread
from zkconsumer.fetcher.partition import PartitionTopicInfo
from zkconsumer.fetcher.queues import ByteBudget, PartitionQueue
from zkconsumer.fetcher.requests import FetchRequests
from zkconsumer.fetcher.thread import ConsumerFetcherThread
from zkconsumer.health import Problem
from zkconsumer.javahash import java_hash, signed32
from zkconsumer.message import Endpoint, TopicPartition
from zkconsumer.metrics import Metrics


def fetcher_id(partition: TopicPartition, num_consumer_fetchers: int) -> int:
    """Return the number of the partition's fetcher among a broker's fetchers.

    Source: Kafka 1.1 AbstractFetcherManager.getFetcherId, whose ``Utils.abs`` maps -2^31 to 0.
    """
    signed = signed32(31 * java_hash(partition.topic) + partition.partition)
    return (0 if signed == -(1 << 31) else abs(signed)) % num_consumer_fetchers


class ConsumerFetcherManager:
    """Owns the leader finder and the fetcher threads.

    If the leader of a partition is unknown, the leader finder looks it up and assigns the partition to a fetcher. The
    lock guards the maps and is never held during I/O or while a thread is joined. While it is held, the locks of the
    leader finder and the fetchers may be acquired, but never the other way round.

    Args:
        name: part of the thread names.
        settings: fetch settings, including the number of fetcher threads per broker.
        brokers: function that returns the brokers to query for leaders; called by the leader finder thread.
        on_failure: function that is called with a partition and the error to raise to its reader.
        metrics: metrics registry; None to disable metrics.
        channels: connection pool that receives the connections of closed fetchers; None to close them.

    Attributes:
        budget: byte limit shared by the queues and responses of all partitions.
    """

    def __init__(
        self,
        name: str,
        settings: FetchSettings,
        brokers: Callable[[], Sequence[Endpoint]],
        *,
        on_failure: Callable[[PartitionTopicInfo, ZkConsumerError], None],
        metrics: Metrics | None = None,
        channels: ChannelPool | None = None,
    ) -> None:
        self._name = name
        self._settings = settings
        self._on_failure = on_failure
        self._metrics = metrics or Metrics()
        self.budget = ByteBudget(settings.queued_max_bytes)
        self._channels = channels
        self._lock = threading.Lock()
        self._infos: dict[TopicPartition, PartitionTopicInfo] = {}
        self._fetchers: dict[tuple[int, int], ConsumerFetcherThread] = {}
        self._leader_finder = LeaderFinderThread(
            f"{name}-leader-finder-thread",
            settings,
            brokers,
            self._add_fetchers,
            self._shutdown_idle_fetchers,
            on_failure,
        )

    def start_connections(self) -> None:
        """Start the leader finder."""
        self._leader_finder.start()

    def stop_connections(self) -> None:
        """Stop the leader finder, then all fetchers in parallel (KAFKA-880, KAFKA-4319)."""
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
        """Start fetching partitions from their leaders.

        Args:
            leaders: known leaders, as ``(broker id, endpoint)``; missing leaders are looked up.
        """
        added = list(infos)
        known = leaders or {}
        with self._lock:
            self._infos.update({info.partition: info for info in added})
        self._add_fetchers({info: known[info.partition] for info in added if info.partition in known})
        self._leader_finder.add_no_leader_partitions([info for info in added if info.partition not in known])

    def remove_partitions(self, partitions: Iterable[TopicPartition]) -> list[PartitionTopicInfo]:
        """Stop fetching the given partitions, and return their ``PartitionTopicInfo`` objects."""
        removed = set(partitions)
        with self._lock:
            infos = [self._infos.pop(partition) for partition in removed if partition in self._infos]
            fetchers = list(self._fetchers.values())
        self._leader_finder.remove_no_leader_partitions(removed)
        for fetcher in fetchers:
            fetcher.remove_partitions(removed)
        return infos

    def refetch(self, queue: PartitionQueue, partition: TopicPartition, offset: int) -> None:
        """Discard a partition's queue, and refetch the partition from ``offset``.

        The partition gets a new queue. Records of an in-flight response are added to the old queue, which discards
        them.
        """
        with self._lock:
            info = self._infos.get(partition)
            if info is None or info.queue is not queue:
                return  # revoked in the meantime
            replacement = PartitionTopicInfo(partition, queue.replacement(), offset, info.until, info.auto_offset_reset)
            self._infos[partition] = replacement
            fetchers = list(self._fetchers.values())
            self._leader_finder.add_no_leader_partitions([replacement])
        queue.close()
        for fetcher in fetchers:
            fetcher.remove_infos([info])

    @property
    def infos(self) -> list[PartitionTopicInfo]:
        """All partitions, with and without a leader."""
        with self._lock:
            return list(self._infos.values())

    @property
    def problems(self) -> list[tuple[TopicPartition, Problem]]:
        """Partitions that cannot be fetched, with the reason."""
        return [(info.partition, problem) for info in self.infos if (problem := info.problem) is not None]

    @property
    def min_fetch_rate(self) -> float:
        """Requests per second of the slowest fetcher; 0 if there are no fetchers."""
        with self._lock:
            fetchers = list(self._fetchers.values())
        return min((fetcher.request_rate for fetcher in fetchers), default=0.0)

    @property
    def no_leader_partitions(self) -> set[TopicPartition]:
        """Partitions whose leader is unknown."""
        return self._leader_finder.no_leader_partitions

    def _add_fetchers(self, leaders: Mapping[PartitionTopicInfo, tuple[int, Endpoint]]) -> None:
        """Assign partitions to the fetchers of their leaders, and start missing fetchers."""
        by_fetcher: dict[tuple[int, int], tuple[Endpoint, list[PartitionTopicInfo]]] = {}
        replaced: list[ConsumerFetcherThread] = []
        with self._lock:
            for info, (broker_id, endpoint) in leaders.items():
                if self._infos.get(info.partition) is info:  # otherwise, it was revoked in the meantime
                    key = (broker_id, fetcher_id(info.partition, self._settings.num_consumer_fetchers))
                    by_fetcher.setdefault(key, (endpoint, []))[1].append(info)
            for key, (endpoint, infos) in by_fetcher.items():
                fetcher = self._fetchers.get(key)
                if fetcher is not None and (fetcher.endpoint != endpoint or fetcher.has_ended):
                    replaced.append(fetcher)
                    fetcher = None
                if fetcher is None:
                    fetcher = self._fetchers[key] = self._new_fetcher(*key, endpoint)
                    fetcher.start()
                fetcher.add_partitions(infos)
        for fetcher in replaced:
            self._find_leaders(fetcher.infos)
            fetcher.close()

    def _new_fetcher(self, broker_id: int, number: int, endpoint: Endpoint) -> ConsumerFetcherThread:
        return ConsumerFetcherThread(
            f"ConsumerFetcherThread-{self._name}-{number}-{broker_id}",
            FetchRequests(endpoint, self._settings, self.budget, self._metrics, self._channels),
            self._settings,
            self.budget,
            self._find_leaders,
            self._on_failure,
        )

    def _find_leaders(self, infos: Iterable[PartitionTopicInfo]) -> None:
        """Pass partitions to the leader finder, unless they were removed; called by the fetchers."""
        with self._lock:
            current = [info for info in infos if self._infos.get(info.partition) is info]
            self._leader_finder.add_no_leader_partitions(current)

    def _shutdown_idle_fetchers(self) -> None:
        """Stop fetchers without partitions; called by the leader finder."""
        with self._lock:
            idle = [key for key, fetcher in self._fetchers.items() if not fetcher.infos]
            fetchers = [self._fetchers.pop(key) for key in idle]
        for fetcher in fetchers:
            fetcher.close()
