"""ConsumerRuntime: the group member, the fetchers and the streams of one consumer.

Source: Kafka 1.1 ZookeeperConsumerConnector, with its topicThreadIdAndQueues and topicRegistry.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Set

from zkconsumer.config import ConsumerConfig
from zkconsumer.consumer.metrics import ConsumerMetrics
from zkconsumer.consumer.stream import KafkaStream
from zkconsumer.errors import ConfigurationError, ZkConsumerError
from zkconsumer.fetcher.fetch_settings import FetchSettings
from zkconsumer.fetcher.manager import ConsumerFetcherManager
from zkconsumer.fetcher.partition import PartitionTopicInfo
from zkconsumer.fetcher.queues import PartitionQueue, StreamQueue
from zkconsumer.health import Health, HealthListener, HealthMonitor, HealthState, stalled_partitions
from zkconsumer.log import get_logger
from zkconsumer.message import Decoder, TopicPartition, decoded_message_type
from zkconsumer.metrics import Metrics
from zkconsumer.rebalance.callbacks import ConsumerRebalanceListener
from zkconsumer.rebalance.handler import Claim
from zkconsumer.rebalance.member import GroupMember
from zkconsumer.zookeeper.registry import OFFSET_MAX, Registration, thread_ids

#: Identifies a stream: the topic, or the regular expression of a filter, and the thread id.
_StreamKey = tuple[str, str]


class ConsumerRuntime:
    """The group member, the fetchers and the streams of a consumer; also the member's ``PartitionHandler``.

    It exists from the creation of the streams to the shutdown of the consumer.

    Only the member's thread writes ``_thread_of`` and ``_released_offsets``; the fetchers' threads read ``_thread_of``.
    ``_close_lock`` guards ``_is_closed``. The other fields are set in the constructor.

    Attributes:
        streams: the streams by topic, or by the regular expression of a filter.
    """

    #: 0, because ``release`` never waits.
    release_timeout = 0.0

    def __init__(
        self,
        config: ConsumerConfig,
        registration: Registration,
        key_decoder: Decoder | None,
        value_decoder: Decoder | None,
        listener: ConsumerRebalanceListener | None,
        health_listener: HealthListener | None,
    ) -> None:
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
        #: The streams of a filter receive the records of all topics that it selects.
        self._filter = next(iter(registration.subscription)) if registration.is_filter else None
        self._queues: dict[_StreamKey, StreamQueue] = {}
        self._streams: dict[_StreamKey, KafkaStream] = {}
        self._counters = ConsumerMetrics(
            config, self.metrics, self.member, self.fetchers, self._queues, lambda: self.health().state
        )
        self._health_monitor = HealthMonitor(
            f"zkconsumer-{config.group_id}-health-{self.member.consumer_id}",
            self.health,
            health_listener,
            get_logger("zkconsumer.health", group=config.group_id, consumer_id=self.member.consumer_id),
        )
        self.streams = self._create_streams(registration, key_decoder, value_decoder)
        self._thread_of: dict[TopicPartition, str] = {}
        #: Offsets of records handed out from partitions whose delivery was stopped. A rebalance listener may commit
        #: them while the partitions are still owned.
        self._released_offsets: dict[TopicPartition, int] = {}
        self._log = get_logger("zkconsumer.offsets", group=config.group_id, consumer_id=self.member.consumer_id)
        #: Reentrant: a signal handler may call ``close`` while the same thread is closing.
        self._close_lock = threading.RLock()
        self._is_closed = False

    def _create_streams(
        self, registration: Registration, key_decoder: Decoder | None, value_decoder: Decoder | None
    ) -> dict[str, list[KafkaStream]]:
        config = self._config
        message_type = decoded_message_type(key_decoder, value_decoder)
        streams: dict[str, list[KafkaStream]] = {}
        for name, count in registration.subscription.items():
            streams[name] = []
            for thread in thread_ids(self.member.consumer_id, count):
                queue = StreamQueue(self.fetchers.budget)
                stream = KafkaStream(
                    name,
                    config.client_id,
                    queue,
                    message_type=message_type,
                    timeout_s=config.consumer_timeout_s,
                    check_crcs=config.check_crcs,
                    holds_lease=lambda: self.member.holds_lease,
                    refetch=self.fetchers.refetch,
                    on_reset=self.member.allow_lower_once,
                    on_consumed=self._counters.count_consumed,
                    on_skipped=self._counters.count_skipped if config.corrupt_record_policy == "skip" else None,
                )
                self._queues[name, thread] = queue
                self._streams[name, thread] = stream
                streams[name].append(stream)
        return streams

    def start(self) -> None:
        """Join the group, and wait for the first rebalance."""
        self.fetchers.start_connections()
        self._health_monitor.start()
        self.member.start()

    def close(self) -> None:
        """Leave the group, stop the fetchers and end the streams; waits if another thread is closing."""
        with self._close_lock:
            if self._is_closed:
                return
            self._is_closed = True
            self._health_monitor.close()
            try:
                self.member.close()
            finally:
                self.fetchers.stop_connections()
                for stream in self._streams.values():
                    stream.close()

    def health(self) -> Health:
        """Return the health of the consumer; only a failure is reported after ``close``."""
        reasons = self.member.health_reasons()
        if self._is_closed:
            return Health.of(reason for reason in reasons if reason.state is HealthState.FAILED)
        return Health.of([*reasons, *stalled_partitions(self.fetchers.problems)])

    # ---- offsets ----

    def commit(self, offsets: Mapping[TopicPartition, int] | None) -> dict[TopicPartition, int]:
        """Commit ``offsets``, or the offsets of all records that were handed out; returns the committed offsets."""
        if offsets is not None:
            for partition, offset in offsets.items():
                if type(offset) is not int or not 0 <= offset < OFFSET_MAX:
                    raise ConfigurationError(
                        f"offset of partition {partition} must be an integer between 0 and {OFFSET_MAX - 1}, "
                        f"got {offset!r}"
                    )
            return self.member.commit(offsets, allow_lower=True)
        return self.member.commit(self._handed_out_offsets, on_committed=self._mark_committed)

    def _mark_committed(self, offsets: Mapping[TopicPartition, int]) -> None:  # in the member's thread
        for stream in self._streams.values():
            stream.mark_committed(offsets)

    def _handed_out_offsets(self) -> dict[TopicPartition, int]:  # in the member's thread
        """Return the offsets of all records that were handed out from partitions that are still owned."""
        positions = self._positions(handed_out=True)
        owned = self.member.assignment
        self._released_offsets = {
            p: offset for p, offset in self._released_offsets.items() if p in owned and p not in self._thread_of
        }
        return _known_offsets(self._released_offsets | positions, self.fetchers.infos)

    def _positions(self, *, handed_out: bool) -> dict[TopicPartition, int]:
        """Return the positions of all streams, -1 if a position is not known yet."""
        positions: dict[TopicPartition, int] = {}
        for stream in self._streams.values():
            positions.update(stream.positions(handed_out=handed_out))
        return positions

    # ---- PartitionHandler, in the member's thread ----

    def acquire(self, claims: Mapping[TopicPartition, Claim]) -> None:
        """Start fetching partitions, and delivering their records to the streams of their thread ids."""
        infos = []
        for partition, claim in claims.items():
            key = self._stream_key(partition, claim.thread_id)
            self._thread_of[partition] = claim.thread_id
            self._streams[key].acquire(partition, claim.offset)
            queue = PartitionQueue(self._queues[key], self._config.queued_max_message_chunks)
            reset = "smallest" if claim.is_new else self._config.auto_offset_reset
            if claim.offset < 0 and not claim.is_new and partition in self._released_offsets:
                self._log.warning(
                    "committed_offset_missing",
                    topic=partition.topic,
                    partition=partition.partition,
                    consumed_offset=self._released_offsets[partition],
                    auto_offset_reset=reset,
                )
            infos.append(PartitionTopicInfo(partition, queue, claim.offset, auto_offset_reset=reset))
        self.fetchers.add_partitions(infos)

    def release(self, partitions: Set[TopicPartition], final: bool) -> Mapping[TopicPartition, int]:
        """Stop the delivery, and return the offsets to commit if ``auto.commit.enable`` is true."""
        del final  # each call returns offsets
        offsets = self._stop_delivery(partitions)
        return offsets if self._config.auto_commit_enable else {}

    def lose(self) -> None:
        """Stop the delivery of all partitions."""
        self._stop_delivery(set(self._thread_of))

    def lease_ended(self) -> None:  # in the thread of the lease
        """Stop handing out the records that the streams have decoded."""
        for stream in self._streams.values():
            stream.lease_ended()

    def consumed(self) -> Mapping[TopicPartition, int]:
        """Return the offsets of consumed records."""
        return _known_offsets(self._positions(handed_out=False), self.fetchers.infos)

    def fail(self, error: ZkConsumerError) -> None:
        """Make all streams raise the error from now on."""
        for queue in self._queues.values():
            queue.fail(error, is_final=True)

    def _stop_delivery(self, partitions: Set[TopicPartition]) -> dict[TopicPartition, int]:
        """Stop fetching and delivering; returns the offsets of consumed records."""
        infos = self.fetchers.remove_partitions(partitions)
        for info in infos:
            info.queue.close()
        handed_out = self._positions(handed_out=True)
        self._released_offsets.update({p: handed_out[p] for p in partitions if handed_out.get(p, -1) >= 0})
        positions: dict[TopicPartition, int] = {}
        for partition in partitions:
            thread = self._thread_of.pop(partition, None)
            if thread is not None:
                positions.update(self._streams[self._stream_key(partition, thread)].release({partition}))
        return _known_offsets(positions, infos)

    # ---- for the fetchers ----

    def _fail_stream(self, info: PartitionTopicInfo, error: ZkConsumerError) -> None:
        thread = self._thread_of.get(info.partition)
        if thread is not None:
            self._queues[self._stream_key(info.partition, thread)].fail(error)

    def _stream_key(self, partition: TopicPartition, thread: str) -> _StreamKey:
        return self._filter or partition.topic, thread


def _known_offsets(
    positions: Mapping[TopicPartition, int], infos: Iterable[PartitionTopicInfo]
) -> dict[TopicPartition, int]:
    """Return the positions that are known; for a partition without consumed records, the offset where fetching started.

    If that offset were not committed, the next owner would apply ``auto.offset.reset`` again and could skip records.
    """
    starts = {info.partition: info.start_offset for info in infos}
    known = {p: offset if offset >= 0 else starts.get(p, -1) for p, offset in positions.items()}
    return {partition: offset for partition, offset in known.items() if offset >= 0}


__all__ = ["ConsumerRuntime"]
