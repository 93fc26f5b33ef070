"""ZookeeperConsumerConnector: a consumer of Kafka topics in a ZooKeeper-coordinated group.

Source: Kafka 1.1 kafka.consumer.ZookeeperConsumerConnector.
"""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from types import TracebackType

from tenacity import Retrying, retry_if_exception, sleep_using_event, stop_after_attempt, wait_fixed

from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import (
    ClosedError,
    ConfigurationError,
    MessageStreamsExistError,
    RetriableError,
    ZkConsumerError,
    ZooKeeperUnavailableError,
)
from zkconsumer.fetcher.manager import ConsumerFetcherManager
from zkconsumer.fetcher.partition import PartitionTopicInfo
from zkconsumer.fetcher.queues import PartitionQueue, StreamQueue
from zkconsumer.fetcher.settings import FetchSettings
from zkconsumer.log import get_logger
from zkconsumer.message import Decoder, TopicPartition, decoded_message_type
from zkconsumer.metrics import MetricName, Metrics
from zkconsumer.rebalance.callbacks import ConsumerRebalanceListener
from zkconsumer.rebalance.listener import Claim
from zkconsumer.rebalance.member import GroupMember
from zkconsumer.rebalance.topic_filter import TopicFilter
from zkconsumer.stream import KafkaStream
from zkconsumer.zookeeper.registry import OFFSET_MAX, Registration, check_streams, thread_ids


