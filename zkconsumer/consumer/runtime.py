"""ConsumerRuntime: the group member, the fetchers and the streams of one consumer.

Source: Kafka 1.1 ZookeeperConsumerConnector, with its topicThreadIdAndQueues and topicRegistry.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable, Mapping, Set
from typing import Any

from zkconsumer.argument_checks import check_offsets
from zkconsumer.config import ConsumerConfig
from zkconsumer.consumer.metrics import ConsumerMetrics
from zkconsumer.consumer.stream import StreamSettings
from zkconsumer.consumer.streams import ConsumerStreams
from zkconsumer.errors import ZkConsumerError
from zkconsumer.fetcher.fetch_settings import FetchSettings
from zkconsumer.fetcher.manager import ConsumerFetcherManager
from zkconsumer.fetcher.partition import PartitionTopicInfo
from zkconsumer.fetcher.queues import PartitionQueue
from zkconsumer.health import (
    Health,
    HealthListener,
    HealthMonitor,
    HealthState,
    Problem,
    ProgressWatch,
    stalled_partitions,
)
from zkconsumer.log import get_logger
from zkconsumer.message import Decoder, TopicPartition
from zkconsumer.metrics import Metrics
from zkconsumer.rebalance.callbacks import ConsumerRebalanceListener
from zkconsumer.rebalance.handler import AssignedPartition
from zkconsumer.rebalance.member_factory import create_member
from zkconsumer.threads import WAKE_INTERVAL_S, ThreadCall, WakeUp, run_protected
from zkconsumer.zookeeper.registry import OFFSET_MAX, Registration


class FetchProgress:
    """Watches the fetch offsets of a consumer's partitions. Any thread may call ``find_stalled``.

    Args:
        interval_s: maximum seconds that a broker waits before it responds to a fetch request.
    """

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._lock = threading.Lock()  # guards _watches
        self._watches: dict[TopicPartition, ProgressWatch] = {}

    def find_stalled(self, infos: Collection[PartitionTopicInfo]) -> list[tuple[TopicPartition, Problem]]:
        """Return the partitions whose fetch offset has not changed for too long, with the problem.

        A partition whose queue is full is not fetched, because the application has not requested its records yet.
        """
        with self._lock:
            known, self._watches = self._watches, {}
            for info in infos:
                watch = self._watches[info.partition] = known.get(info.partition) or ProgressWatch(self._interval_s)
                has_work = info.lag > 0 and info.problem is None and info.queue.has_room
                watch.update(info.fetch_offset, has_work=has_work)
            return [
                (info.partition, _describe(info, waited_s))
                for info in infos
                if (waited_s := self._watches[info.partition].find_stall()) is not None
            ]


def _describe(info: PartitionTopicInfo, waited_s: float) -> Problem:
    message = (
        f"no records were fetched for {waited_s:.0f} s, although {info.lag} records after offset {info.fetch_offset} "
        "are unread; with isolation.level=read_committed, check for open transactions"
    )
    return Problem("fetch_stalled", message, time.time() - waited_s)


class ConsumerRuntime:
    """The group member, the fetchers and the streams of a consumer.

    It is the member's ``PartitionHandler`` and the streams' ``StreamOwner``. It is created with the streams, and closed
    when the consumer is shut down.

    Only the member thread modifies ``_released_offsets``. The application threads add reset partitions to ``_resets``,
    and the member thread removes them. ``_close_lock`` guards ``_is_closed``. A signal handler may call ``stop``, so it
    acquires no lock.

    Args:
        registration: topics or topic filter that the member registers.
        key_decoder: function that decodes keys; None to return bytes.
        value_decoder: function that decodes values; None to return bytes.
        listener: rebalance listener, called when partitions are assigned or revoked.
        health_listener: function that is called when the health changes.

    Attributes:
        streams: streams by topic, or by the filter's regular expression.
    """

    #: 0, because ``on_partitions_revoked`` never blocks.
    release_timeout_s = 0.0

    def __init__(
        self,
        config: ConsumerConfig,
        registration: Registration,
        key_decoder: Decoder[Any] | None,
        value_decoder: Decoder[Any] | None,
        listener: ConsumerRebalanceListener | None,
        health_listener: HealthListener | None,
    ) -> None:
        self._config = config
        self.metrics = Metrics()
        self.member = create_member(
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
            on_failure=lambda info, error: self._streams.fail_partition(info.partition, error),
            metrics=self.metrics,
        )
        self._streams = ConsumerStreams(
            registration,
            self.member.consumer_id,
            self.fetchers.budget,
            self,
            StreamSettings.from_config(config, (key_decoder, value_decoder)),
        )
        self.streams = self._streams.by_topic
        self._counters = ConsumerMetrics(
            config, self.metrics, self.member, self.fetchers, self._streams.queues, lambda: self.health().state
        )
        self._fetch_progress = FetchProgress(config.fetch_wait_max_ms / 1_000)
        log = get_logger("zkconsumer.health", group=config.group_id, consumer_id=self.member.consumer_id)
        self._health_monitor = HealthMonitor(self._thread_name("health"), self.health, health_listener, log)
        #: Offset after the last delivered record of each partition whose records are no longer delivered. A rebalance
        #: listener may commit these offsets while the partitions are still owned.
        self._released_offsets: dict[TopicPartition, int] = {}
        self._resets: set[TopicPartition] = set()
        self._log = get_logger("zkconsumer.offsets", group=config.group_id, consumer_id=self.member.consumer_id)
        #: Reentrant: a signal handler may call ``close`` while the same thread is closing.
        self._close_lock = threading.RLock()
        self._is_closed = False
        self._is_stopping = False
        self._has_joined = False
        self._changed = WakeUp()  # set when joining has ended, and when ``stop`` is called

    def _thread_name(self, task: str) -> str:
        return f"zkconsumer-{self._config.group_id}-{task}-{self.member.consumer_id}"

    def start(self) -> None:
        """Join the group, and wait for the first rebalance. If ``stop`` is called first, leave the group and return."""

        def join() -> None:
            self.fetchers.start_connections()
            self._health_monitor.start()
            self.member.start()

        joining = ThreadCall(join, self._thread_name("join"), self._changed, daemon=True)
        if not self._is_stopping:
            joining.start()
        while not joining.is_done and not self._is_stopping:
            self._changed.wait(WAKE_INTERVAL_S)
        if joining.is_done:
            joining.result()
            self._has_joined = True
        else:
            run_protected(self.close, self._thread_name("close"))  # makes ``join`` raise ClosedError

    def stop(self) -> None:
        """End the iteration over all streams, and abort ``start``. May be called in a signal handler."""
        self._is_stopping = True
        self._streams.stop()
        self._changed.set()

    def close(self) -> None:
        """Leave the group, stop the fetchers and end the streams; wait if another thread is doing so already."""
        with self._close_lock:
            if self._is_closed:
                return
            self._is_closed = True
            self._health_monitor.close()
            try:
                self.member.close()
            finally:
                self.fetchers.stop_connections()
                self._streams.close()

    def health(self) -> Health:
        """Return the consumer's health; after ``close``, only a failure is reported."""
        reasons = self.member.health_reasons()
        if self._is_closed:
            return Health.of(reason for reason in reasons if reason.state is HealthState.FAILED)
        stalled = self._fetch_progress.find_stalled(self.fetchers.infos)
        return Health.of([*reasons, *stalled_partitions([*self.fetchers.problems, *stalled])])

    # ---- offsets ----

    def commit(self, offsets: Mapping[TopicPartition, int] | None) -> dict[TopicPartition, int]:
        """Commit ``offsets``, or the offsets of all delivered records if None; return the committed offsets."""
        if offsets is None and not self._has_joined:
            return {}  # no records were delivered
        if offsets is not None:
            return self.member.commit(check_offsets(offsets, OFFSET_MAX - 1), allow_lower=True)
        return self.member.commit(self._consume_delivered)

    def _consume_delivered(self) -> dict[TopicPartition, int]:  # called by the member thread
        """Mark all delivered records as consumed; return the offsets of the partitions that are still owned."""
        offsets = self._streams.consume_delivered()
        owned = self.member.assignment
        self._released_offsets = {p: offset for p, offset in self._released_offsets.items() if p in owned}
        return _select_known_offsets(self._released_offsets | offsets, self.fetchers.infos)

    # ---- PartitionHandler, called by the member thread ----

    def on_partitions_assigned(self, partitions: Mapping[TopicPartition, AssignedPartition]) -> None:
        """Start fetching the partitions, and delivering their records to the streams with the assigned thread ids."""
        infos = []
        self._resets.difference_update(partitions)  # resets of an earlier claim
        for partition, assigned in partitions.items():
            stream_queue = self._streams.acquire(partition, assigned.thread_id, assigned.offset)
            queue = PartitionQueue(stream_queue, self._config.queued_max_message_chunks)
            reset = "smallest" if assigned.is_new else self._config.auto_offset_reset
            released_offset = self._released_offsets.pop(partition, None)
            if assigned.offset < 0 and not assigned.is_new and released_offset is not None:
                self._log.warning(
                    "committed_offset_missing",
                    topic=partition.topic,
                    partition=partition.partition,
                    consumed_offset=released_offset,
                    auto_offset_reset=reset,
                )
            infos.append(PartitionTopicInfo(partition, queue, assigned.offset, auto_offset_reset=reset))
        self.fetchers.add_partitions(infos)

    def on_partitions_revoked(self, partitions: Set[TopicPartition], final: bool) -> Mapping[TopicPartition, int]:
        """Stop delivering the partitions' records, and return the offsets to commit.

        The result is empty if ``auto.commit.enable`` is false.
        """
        del final  # unused, because every call returns the offsets
        offsets = self._stop_delivery(partitions)
        return offsets if self._config.auto_commit_enable else {}

    def on_partitions_lost(self) -> None:
        """Stop delivering the records of all partitions."""
        self._stop_delivery(self._streams.partitions)
        self._resets.clear()

    def on_lease_expired(self) -> None:  # called by the lease thread
        """Stop delivering the records that the streams have decoded."""
        self._streams.end_lease()

    def consumed_offsets(self) -> Mapping[TopicPartition, int]:
        """Return the offsets to commit for consumed records."""
        return _select_known_offsets(self._streams.offsets(include_current=False), self.fetchers.infos)

    def take_resets(self) -> Set[TopicPartition]:
        """See ``PartitionHandler``."""
        taken = set()
        while self._resets:
            taken.add(self._resets.pop())
        return taken

    def fail(self, error: ZkConsumerError) -> None:
        """Make all streams raise ``error`` from now on."""
        self._streams.fail(error)

    def _stop_delivery(self, partitions: Set[TopicPartition]) -> dict[TopicPartition, int]:
        """Stop fetching and delivering the partitions' records; return the offsets to commit for consumed records."""
        infos = self.fetchers.remove_partitions(partitions)
        for info in infos:
            info.queue.close()
        delivered = self._streams.offsets(include_current=True)
        self._released_offsets.update({p: delivered[p] for p in partitions if delivered.get(p, -1) >= 0})
        return _select_known_offsets(self._streams.release(partitions), infos)

    # ---- StreamOwner, called by application threads ----

    @property
    def holds_lease(self) -> bool:
        """See ``StreamOwner``."""
        return self.member.holds_lease

    def refetch(self, queue: PartitionQueue, partition: TopicPartition, offset: int) -> None:
        """See ``StreamOwner``."""
        self.fetchers.refetch(queue, partition, offset)

    def on_position_changed(self, partition: TopicPartition) -> None:
        """Record the reset for ``take_resets``; neither blocks nor acquires a lock."""
        self._resets.add(partition)

    def on_consumed(self, partition: TopicPartition, rows: int) -> None:
        """See ``StreamOwner``."""
        self._counters.count_consumed(partition, rows)

    def on_skipped(self, partition: TopicPartition, offsets: int) -> None:
        """See ``StreamOwner``."""
        self._counters.count_skipped(partition, offsets)


def _select_known_offsets(
    positions: Mapping[TopicPartition, int], infos: Iterable[PartitionTopicInfo]
) -> dict[TopicPartition, int]:
    """Return the known positions; for a partition without consumed records, the offset where fetching started.

    If that offset were not committed, the next owner would apply ``auto.offset.reset`` again and could skip records.
    """
    starts = {info.partition: info.start_offset for info in infos}
    known = {p: offset if offset >= 0 else starts.get(p, -1) for p, offset in positions.items()}
    return {partition: offset for partition, offset in known.items() if offset >= 0}


__all__ = ["ConsumerRuntime"]
