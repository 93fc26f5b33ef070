"""ConsumerStreams: the streams of a consumer.

Source: Kafka 1.1 ZookeeperConsumerConnector.topicThreadIdAndQueues.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from zkconsumer.consumer.owner import StreamOwner
from zkconsumer.consumer.stream import KafkaStream, StreamSettings
from zkconsumer.errors import ZkConsumerError
from zkconsumer.fetcher.queues import ByteBudget, StreamQueue
from zkconsumer.message import TopicPartition
from zkconsumer.zookeeper.registry import Registration, thread_ids

#: Key of a stream: the topic (or the filter's regular expression) and the thread id.
StreamKey = tuple[str, str]


class ConsumerStreams:
    """The streams of a consumer, and the mapping from partitions to streams.

    The member thread calls the methods, with three exceptions: the fetchers and the leader finder call
    ``fail_partition``, the lease thread calls ``end_lease``, and any thread calls ``stop`` and ``close``.
    Only the member thread modifies ``_thread_of``.

    Args:
        registration: topics or topic filter, with the number of streams for each.
        consumer_id: consumer id, which is part of the thread ids.
        budget: byte limit shared by the queues of all streams.
        owner: consumer that owns the streams.
        settings: settings shared by all streams.

    Attributes:
        by_topic: streams by topic, or by the filter's regular expression.
        queues: queues of the streams.
    """

    def __init__(
        self,
        registration: Registration,
        consumer_id: str,
        budget: ByteBudget,
        owner: StreamOwner,
        settings: StreamSettings,
    ) -> None:
        #: Regular expression of the topic filter, whose streams receive the records of all matching topics.
        self._filter = next(iter(registration.subscription)) if registration.is_filter else None
        self._streams: dict[StreamKey, KafkaStream[Any, Any]] = {}
        self._thread_of: dict[TopicPartition, str] = {}
        self.by_topic: dict[str, list[KafkaStream[Any, Any]]] = {}
        self.queues: dict[StreamKey, StreamQueue] = {}
        for name, count in registration.subscription.items():
            self.by_topic[name] = []
            for thread in thread_ids(consumer_id, count):
                queue = self.queues[name, thread] = StreamQueue(budget)
                stream = self._streams[name, thread] = KafkaStream(name, queue, owner, settings)
                self.by_topic[name].append(stream)

    @property
    def partitions(self) -> set[TopicPartition]:
        """Partitions whose records are delivered to the streams."""
        return set(self._thread_of)

    def acquire(self, partition: TopicPartition, thread_id: str, offset: int) -> StreamQueue:
        """Start delivering a partition's records to the stream of ``thread_id``, and return the stream's queue.

        Args:
            offset: next offset to consume; -1 if it is not known yet.
        """
        key = self._key(partition, thread_id)
        self._thread_of[partition] = thread_id
        self._streams[key].positions.acquire(partition, offset)
        return self.queues[key]

    def release(self, partitions: Set[TopicPartition]) -> dict[TopicPartition, int]:
        """Stop delivering the partitions' records, and return the next offset to consume from each partition.

        The partitions' queues must already be closed.
        """
        offsets: dict[TopicPartition, int] = {}
        for partition in partitions:
            thread = self._thread_of.pop(partition, None)
            if thread is not None:
                offsets.update(self._streams[self._key(partition, thread)].positions.release({partition}))
        return offsets

    def offsets(self, *, include_current: bool) -> dict[TopicPartition, int]:
        """Return the next offset to consume from each partition; -1 if it is not known yet.

        Args:
            include_current: whether to treat the last item delivered by each stream as consumed.
        """
        offsets: dict[TopicPartition, int] = {}
        for stream in self._streams.values():
            offsets.update(stream.positions.offsets(include_current=include_current))
        return offsets

    def consume_delivered(self) -> dict[TopicPartition, int]:
        """Mark all delivered items as consumed, and return the next offset to consume from each partition."""
        offsets: dict[TopicPartition, int] = {}
        for stream in self._streams.values():
            offsets.update(stream.positions.consume_delivered())
        return offsets

    def end_lease(self) -> None:
        """Stop delivering the records that the streams have decoded."""
        for stream in self._streams.values():
            stream.positions.end_lease()

    def fail(self, error: ZkConsumerError) -> None:
        """Make all streams raise ``error`` from now on."""
        for queue in self.queues.values():
            queue.fail(error, is_final=True)

    def fail_partition(self, partition: TopicPartition, error: ZkConsumerError) -> None:
        """Make the partition's stream raise ``error`` once."""
        thread = self._thread_of.get(partition)
        if thread is not None:
            self.queues[self._key(partition, thread)].fail(error)

    def stop(self) -> None:
        """End the iteration over each stream after its current item. May be called in a signal handler."""
        for stream in self._streams.values():
            stream.stop()

    def close(self) -> None:
        """End all streams."""
        for stream in self._streams.values():
            stream.close()

    def _key(self, partition: TopicPartition, thread_id: str) -> StreamKey:
        return self._filter or partition.topic, thread_id
