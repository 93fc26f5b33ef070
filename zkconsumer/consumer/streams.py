"""ConsumerStreams: the streams of one consumer.

Source: Kafka 1.1 ZookeeperConsumerConnector.topicThreadIdAndQueues.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from zkconsumer.consumer.owner import StreamOwner
from zkconsumer.consumer.stream import KafkaStream, StreamSettings
from zkconsumer.errors import ZkConsumerError
from zkconsumer.fetcher.queues import ByteBudget, StreamQueue
from zkconsumer.message import TopicPartition
from zkconsumer.zookeeper.registry import Registration, thread_ids

#: Identifies a stream: the topic, or the regular expression of a filter, and the thread id.
StreamKey = tuple[str, str]


class ConsumerStreams:
    """The streams of a consumer, and which of them receives the records of each partition.

    The member's thread calls the methods, except that fetchers call ``fail_partition`` and the thread of the lease
    calls ``end_lease``. Only the member's thread writes ``_thread_of``.

    Args:
        registration: the topics, or the filter, and the number of streams for each.
        consumer_id: part of the thread ids.
        budget: bytes that the queues of all streams share.
        owner: the consumer.
        settings: settings of all streams.

    Attributes:
        by_topic: the streams by topic, or by the regular expression of a filter.
        queues: the queues of the streams.
    """

    def __init__(
        self,
        registration: Registration,
        consumer_id: str,
        budget: ByteBudget,
        owner: StreamOwner,
        settings: StreamSettings,
    ) -> None:
        #: The streams of a filter receive the records of all topics that it selects.
        self._filter = next(iter(registration.subscription)) if registration.is_filter else None
        self._streams: dict[StreamKey, KafkaStream] = {}
        self._thread_of: dict[TopicPartition, str] = {}
        self.by_topic: dict[str, list[KafkaStream]] = {}
        self.queues: dict[StreamKey, StreamQueue] = {}
        for name, count in registration.subscription.items():
            self.by_topic[name] = []
            for thread in thread_ids(consumer_id, count):
                queue = self.queues[name, thread] = StreamQueue(budget)
                stream = self._streams[name, thread] = KafkaStream(name, queue, owner, settings)
                self.by_topic[name].append(stream)

    @property
    def partitions(self) -> set[TopicPartition]:
        """The partitions whose records are delivered."""
        return set(self._thread_of)

    def acquire(self, partition: TopicPartition, thread_id: str, offset: int) -> StreamQueue:
        """Deliver the records of a partition to the stream of a thread id, and return the queue of this stream.

        Args:
            offset: the next offset to consume; -1 if it is not known yet.
        """
        key = self._key(partition, thread_id)
        self._thread_of[partition] = thread_id
        self._streams[key].positions.acquire(partition, offset)
        return self.queues[key]

    def release(self, partitions: Set[TopicPartition]) -> dict[TopicPartition, int]:
        """Stop the delivery of partitions, and return the next offset to consume of each.

        Their queues must have been closed.
        """
        offsets: dict[TopicPartition, int] = {}
        for partition in partitions:
            thread = self._thread_of.pop(partition, None)
            if thread is not None:
                offsets.update(self._streams[self._key(partition, thread)].positions.release({partition}))
        return offsets

    def offsets(self, *, include_current: bool) -> dict[TopicPartition, int]:
        """Return the next offset to consume of each partition, -1 if it is not known yet.

        Args:
            include_current: count the item that each stream has delivered last as consumed.
        """
        offsets: dict[TopicPartition, int] = {}
        for stream in self._streams.values():
            offsets.update(stream.positions.offsets(include_current=include_current))
        return offsets

    def mark_committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Count records as consumed if their offsets are below those that the application has committed."""
        for stream in self._streams.values():
            stream.positions.mark_committed(offsets)

    def end_lease(self) -> None:
        """Stop the delivery of the records that the streams have decoded."""
        for stream in self._streams.values():
            stream.positions.end_lease()

    def fail(self, error: ZkConsumerError) -> None:
        """Make all streams raise the error from now on."""
        for queue in self.queues.values():
            queue.fail(error, is_final=True)

    def fail_partition(self, partition: TopicPartition, error: ZkConsumerError) -> None:
        """Make the stream of a partition raise the error once."""
        thread = self._thread_of.get(partition)
        if thread is not None:
            self.queues[self._key(partition, thread)].fail(error)

    def close(self) -> None:
        """End all streams."""
        for stream in self._streams.values():
            stream.close()

    def _key(self, partition: TopicPartition, thread_id: str) -> StreamKey:
        return self._filter or partition.topic, thread_id
