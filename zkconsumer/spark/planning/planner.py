"""The driver's part of a query: a member of the group that plans batches of the partitions that it owns.

It runs in the process that Spark starts for a streaming source. The offsets of batches in Spark's checkpoint are
authoritative. The group's offsets in ZooKeeper follow: they are committed once a batch has finished. Spark reports that
by requesting the end of the next batch: it calls ``latestOffset(start)`` only when the batch that ends at ``start`` is
in its commit log.

Source: Kafka 1.1 ZookeeperConsumerConnector for the group; Spark 4.3 MicroBatchExecution for the order of calls.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Set
from typing import Any

from zkconsumer.broker.log_offsets import LogOffsets
from zkconsumer.errors import (
    AuthorizationError,
    ConfigurationError,
    OwnershipLostError,
    RetriableError,
    ZkConsumerError,
)
from zkconsumer.health import Health, Problem
from zkconsumer.log import get_logger
from zkconsumer.message import Endpoint, TopicPartition
from zkconsumer.rebalance.handler import AssignedPartition, PartitionHandler
from zkconsumer.rebalance.member import GroupMember
from zkconsumer.rebalance.member_factory import create_member
from zkconsumer.spark.executor.task_reports import SkippedRange
from zkconsumer.spark.offset import INITIAL, BatchOffset, Ranges, from_offset, total
from zkconsumer.spark.options.check_existence import check_brokers, check_offsets
from zkconsumer.spark.options.source_options import SourceOptions
from zkconsumer.spark.options.subscription import Subscription
from zkconsumer.spark.planning.application_id import siblings, with_application
from zkconsumer.spark.planning.available_offsets import AvailableOffsets
from zkconsumer.spark.planning.batch_planner import BatchPlanner
from zkconsumer.spark.planning.checkpoint_checks import restored_subscription
from zkconsumer.spark.planning.end_offsets import IDLE_INTERVAL, EndOffsets
from zkconsumer.spark.planning.offset_commits import OffsetCommits
from zkconsumer.spark.planning.partition_tracker import PartitionTracker
from zkconsumer.spark.planning.progress import Progress
from zkconsumer.spark.planning.skipped_records import SkippedRecords
from zkconsumer.spark.planning.standalone_member import StandaloneReader
from zkconsumer.spark.planning.starting_positions import StartingPositions
from zkconsumer.spark.planning.topic_ids import TopicIds


class Planner:
    """Plans batches for Spark, and is the member's ``PartitionHandler``.

    Three threads call it: Spark's thread, the member's thread as of ``start``, and the thread of the ``DriverLink``,
    which calls only ``finish_reported_batch``. They share the ``PartitionTracker``, which has a lock. Without a lock,
    the member's thread reads ``_is_closing``, which Spark's thread writes, and Spark's thread reads ``_revoked_at``,
    ``_failure`` and the number of reread records, which the member's thread writes.

    Attributes:
        skipped: counts of the records that the query has skipped; thread-safe.

    Args:
        seen: an offset from Spark's offset log. The ranges of the last batch must be known before partitions are
            claimed, so that a release of one of them waits for the batch.
        application: number of the application, unique on this host; None if it is unknown.

    Raises:
        ConfigurationError: the checkpoint belongs to another query.
    """

    def __init__(
        self, options: SourceOptions, seen: Mapping[str, Any] = INITIAL, *, application: int | None = None
    ) -> None:
        self.release_timeout_s = options.revoke_timeout_s
        self._options = options = dataclasses.replace(options, consumer=with_application(options.consumer, application))
        self._config = config = options.consumer
        self._application = application
        self._subscription = subscription = restored_subscription(options, seen)
        self._member = member = _new_member(options, subscription, self)
        self._log = log = get_logger("zkconsumer.spark", group=config.group_id, consumer_id=member.consumer_id)
        self._tracker = tracker = PartitionTracker(options.starting_offsets, commits=options.commits)
        self._logs = logs = LogOffsets.from_config(member.cluster.brokers, config)
        self._progress = progress = Progress(logs)
        self._commits = OffsetCommits(member, tracker, progress, log, timeout_s=config.zookeeper_connection_timeout_s)
        self.skipped = skipped = SkippedRecords(log, fails_on_data_loss=options.fails_on_data_loss)
        self._available = available = AvailableOffsets(logs, log)
        self._ends = ends = EndOffsets(options, available, tracker, skipped, log)
        last = BatchOffset.from_json(seen)
        tracker.set_deleted_topics(last.deleted_topics)
        topic_ids = TopicIds(member.cluster, last.topic_ids, last.deleted_topics, lambda: member.discoveries)
        self._starting_positions = starting_positions = StartingPositions(
            options, subscription, member, logs, available, topic_ids, tracker, ends, skipped, log
        )
        self._batches = BatchPlanner(
            options,
            member,
            logs,
            topic_ids,
            tracker,
            ends,
            starting_positions,
            progress,
            self._is_reassigning,
            last.idle,
        )
        self._failing_since: float | None = None
        self._problem: Problem | None = None  # while planning fails
        self._is_closing = False
        self._revoked_at = -1  # value of ``rebalances`` when partitions were last revoked or lost
        self._failure: ZkConsumerError | None = None
        self.record_offset(seen)

    @property
    def consumer_id(self) -> str:
        """Consumer id of the member; unique for each planning process."""
        return self._member.consumer_id

    def start(self) -> None:
        """Join the group.

        A query that resumes waits up to ``clusterUnavailableTimeout`` for ZooKeeper and the brokers, since it was
        connected to them before. A new query waits for ``zookeeper.connection.timeout.ms``, because the addresses may
        be wrong.

        Raises:
            ConfigurationError: a starting option names a topic or partition that does not exist.
            ZkConsumerError: ZooKeeper or the brokers are unreachable, or the first rebalance failed.
        """
        if self._tracker.planned_until():
            self._member.start(self._options.unavailable_timeout)
        else:
            check_brokers(self._config)
            self._member.start()
            self._check_starting_offsets()
        membership = "group" if self._options.is_member else "none"
        self._log.info("query_started", membership=membership, owned=len(self._member.assignment))
        if self._application is None:
            return
        members = siblings(self._config.group_id, self._application, self._member.group_assignment.values())
        if members := members - {self._member.consumer_id}:
            self._log.warning(
                "duplicate_query_detected",
                members=sorted(members),
                remedy="queries with the same group.id share the partitions; set a different group.id for each query "
                "that must read all of them. If a query was stopped just before, ignore this warning: it may not have "
                "left the group yet",
            )

    def _check_starting_offsets(self) -> None:
        try:
            check_offsets(self._options.starting_offsets, self._existing())
        except ConfigurationError:
            self.close()
            raise

    def _existing(self) -> set[TopicPartition]:
        """Return the subscribed partitions that exist."""
        # With the roundrobin strategy the group's assignment contains topics that only other members read.
        wants, exclude_internal = self._subscription.wants, self._config.exclude_internal_topics
        return {p for p in self._member.group_assignment if wants(p.topic, exclude_internal)}

    def close(self) -> None:
        """Leave the group at once. A batch in flight is replayed from the checkpoint at the next start."""
        self._is_closing = True
        self._member.wake()
        self._member.close()
        self._logs.close()

    def prepare_for_available_now(self) -> None:
        """End the query at the end offsets that the next plan finds (Trigger.AvailableNow)."""
        self._ends.bound()

    # ---- Spark's thread ----

    def record_offset(self, offset: Mapping[str, Any]) -> None:
        """Record an offset from Spark's offset log; its batch may or may not have finished."""
        self._tracker.record_offset(offset)

    def start_batch(self, offset: Mapping[str, Any]) -> Ranges:
        """Record a batch that is about to run: a new batch, or one that is replayed after a restart.

        Returns:
            The ranges of the batch, without those of topics that have been deleted or re-created.

        Raises:
            DataLossError: a topic was deleted or re-created, and ``failOnDataLoss`` is set.
        """
        self.record_offset(offset)
        batch = BatchOffset.from_json(offset)
        replaced = self._starting_positions.replaced_topics(batch.topic_ids)
        ranges = {partition: span for partition, span in batch.ranges.items() if partition.topic not in replaced}
        self.skipped.start_batch(batch.ranges)
        self.skipped.record(
            SkippedRange(*partition, start, lost=until - start)
            for partition, (start, until) in batch.ranges.items()
            if partition not in ranges
        )
        self._tracker.mark_in_flight(ranges)
        return ranges

    def finish_batch(self, offset: Mapping[str, Any]) -> None:
        """Record that a batch has finished, and commit its offsets. Never raises: a later call retries the commit.

        For a bounded query this may be the last call, so it retries for up to ``clusterUnavailableTimeout``.
        """
        deadline = time.monotonic() + self._options.unavailable_timeout
        self._commits.commit(offset)
        while self._ends.is_bounded and self._failure is None and self._commits.is_pending:
            if time.monotonic() >= deadline:
                break
            time.sleep(IDLE_INTERVAL)
            self._commits.commit(offset)

    def finish_reported_batch(self, offset: Mapping[str, Any]) -> bool:
        """Record a batch of which the driver reports that it has finished; return whether its offsets are committed.

        Called by the thread of the ``DriverLink``, before Spark's thread calls ``finish_batch``.
        """
        self._commits.commit_reported(offset)
        owned = self._tracker.states().keys()
        return not self._commits.is_pending and from_offset(offset).keys() <= owned

    def plan(self, start: dict[str, Any], max_offsets: int | None = None, *, is_last: bool = False) -> dict[str, Any]:
        """Return the end of the next batch, or ``start`` if there is nothing to read.

        Args:
            max_offsets: maximum number of offsets of the batch; None for no limit.
            is_last: the query runs only this batch (Trigger.Once), so it does not wait for more records.

        Raises:
            DataLossError: records were deleted, and ``failOnDataLoss`` is set.
            ZkConsumerError: planning failed for ``clusterUnavailableTimeout``, for example because the brokers were
                unreachable, or the member failed.
        """
        while True:
            if self._failure is not None:
                raise self._failure
            try:
                end = self._batches.plan(start, max_offsets, is_last=is_last)
            except (RetriableError, OwnershipLostError) as error:
                self._back_off(error)
                end = None
            else:
                self._failing_since = self._problem = None
            if end is not None:
                return end
            if not (self._ends.is_bounded or is_last):  # returning ``start`` would end the query
                return start

    def find_leaders(self, ranges: Ranges) -> dict[TopicPartition, tuple[int, Endpoint]]:
        """Return the known leaders of partitions; tasks look up the missing ones."""
        try:
            return self._logs.find_leaders(ranges)
        except RetriableError as error:
            self._log.warning("leader_lookup_failed", error=str(error), retriable=True)
            return {}

    def brokers(self) -> tuple[Endpoint, ...]:
        """Return the brokers to which tasks may send metadata requests."""
        known = {endpoint for _, endpoint in self._logs.leaders.values()}
        try:
            known.update(self._member.cluster.brokers())
        except ZkConsumerError as error:
            self._log.warning("brokers_not_found", error=str(error))
        return tuple(sorted({endpoint.with_versions_from(known) for endpoint in known}, key=str))

    def latest(self) -> dict[str, Any]:
        """Return the last end offsets, the lag and the state of the member, for Spark's progress events."""
        report = self._progress.report(
            self._ends.latest,
            self._tracker.planned_until(),
            consumer_id=self._member.consumer_id,
            owned=len(self._tracker.states()),
            rebalances=self._member.rebalances,
            health=self.health(),
            lost_records=0 if self._revoked_at == self._member.rebalances else self._tracker.lost_records(),
            skipped=self.skipped,
        )
        report["unavailablePartitions"] = list(map(str, self._available.unavailable))
        alignment = self._batches.alignment
        return report if alignment is None else {**report, **alignment.state()}

    def health(self) -> Health:
        """Return the health of the query's member, of its planning and of its commits."""
        reasons = [*self._member.health_reasons(), *self._available.health_reasons()]
        problems = self._problem, self._commits.problem
        reasons += [problem.reason() for problem in problems if problem is not None]
        return Health.of(reasons)

    def _is_reassigning(self) -> bool:
        """Whether partitions are moving: revoked in an unfinished rebalance, or acquired without a position yet."""
        # The order matters: the second check sees partitions that are acquired after the first one.
        if self._revoked_at == self._member.rebalances:
            return True
        return self._tracker.is_moving()

    def _back_off(self, error: ZkConsumerError) -> None:
        """Wait before planning again.

        Raises:
            ZkConsumerError: planning has failed for ``clusterUnavailableTimeout``.
        """
        self._problem = Problem.again(self._problem, "planning_failed", error)
        now, timeout_s = time.monotonic(), self._options.unavailable_timeout
        if self._failing_since is None:
            self._failing_since = now
            self._log.warning("batch_planning_failed", error=str(error))
        if now - self._failing_since > timeout_s:
            failure = f"no batch could be planned for {timeout_s:g} s (option clusterUnavailableTimeout): {error}"
            if isinstance(error, AuthorizationError):
                raise type(error)(f"{failure}, and restart the query") from error
            remedy = "Check that ZooKeeper and the brokers are running, or increase the option"
            raise ZkConsumerError(f"{failure}. {remedy}") from error
        time.sleep(IDLE_INTERVAL)

    # ---- PartitionHandler, in the member's thread ----

    def on_partitions_assigned(self, partitions: Mapping[TopicPartition, AssignedPartition]) -> None:
        """Mark partitions as owned. The checkpoint and the committed offsets determine their start positions."""
        self._progress.reread_records += self._tracker.acquire(partitions, self._existing())

    def on_partitions_revoked(
        self, partitions: Set[TopicPartition], final: bool
    ) -> Mapping[TopicPartition, int] | None:
        """Release partitions when their batch has finished and is committed, or at once with ``final``."""
        self._revoked_at = self._member.rebalances
        released = self._tracker.release(partitions, final=final or self._is_closing)
        if released is None:
            return None
        offsets, in_flight = released
        if in_flight and not self._is_closing:  # when closed, the query replays the batch at its next start
            self._progress.reread_records += total(in_flight)
            self._log.warning(
                "partitions_released_early",
                ranges={str(p): list(span) for p, span in sorted(in_flight.items())},
                records=total(in_flight),
                remedy="the next owner reads these records again; make batches shorter than revokeTimeout",
            )
        return offsets

    def on_partitions_lost(self) -> None:
        """Mark all partitions as not owned. No batch is planned until partitions are acquired again."""
        self._revoked_at = self._member.rebalances
        self._tracker.lose()

    def on_lease_expired(self) -> None:
        """Do nothing: a batch is planned only while the lease is held, and a running batch is completed."""

    def consumed_offsets(self) -> Mapping[TopicPartition, int]:
        """Return nothing: offsets are committed when a batch has finished, not periodically."""
        return {}

    def fail(self, error: ZkConsumerError) -> None:
        """Make the next call of ``plan`` raise the error."""
        self._failure = error


def _new_member(
    options: SourceOptions, subscription: Subscription, handler: PartitionHandler
) -> GroupMember | StandaloneReader:
    """Return a member of the group, or with ``membership=none`` a reader of all partitions."""
    if options.is_member:
        return create_member(
            options.consumer,
            subscription.registration(options.streams),
            handler,
            auto_commit=False,
            first_rebalance_timeout_s=options.unavailable_timeout + options.revoke_timeout_s,
        )
    return StandaloneReader(
        options.consumer,
        subscription,
        handler,
        has_offsets=options.has_zookeeper,
        unavailable_timeout=options.unavailable_timeout,
    )
