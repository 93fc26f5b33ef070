"""ConsumerMetrics: the metrics of one consumer, under the MBean names of the JVM consumer.

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
from zkconsumer.metrics import MetricName, Metrics
from zkconsumer.rebalance.member import GroupMember


class ConsumerMetrics:
    """Counts messages, and reads the gauges of the member, the queues and the fetchers.

    Any thread may call the methods.

    Args:
        config: names the client and the group in the tags.
        metrics: registry of the meters and the gauges.
        member: the group member.
        fetchers: its fetchers.
        queues: topic (or filter) and thread id to queue.
        health: returns the state of the consumer.
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
        self._metrics = metrics
        self._member = member
        self._fetchers = fetchers
        self._queues = queues
        self._health = health
        metrics.register_gauges(self._read_gauges)

    def count_consumed(self, partition: TopicPartition, messages: int) -> None:
        """Count messages that the application has consumed."""
        self._mark("MessagesPerSec", partition, messages)

    def count_skipped(self, partition: TopicPartition, offsets: int) -> None:
        """Count offsets of corrupt batches that were skipped."""
        self._mark("SkippedOffsetsPerSec", partition, offsets)

    def _mark(self, name: str, partition: TopicPartition, count: int) -> None:
        for tags in ({}, {"topic": partition.topic}):
            self._metrics.meter(
                "kafka.consumer", "ConsumerTopicMetrics", name, clientId=self._config.client_id, **tags
            ).mark(count)

    def _read_gauges(self) -> Iterator[tuple[MetricName, float]]:
        group, connector, manager = "kafka.consumer", "ZookeeperConsumerConnector", "ConsumerFetcherManager"
        client = {"clientId": self._config.client_id}
        member = {**client, "groupId": self._config.group_id}
        for (topic, thread), queue in self._queues.items():
            yield MetricName.of(group, connector, "FetchQueueSize", **client, topic=topic, threadId=thread), len(queue)
        owned = Counter(partition.topic for partition in self._member.assignment)
        yield MetricName.of(group, connector, "OwnedPartitionsCount", **member), owned.total()
        for topic, count in owned.items():
            yield MetricName.of(group, connector, "OwnedPartitionsCount", **member, topic=topic), count
        since = self._member.unbalanced_since
        unbalanced = 0.0 if since is None else time.monotonic() - since
        yield MetricName.of(group, connector, "UnbalancedSeconds", **client), unbalanced
        yield MetricName.of(group, connector, "Health", **client), self._health()
        infos = self._fetchers.infos
        yield MetricName.of(group, manager, "MaxLag", **client), max((i.lag for i in infos if i.lag > 0), default=0)
        yield MetricName.of(group, manager, "MinFetchRate", **client), self._fetchers.min_fetch_rate
        for info in infos:
            topic, number = info.partition
            tags = {**client, "topic": topic, "partition": number}
            yield MetricName.of("kafka.server", "FetcherLagMetrics", "ConsumerLag", **tags), info.lag
