"""Plans a query's batches for the partitions that its group member owns.

The planner of a streaming query runs in the process that Spark starts for its source; that of ``KafkaUtils`` runs in
the driver. The batch offsets in Spark's checkpoint are authoritative; the group's offsets are committed after a batch
has finished. Spark signals this by requesting the end of the next batch: it calls ``latestOffset(start)`` only after
the batch ending at ``start`` is in Spark's commit log.

Source: Kafka 1.1 ZookeeperConsumerConnector for the group; Spark 4.3 MicroBatchExecution for the order of calls.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from zkconsumer.broker.known_brokers import KnownBrokers
from zkconsumer.broker.log_offsets import LogOffsets
from zkconsumer.errors import (
    AuthorizationError,
    BrokerUnavailableError,
    OwnershipLostError,
    RetriableError,
    ZkConsumerError,
)
from zkconsumer.health import Problem
from zkconsumer.message import Endpoint, TopicPartition
from zkconsumer.retry import polling
from zkconsumer.spark.offset import BatchOffset, Ranges, from_offset
from zkconsumer.spark.planning.batch_planner import Batch, BatchPlanner, NothingToRead, PlanAgain, TriggerKind
from zkconsumer.spark.planning.end_offsets import IDLE_INTERVAL_S
from zkconsumer.spark.planning.planner_commits import PlannerCommits
from zkconsumer.spark.planning.planner_reports import PlannerReports
from zkconsumer.spark.planning.query_member import QueryMember
from zkconsumer.spark.planning.skipped_records import SkippedRecords

#: Seconds between two lookups of brokers if none is known.
_BROKER_INTERVAL_S = 1.0


class Planner:
    """Plans batches for Spark.

    Spark's thread calls all methods except ``finish_reported_batch``, which the ``DriverLink`` thread calls. The
    ``ReportListener`` threads use only ``skipped``.

    Args:
        unavailable_timeout_s: maximum time that ZooKeeper or the brokers may be unreachable, in seconds.

    Attributes:
        member: the query's group membership and partitions.
        is_delayed: whether ``plan`` last returned no batch although there are unread records, because a limit such as
            ``minOffsetsPerTrigger`` delays them.
    """

    def __init__(
        self,
        member: QueryMember,
        batches: BatchPlanner,
        commits: PlannerCommits,
        reports: PlannerReports,
        logs: LogOffsets,
        *,
        unavailable_timeout_s: float,
    ) -> None:
        self.member = member
        self.is_delayed = False
        self._batches = batches
        self._commits = commits
        self._reports = reports
        self._logs = logs
        self._unavailable_timeout_s = unavailable_timeout_s
        self._failing_since: float | None = None
        self._problem: Problem | None = None  # set while planning fails

    @property
    def consumer_id(self) -> str:
        """Consumer id of the member; unique for each planning process."""
        return self.member.group_member.consumer_id

    @property
    def skipped(self) -> SkippedRecords:
        """Counts the records that the query skips; thread-safe."""
        return self._reports.skipped

    def start(self) -> None:
        """Join the group if necessary; see ``QueryMember.start``."""
        self.member.start()

    def close(self) -> None:
        """Leave the group immediately. An in-flight batch is replayed from the checkpoint when the query restarts."""
        self.member.close()
        self._logs.close()

    def prepare_for_available_now(self) -> None:
        """End the query at the end offsets that the next call to ``plan`` finds (Trigger.AvailableNow)."""
        self._batches.fix_target()

    def record_offset(self, offset: Mapping[str, Any]) -> None:
        """Record an offset from Spark's offset log; its batch may or may not have finished."""
        self.member.tracker.record_offset(offset)

    def start_batch(self, offset: Mapping[str, Any]) -> Ranges:
        """Record a batch that is about to run: a new batch, or one that is replayed after a restart.

        Returns:
            The ranges of the batch, without deleted or re-created topics.

        Raises:
            DataLossError: a topic was deleted or re-created, and ``failOnDataLoss`` is set.
        """
        self.record_offset(offset)
        ranges = self._batches.start(BatchOffset.from_json(offset))
        self.member.tracker.mark_in_flight(ranges)
        return ranges

    def finish_batch(self, offset: Mapping[str, Any]) -> None:
        """Record that a batch has finished, and commit its offsets. Never raises: a later call retries a failed commit.

        For a bounded query, this may be the last call, so the commit is retried for up to
        ``clusterUnavailableTimeout``.
        """

        def commit() -> bool:
            self._commits.commit(offset)
            return not self._commits.is_pending or self.member.has_failed

        if self._batches.is_bounded:
            polling(self._unavailable_timeout_s, interval_s=IDLE_INTERVAL_S, stop=self.member.stopping)(commit)
        else:
            commit()

    def finish_reported_batch(self, offset: Mapping[str, Any]) -> bool:
        """Record a batch that the driver reported as finished, and commit it; return whether it is committed.

        Called by the ``DriverLink`` thread, before Spark's thread calls ``finish_batch``.
        """
        self._commits.commit_reported(offset)
        owned = self.member.tracker.states().keys()
        return not self._commits.is_pending and from_offset(offset).keys() <= owned

    def plan(
        self,
        start: dict[str, Any],
        max_offsets: int | None = None,
        trigger: TriggerKind = TriggerKind.REPEATED,
    ) -> dict[str, Any]:
        """Return the end of the next batch, or ``start`` if no batch can be planned now.

        Args:
            max_offsets: maximum number of offsets in the batch; None for no limit.
            trigger: what is known about the query's trigger.

        Raises:
            DataLossError: records were deleted, and ``failOnDataLoss`` is set.
            ClosedError: the query was stopped before it had read everything.
            ZkConsumerError: planning failed for ``clusterUnavailableTimeout``, for example because the brokers were
                unreachable, or the member failed.
        """
        while True:
            self.member.check_failure()
            self.is_delayed = False
            planned: Batch | NothingToRead | PlanAgain
            try:
                planned = self._batches.plan(start, max_offsets, trigger)
            except (RetriableError, OwnershipLostError) as error:
                self._record_failure(error)
                planned = PlanAgain()
            else:
                self._failing_since = self._problem = None
            match planned:
                case Batch(end):
                    return end
                case NothingToRead(is_delayed):
                    self.is_delayed = is_delayed
                    return start
            if trigger is TriggerKind.REPEATED and not self._batches.is_bounded:
                self.member.stopping.wait(IDLE_INTERVAL_S)
                return start
            self.member.wait(IDLE_INTERVAL_S)  # returning ``start`` would end the query

    def find_brokers(self, ranges: Ranges) -> tuple[dict[TopicPartition, tuple[int, Endpoint]], tuple[Endpoint, ...]]:
        """Return the known leaders of partitions, and the brokers to which tasks may send metadata requests.

        Tasks look up missing leaders at these brokers. They do not use ZooKeeper, so a task without brokers could never
        find a leader. Therefore, the method waits until a broker is known, for example while all registrations are
        expired.

        Raises:
            ClosedError: the query was stopped while no broker was known.
            ZkConsumerError: no broker became known within ``clusterUnavailableTimeout``, or the member failed.
        """
        while True:
            self.member.check_failure()
            leaders, brokers = self._find_leaders(ranges), self._find_known_brokers()
            if brokers or not ranges:
                self._failing_since = self._problem = None
                return leaders, brokers
            self._record_failure(BrokerUnavailableError("no broker is known from which the batch can be read"))
            self.member.wait(_BROKER_INTERVAL_S)

    def _find_leaders(self, ranges: Ranges) -> dict[TopicPartition, tuple[int, Endpoint]]:
        try:
            return self._logs.find_leaders(ranges)
        except RetriableError as error:
            self.member.log.warning("leader_lookup_failed", error=str(error), retriable=True)
            return {}

    def _find_known_brokers(self) -> tuple[Endpoint, ...]:
        known = KnownBrokers()
        known.record(endpoint for _, endpoint in self._logs.leaders.values())
        brokers: list[Endpoint] = []
        try:
            brokers = self.member.group_member.cluster.brokers()
        except ZkConsumerError as error:
            self.member.log.warning("broker_lookup_failed", error=str(error))
        return tuple(known.added_to(brokers))

    def latest(self) -> dict[str, Any]:
        """Return the report for Spark's progress events; see ``PlannerReports.latest``."""
        return self._reports.latest(self._problem)

    def _record_failure(self, error: ZkConsumerError) -> None:
        """Record that planning failed.

        Raises:
            ZkConsumerError: planning has failed for ``clusterUnavailableTimeout``.
        """
        self._problem = Problem.again(self._problem, "planning_failed", error)
        now, timeout_s = time.monotonic(), self._unavailable_timeout_s
        if self._failing_since is None:
            self._failing_since = now
            self.member.log.warning("batch_planning_failed", error=str(error))
        if now - self._failing_since > timeout_s:
            failure = f"no batch could be planned for {timeout_s:g} s (option clusterUnavailableTimeout): {error}"
            if isinstance(error, AuthorizationError):
                raise type(error)(f"{failure}, and restart the query") from error
            remedy = "Check that ZooKeeper and the brokers are running"
            raise ZkConsumerError(f"{failure}. {remedy}") from error