class ZookeeperConsumerConnector:
    """One member of a consumer group, with its streams.

    ::

        config = ConsumerConfig.from_properties("consumer.properties")
        with create_consumer(config) as consumer:
            streams = consumer.create_message_streams({"orders": 1})
            for message in streams["orders"][0]:
                print(message.partition, message.offset, message.value)

    Leaving the ``with`` block without an exception stores the offsets of all that was handed out, unless
    ``auto.commit.enable`` is false.
    """

    def __init__(self, config: ConsumerConfig) -> None:
        self.config = config
        self._log = get_logger("zkconsumer.consumer", group=config.group_id)
        self._parts: _Running | None = None
        self._closed = False
        self._ending = threading.Event()
        self._listener: ConsumerRebalanceListener | None = None
        self._process = os.getpid()

    def __enter__(self) -> ZookeeperConsumerConnector:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and self._parts is not None and not self._closed and self.config.auto_commit_enable:
                self.commit_offsets()
        finally:
            self.shutdown()

    def create_message_streams(
        self,
        topic_count: Mapping[str, int],
        key_decoder: Decoder | None = None,
        value_decoder: Decoder | None = None,
    ) -> dict[str, list[KafkaStream]]:
        """Join the group and return that many streams per topic.

        Waits for the first rebalance. A topic that does not exist yet is consumed as soon as it does.

        Args:
            topic_count: topic to number of streams; may be empty, then the member owns nothing.
            key_decoder: applied to ``message.key`` at each access; None leaves bytes.
            value_decoder: the same for ``message.value``.

        Raises:
            MessageStreamsExistError: streams were created before.
            ZooKeeperUnavailableError, ConfigurationError, ConsumerRebalanceFailedError: see ``GroupMember.start``;
                nothing is left behind.
        """
        return self._create(Registration.static(topic_count), key_decoder, value_decoder)

    def create_message_streams_by_filter(
        self,
        topic_filter: TopicFilter,
        streams: int = 1,
        key_decoder: Decoder | None = None,
        value_decoder: Decoder | None = None,
    ) -> list[KafkaStream]:
        """Join the group and return streams of all topics that a filter selects, also of those that come later.

        The partitions of each topic are shared among the streams as among those of a single topic.

        Args:
            topic_filter: ``Whitelist`` or ``Blacklist``.
            streams: how many; the decoders and the errors are those of ``create_message_streams``.
        """
        check_streams(f"filter {topic_filter!r}", streams)
        registration = Registration({topic_filter.regex: streams}, topic_filter.pattern)
        return self._create(registration, key_decoder, value_decoder)[topic_filter.regex]

    def _create(
        self, registration: Registration, key_decoder: Decoder | None, value_decoder: Decoder | None
    ) -> dict[str, list[KafkaStream]]:
        self._check_process()
        if self._closed:
            raise ClosedError("the consumer is shut down; create a new one")
        if self._parts is not None:
            raise MessageStreamsExistError("message streams can be created once per consumer")
        parts = _Running(self.config, registration, key_decoder, value_decoder, self._listener)
        self._parts = parts  # before it starts, so that shutdown() ends that
        try:
            if self._closed:  # in between
                raise ClosedError("the consumer is shut down; create a new one")
            parts.start()
        except BaseException:
            self._parts = None
            parts.close()
            raise
        return parts.streams

    def set_consumer_rebalance_listener(self, listener: ConsumerRebalanceListener) -> None:
        """Have ``listener`` told of each rebalance; before streams are created.

        Raises:
            MessageStreamsExistError: there are streams.
        """
        if self._parts is not None:
            raise MessageStreamsExistError("a rebalance listener has to be set before streams are created")
        self._listener = listener

    def commit_offsets(
        self, offsets: Mapping[TopicPartition, int] | None = None, *, retry_on_failure: bool = True
    ) -> dict[TopicPartition, int]:
        """Store that all messages handed out so far are consumed, the one in hand included.

        Args:
            offsets: instead of that, the next offset to consume of partitions that are owned; may move back.
            retry_on_failure: with offsets in Kafka, try ``offsets.commit.max.retries`` times more, with
                ``offsets.channel.backoff.ms`` between. (The original does the contrary of what it is told.)

        Returns:
            the offsets that are stored now.

        Raises:
            OwnershipLostError: a partition is not owned.
            ZooKeeperUnavailableError, BrokerUnavailableError: not everything was stored.
        """
        return self._retrying(retry_on_failure)(self._running().commit, offsets)

    def _retrying(self, retry_on_failure: bool) -> Retrying:
        """Try again what Kafka could not do, while the consumer is not shut down."""
        return Retrying(
            retry=retry_if_exception(_is_kafkas),
            wait=wait_fixed(self.config.offsets_channel_backoff_ms / 1000),
            stop=stop_after_attempt(1 + (self.config.offsets_commit_max_retries if retry_on_failure else 0)),
            sleep=sleep_using_event(self._ending),
            reraise=True,
        )

    def switch_offsets_storage(self, storage: str, *, dual_commit: bool | None = None) -> dict[TopicPartition, int]:
        """Keep the offsets elsewhere from now on, as ``offsets.storage`` and ``dual.commit.enabled`` would have said.

        What is stored of the owned partitions is copied first. Members of a group may be switched one by one over
        ``kafka`` with ``dual_commit``, which each of them reads and writes.

        Args:
            storage: ``zookeeper`` or ``kafka``.
            dual_commit: also keep them in ZooKeeper; None means yes.

        Returns:
            the offsets that are stored there now.
        """
        checked = dataclasses.replace(
            self.config,
            offsets_storage=ConsumerConfig.parse("offsets.storage", storage),
            dual_commit_enabled=dual_commit,
        )
        switch = self._running().member.switch_offsets
        stored = self._retrying(True)(switch, checked.offsets_storage, bool(checked.dual_commit_enabled))
        self.config = checked
        return stored

    def _running(self) -> _Running:
        self._check_process()
        if self._parts is None or self._closed:
            raise ClosedError("the consumer has no streams (any more), so there is nothing to commit")
        return self._parts

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise ClosedError(
                f"this consumer belongs to process {self._process}; its connections and threads do not survive a fork. "
                "Create another one in the new process"
            )

    def shutdown(self) -> None:
        """Leave the group: stop fetching, end the streams, store what was consumed, give partitions back.

        Bounded, and idempotent. May be called from any thread; a handler of signals should raise an exception
        instead, since it may interrupt the stream in the middle of a step.
        """
        if os.getpid() != self._process:
            return  # the connections are the parent's
        self._closed = True
        self._ending.set()
        parts = self._parts
        if parts is not None:
            parts.close()

    @property
    def consumer_id(self) -> str | None:
        """The member's id in the group, once there are streams."""
        return self._parts.member.consumer_id if self._parts else None

    @property
    def assignment(self) -> dict[TopicPartition, str]:
        """The partitions that are owned now, each with its thread id."""
        return self._parts.member.assignment if self._parts else {}

    @property
    def unbalanced_since(self) -> float | None:
        """When (``time.monotonic``) rebalancing began to fail, None while all is well; it is tried for ever."""
        return self._parts.member.unbalanced_since if self._parts else None

    @property
    def lag(self) -> dict[TopicPartition, int]:
        """Records that are not fetched yet, of each partition; -1 where that is not known yet."""
        return {info.partition: info.lag for info in self._parts.fetchers.infos} if self._parts else {}

    @property
    def metrics(self) -> Mapping[MetricName, Mapping[str, float]]:
        """What was counted and timed so far; see ``zkconsumer.metrics``. Empty before there are streams."""
        return self._parts.metrics.snapshot() if self._parts else {}


def create_consumer(config: ConsumerConfig) -> ZookeeperConsumerConnector:
    """Return a consumer; it joins the group when its streams are created."""
    return ZookeeperConsumerConnector(config)


