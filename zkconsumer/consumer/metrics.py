"""ConsumerMetrics: the metrics of a consumer, under the Scala consumer's MBean names.

Source: Kafka 1.1 ZookeeperConsumerConnector, ConsumerTopicStats, ConsumerFetcherManager, FetcherLagMetrics.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from zkconsumer.config import ConsumerConfig
from zkconsumer.fetcher.manager import ConsumerFetcherManager
from zkconsumer.fetcher.queues import StreamQueue
from zkconsumer.health import HealthState
from zkconsumer.message import TopicPartition
from zkconsumer.metrics import Kind, MetricName, Metrics, TopicMeters, declare
from zkconsumer.rebalance.member import GroupMember

_CONNECTOR = "kafka.consumer", "ZookeeperConsumerConnector"
_MANAGER = "kafka.consumer", "ConsumerFetcherManager"
_TOPICS = "kafka.consumer", "ConsumerTopicMetrics"

_QUEUE_SIZE = declare(
    *_CONNECTOR, "FetchQueueSize", Kind.GAUGE, "clientId, topic, threadId", "Number of chunks in a stream's queues."
)
_OWNED = declare(
    *_CONNECTOR, "OwnedPartitionsCount", Kind.GAUGE, "clientId, groupId, [topic]", "Number of owned partitions."
)
_UNBALANCED = declare(
    *_CONNECTOR,
    "UnbalancedSeconds",
    Kind.GAUGE,
    "clientId",
    "Seconds since the first failed rebalance or the member's failure; 0 if the member is balanced.",
)
_HEALTH = declare(
    *_CONNECTOR, "Health", Kind.GAUGE, "clientId", "0 healthy, 1 rebalancing, 2 stalled, 3 disconnected, 4 failed."
)
_MAX_LAG = declare(*_MANAGER, "MaxLag", Kind.GAUGE, "clientId", "Highest lag of any owned partition, in messages.")
_MIN_FETCH_RATE = declare(
    *_MANAGER, "MinFetchRate", Kind.GAUGE, "clientId", "Fetch requests per second of the slowest fetcher."
)
_LAG = declare(
    "kafka.server",
    "FetcherLagMetrics",
    "ConsumerLag",
    Kind.GAUGE,
    "clientId, topic, partition",
    "Partition lag, in messages.",
)
_MESSAGES = declare(
    *_TOPICS, "MessagesPerSec", Kind.METER, "clientId, [topic]", "Messages consumed by the application."
)
_SKIPPED = declare(
    *_TOPICS,
    "SkippedOffsetsPerSec",
    Kind.METER,
    "clientId, [topic]",
    "Offsets in skipped corrupt batches (``corrupt.record.policy=skip``).",
)


class ConsumerMetrics:
    """Counts messages, and provides gauges for the member, the queues and the fetchers. Thread-safe.

    Args:
        config: consumer configuration, which contains the client and group ids for the tags.
        metrics: registry for the meters and gauges.
        member: the group member.
        fetchers: the member's fetchers.
        queues: stream queues by topic (or filter) and thread id.
        health: function that returns the consumer's health state.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        metrics: Metrics,
        member: GroupMember,
        fetchers: ConsumerFetcherManager,
        queues: Mapping[tuple[str, str], StreamQueue],
        health: Callable[[], HealthState],
    ) -> None:
        self._config = config
        self._messages = TopicMeters(metrics, _MESSAGES, clientId=config.client_id)
        self._skipped = TopicMeters(metrics, _SKIPPED, clientId=config.client_id)
        self._member = member
        self._fetchers = fetchers
        self._queues = queues
        self._health = health
        metrics.register_gauges(self._read_gauges)

    def count_consumed(self, partition: TopicPartition, messages: int) -> None:
        """Count messages consumed by the application."""
        self._messages.mark(partition.topic, messages)

    def count_skipped(self, partition: TopicPartition, offsets: int) -> None:
        """Count the offsets in skipped corrupt batches."""
        self._skipped.mark(partition.topic, offsets)

    def _read_gauges(self) -> Iterator[tuple[MetricName, float]]:
        client = {"clientId": self._config.client_id}
        member = {**client, "groupId": self._config.group_id}
        for (topic, thread), queue in self._queues.items():
            yield _QUEUE_SIZE.named(**client, topic=topic, threadId=thread), len(queue)
        owned = Counter(partition.topic for partition in self._member.assignment)
        yield _OWNED.named(**member), owned.total()
        for topic, count in owned.items():
            yield _OWNED.named(**member, topic=topic), count
        since = self._member.unbalanced_since
        yield _UNBALANCED.named(**client), 0.0 if since is None else time.monotonic() - since
        yield _HEALTH.named(**client), self._health()
        infos = self._fetchers.infos
        yield _MAX_LAG.named(**client), max((i.lag for i in infos if i.lag > 0), default=0)
        yield _MIN_FETCH_RATE.named(**client), self._fetchers.min_fetch_rate
        for info in infos:
            topic, number = info.partition
            yield _LAG.named(**client, topic=topic, partition=number), info.lag
