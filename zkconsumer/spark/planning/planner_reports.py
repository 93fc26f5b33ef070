"""Reports the state of a query: its health, and the report that Spark adds to its progress events."""

from __future__ import annotations

from typing import Any

from zkconsumer.health import Health, Problem
from zkconsumer.spark.offset import group_by_topic
from zkconsumer.spark.planning.available_offsets import AvailableOffsets
from zkconsumer.spark.planning.batch_shares import BatchShares
from zkconsumer.spark.planning.end_offsets import EndOffsets
from zkconsumer.spark.planning.planner_commits import PlannerCommits
from zkconsumer.spark.planning.query_member import QueryMember
from zkconsumer.spark.planning.skipped_records import SkippedRecords


class PlannerReports:
    """Reports the state of a query. Used by Spark's thread.

    Attributes:
        skipped: counts the records that the query skips; thread-safe.
    """

    def __init__(
        self,
        member: QueryMember,
        ends: EndOffsets,
        available: AvailableOffsets,
        shares: BatchShares,
        commits: PlannerCommits,
        skipped: SkippedRecords,
    ) -> None:
        self.skipped = skipped
        self._member = member
        self._ends = ends
        self._available = available
        self._shares = shares
        self._commits = commits

    def latest(self, planning_problem: Problem | None) -> dict[str, Any]:
        """Return the report for Spark's progress events: end offsets, lag, health and counters.

        Args:
            planning_problem: problem that made the last planning attempt fail; None if it succeeded.
        """
        lags = self._ends.lags() or [0]
        health = self._health(planning_problem)
        records_lost, records_skipped = self.skipped.counts
        return {
            "latest": group_by_topic(self._ends.latest),
            "lag": sum(lags),
            "maxOffsetsBehindLatest": max(lags),
            "minOffsetsBehindLatest": min(lags),
            "avgOffsetsBehindLatest": sum(lags) / len(lags),
            "health": health.state.name.lower(),
            "healthReasons": [reason.code for reason in health.reasons],
            "recordsLost": group_by_topic(records_lost),
            "recordsSkipped": group_by_topic(records_skipped),
            "unavailablePartitions": list(map(str, self._available.unavailable)),
            **self._member.state(),
            **self._commits.state(),
            **self._shares.state(),
        }

    def _health(self, planning_problem: Problem | None) -> Health:
        reasons = [*self._member.group_member.health_reasons(), *self._available.health_reasons()]
        problems = planning_problem, self._commits.problem
        reasons += [problem.reason() for problem in problems if problem is not None]
        return Health.of(reasons)