def _is_kafkas(error: BaseException) -> bool:
    return isinstance(error, RetriableError) and not isinstance(error, ZooKeeperUnavailableError)


class _Running:
    """The member, its fetchers and its streams; the member's ``PartitionHandler``."""

    #: Streams stop at once.
    release_timeout = 0.0

    def __init__(
        self,
        config: ConsumerConfig,
        registration: Registration,
        key_decoder: Decoder | None,
        value_decoder: Decoder | None,
        listener: ConsumerRebalanceListener | None,
    ) -> None:
        assert config.client_id is not None
        self._config = config
        self.metrics = Metrics()
        self.member = GroupMember(
            config,
            registration,
            self,
            auto_commit=config.auto_commit_enable,
            user_listener=listener,
            metrics=self.metrics,
        )
        self.fetchers = ConsumerFetcherManager(
            self.member.consumer_id,
            FetchSettings.from_config(config),
            self.member.cluster.brokers,
            num_fetchers=config.num_consumer_fetchers,
            on_failure=self._fail_stream,
            metrics=self.metrics,
        )
        timeout = config.consumer_timeout_ms
        message_type = decoded_message_type(key_decoder, value_decoder)
        #: A filter's streams are those of all its topics.
        self._filter = next(iter(registration.subscription)) if registration.is_filter else None
        self._queues: dict[tuple[str, str], StreamQueue] = {}
        self._by_thread: dict[tuple[str, str], KafkaStream] = {}
        #: By topic, or by the filter's expression.
        self.streams: dict[str, list[KafkaStream]] = {}
        for name, count in registration.subscription.items():
            self.streams[name] = []
            for thread in thread_ids(self.member.consumer_id, count):
                queue = StreamQueue()
                stream = KafkaStream(
                    name,
                    config.client_id,
                    queue,
                    message_type=message_type,
                    timeout=timeout / 1000 if timeout >= 0 else None,
                    check_crcs=config.check_crcs,
                    refetch=self.fetchers.refetch,
                    on_reset=self.member.allow_back,
                    on_consumed=self._count,
                    on_skipped=self._count_skipped if config.corrupt_record_policy == "skip" else None,
                )
                self._queues[name, thread] = queue
                self._by_thread[name, thread] = stream
                self.streams[name].append(stream)
        self._threads: dict[TopicPartition, str] = {}
        #: What was handed out of partitions that are about to go, for a rebalance listener that commits it.
        self._leaving: dict[TopicPartition, int] = {}
        self._closing = threading.RLock()
        self._closed = False
        self.metrics.gauges(self._gauges)

    def start(self) -> None:
        self.fetchers.start_connections()
        self.member.start()

    def close(self) -> None:
        with self._closing:  # a second caller waits for the first; one that interrupts it in its own thread does not
            if self._closed:
                return
            self._closed = True
            try:
                self.member.close()
            finally:
                self.fetchers.stop_connections()
                for stream in self._by_thread.values():
                    stream.close()

    def commit(self, offsets: Mapping[TopicPartition, int] | None) -> dict[TopicPartition, int]:
        if offsets is not None:
            for partition, offset in offsets.items():
                if type(offset) is not int or not 0 <= offset <= OFFSET_MAX:
                    raise ConfigurationError(f"{partition}: {offset!r} is not an offset")
            return self.member.commit(offsets, may_go_back=True)
        return self.member.commit(lambda: self._collect(handed_out=True), then=self._committed)

    def _committed(self, stored: Mapping[TopicPartition, int]) -> None:  # in the member's thread
        for stream in self._by_thread.values():
            stream.committed(stored)

    def _collect(self, *, handed_out: bool) -> dict[TopicPartition, int]:
        """Return the positions of the streams, as far as they are known; with what goes, while it is still owned."""
        positions = self._positions(handed_out=handed_out)
        if handed_out:
            owned = self.member.assignment
            self._leaving = {p: offset for p, offset in self._leaving.items() if p in owned and p not in self._threads}
            positions = self._leaving | positions
        return self._begun(positions, self.fetchers.infos)

    def _positions(self, *, handed_out: bool) -> dict[TopicPartition, int]:
        """Return where the streams are, -1 where that is not known yet."""
        positions: dict[TopicPartition, int] = {}
        for stream in self._by_thread.values():
            positions.update(stream.positions(handed_out=handed_out))
        return positions

    def _key(self, partition: TopicPartition, thread: str) -> tuple[str, str]:
        """Return by what the stream of a partition is found."""
        return self._filter or partition.topic, thread

    # ---- metrics, by any thread ----

    def _count(self, partition: TopicPartition, messages: int) -> None:
        self._mark("MessagesPerSec", partition, messages)

    def _count_skipped(self, partition: TopicPartition, offsets: int) -> None:
        self._mark("SkippedOffsetsPerSec", partition, offsets)

    def _mark(self, name: str, partition: TopicPartition, count: int) -> None:
        for tags in ({}, {"topic": partition.topic}):
            self.metrics.meter(
                "kafka.consumer", "ConsumerTopicMetrics", name, clientId=self._config.client_id, **tags
            ).mark(count)

    def _gauges(self) -> Iterator[tuple[MetricName, float]]:
        group, connector, manager = "kafka.consumer", "ZookeeperConsumerConnector", "ConsumerFetcherManager"
        client = {"clientId": self._config.client_id}
        member = {**client, "groupId": self._config.group_id}
        for (topic, thread), queue in self._queues.items():
            yield MetricName.of(group, connector, "FetchQueueSize", **client, topic=topic, threadId=thread), len(queue)
        owned = Counter(partition.topic for partition in self.member.assignment)
        yield MetricName.of(group, connector, "OwnedPartitionsCount", **member), owned.total()
        for topic, count in owned.items():
            yield MetricName.of(group, connector, "OwnedPartitionsCount", **member, topic=topic), count
        since = self.member.unbalanced_since
        unbalanced = 0.0 if since is None else time.monotonic() - since
        yield MetricName.of(group, connector, "UnbalancedSeconds", **client), unbalanced
        infos = self.fetchers.infos
        yield MetricName.of(group, manager, "MaxLag", **client), max((i.lag for i in infos if i.lag > 0), default=0)
        yield MetricName.of(group, manager, "MinFetchRate", **client), self.fetchers.min_fetch_rate
        for info in infos:
            topic, number = info.partition
            tags = {**client, "topic": topic, "partition": number}
            yield MetricName.of("kafka.server", "FetcherLagMetrics", "ConsumerLag", **tags), info.lag

    # ---- PartitionHandler, in the member's thread ----

    def acquire(self, claims: Mapping[TopicPartition, Claim]) -> None:
        infos = []
        for partition, claim in claims.items():
            key = self._key(partition, claim.thread_id)
            self._threads[partition] = claim.thread_id
            self._by_thread[key].acquire(partition, claim.offset)
            queue = PartitionQueue(self._queues[key], self._config.queued_max_message_chunks)
            infos.append(
                PartitionTopicInfo(partition, queue, claim.offset, auto_offset_reset=self._config.auto_offset_reset)
            )
        self.fetchers.add_partitions(infos)

    def release(self, partitions: Set[TopicPartition], final: bool) -> Mapping[TopicPartition, int]:
        del final  # nothing is waited for
        positions = self._stop(partitions)
        return positions if self._config.auto_commit_enable else {}

    def lose(self) -> None:
        self._stop(set(self._threads))

    def consumed(self) -> Mapping[TopicPartition, int]:
        return self._collect(handed_out=False)

    def fail(self, error: BaseException) -> None:
        for stream in self._queues.values():
            stream.fail(
                error if isinstance(error, ZkConsumerError) else ZkConsumerError(f"the group member failed: {error!r}")
            )

    def _stop(self, partitions: Set[TopicPartition]) -> dict[TopicPartition, int]:
        """Stop fetching and delivering; returns what was consumed."""
        infos = self.fetchers.remove_partitions(partitions)
        for info in infos:
            info.queue.close()
        handed_out = self._positions(handed_out=True)
        self._leaving.update({p: handed_out[p] for p in partitions if handed_out.get(p, -1) >= 0})
        positions: dict[TopicPartition, int] = {}
        for partition in partitions:
            thread = self._threads.pop(partition, None)
            if thread is not None:
                positions.update(self._by_thread[self._key(partition, thread)].release({partition}))
        return self._begun(positions, infos)

    @staticmethod
    def _begun(
        positions: Mapping[TopicPartition, int], infos: Iterable[PartitionTopicInfo]
    ) -> dict[TopicPartition, int]:
        """Return the positions that are known; where nothing was read yet, where fetching began.

        Were that not stored, the next owner of such a partition would apply ``auto.offset.reset`` anew, and skip what
        came meanwhile.
        """
        starts = {info.partition: info.start_offset for info in infos}
        known = {p: offset if offset >= 0 else starts.get(p, -1) for p, offset in positions.items()}
        return {partition: offset for partition, offset in known.items() if offset >= 0}

    # ---- for the fetchers ----

    def _fail_stream(self, info: PartitionTopicInfo, error: ZkConsumerError) -> None:
        thread = self._threads.get(info.partition)
        if thread is not None:
            self._queues[self._key(info.partition, thread)].fail(error)


__all__ = ["ZookeeperConsumerConnector", "create_consumer"]
