"""The process in which Spark plans the batches of a query: its group member, and its connections to driver and tasks.

Source: Spark 4.3 python_streaming_source_runner.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from zkconsumer.spark.offset import INITIAL, BatchOffset, group_by_topic
from zkconsumer.spark.options.limits import Limits
from zkconsumer.spark.options.source_options import SourceOptions
from zkconsumer.spark.planning.early_join import EarlyJoin
from zkconsumer.spark.query_context import QueryContext

if TYPE_CHECKING:  # the process imports them while it joins the group
    from zkconsumer.spark.driver_link import DriverLink
    from zkconsumer.spark.executor.fetch_task import FetchTask
    from zkconsumer.spark.executor.task_reports import ReportListener, SkippedRange
    from zkconsumer.spark.planning.batch_planner import TriggerKind
    from zkconsumer.spark.planning.planner import Planner

#: Minimum seconds between two reports while no batch is planned.
_IDLE_REPORT_INTERVAL_S = 1.0


class PlanningProcess:
    """Plans the batches of a query with a ``Planner``, and receives task reports.

    Spark's thread calls all methods.
    """

    def __init__(self, context: QueryContext) -> None:
        self._context = context
        self._options = SourceOptions.parse(context.options)
        self._join: EarlyJoin | None = EarlyJoin(self._options, os.getppid())
        self._planner: Planner | None = None
        self._is_bounded = False
        self._reports: ReportListener | None = None
        self._link: DriverLink | None = None
        self._idle_reported_at = -_IDLE_REPORT_INTERVAL_S
        self._reported: Mapping[str, Any] = INITIAL  # end offset of the batch in the last report
        self._reported_at = -_IDLE_REPORT_INTERVAL_S

    @property
    def limits(self) -> Limits:
        """The batch limits of the query."""
        return self._options.limits

    def join(self) -> None:
        """Join the group, and wait a limited time for the first assignment; see ``EarlyJoin``."""
        if self._join is not None:
            self._join.start()

    def prepare_for_available_now(self) -> None:
        """Stop the query at the log end offsets that the next call to ``plan`` finds."""
        self._is_bounded = True

    def plan(self, start: dict[str, Any], max_offsets: int | None, trigger: TriggerKind) -> dict[str, Any]:
        """Record that the batch that ends at ``start`` has finished, and plan the next one; see ``Planner.plan``.

        Returns:
            The end of the next batch, or ``start`` if there is nothing to read.
        """
        planner = self._started_planner(start)
        planner.finish_batch(start)
        if self._reports is not None and self._reports.has_ended:
            return BatchOffset.from_json(start).end_of_stream().to_json()
        end = planner.plan(start, max_offsets, trigger)
        if end is start:
            self._report_idle(planner)
        return end

    def tasks(self, end: dict[str, Any]) -> list[FetchTask]:
        """Return the tasks of a batch. Ranges depend only on ``end``, so a replayed batch reads the same offsets."""
        from zkconsumer.spark.planning.planned_ranges import add_planned_ranges, create_planning_task
        from zkconsumer.spark.planning.splitting import task, tasks

        planner = self._started_planner(end)
        ranges = planner.start_batch(end)
        leaders, brokers = planner.find_brokers(ranges)
        if self._link is not None:
            self._link.send(brokers=[broker[:2] for broker in brokers])
        offset, row_schema = BatchOffset.from_json(end), self._options.row_schema(self._context.schema)
        reports = self._reports.address if self._reports is not None else None
        if self._options.planned_ranges == "only":
            fetch = task(self._options, ranges, leaders, brokers, row_schema, reports=reports)
            return [create_planning_task(fetch, offset)]
        found = tasks(
            self._options,
            ranges,
            leaders,
            brokers,
            self._link.cores if self._link is not None else self._context.cores,
            row_schema,
            reports=reports,
            can_end=self._context.has_an_end,
        )
        return add_planned_ranges(list(found), ranges, offset)

    def report_batch(self, end: Mapping[str, Any]) -> None:
        """Send ``latest`` to the driver, for versions of Spark whose progress reports do not contain it.

        Until the next batch is planned, the report is repeated in calls that are at least a second apart.

        Args:
            end: offset of the batch that was planned last.
        """
        now = time.monotonic()
        is_new = end != self._reported
        if self._link is not None and (is_new or now >= self._reported_at + _IDLE_REPORT_INTERVAL_S):
            self._reported, self._reported_at = end, now
            self._link.send(batch=end, report=self.latest())

    def finish(self, end: Mapping[str, Any]) -> None:
        """Record that a batch has finished. Usually ``plan`` has already done so."""
        if self._planner is not None:
            self._planner.finish_batch(end)

    def latest(self) -> dict[str, Any] | None:
        """Return the end offsets, the lag and the member's state for progress events; None before the first batch."""
        return self._planner.latest() if self._planner is not None else None

    def stop(self) -> None:
        """Leave the group, so that the member's ephemeral znodes are deleted immediately."""
        if self._join is not None:
            self._join.close()
            self._join = None
        if self._planner is not None:
            self._planner.close()
            self._planner = None
        if self._reports is not None:
            self._reports.close()
            self._reports = None
        if self._link is not None:
            self._link.close()
            self._link = None

    def _started_planner(self, seen: Mapping[str, Any]) -> Planner:
        """Return the planner. The first call waits until the group is joined.

        Args:
            seen: an offset from Spark's offset log.
        """
        if self._planner is None:
            self._planner = planner = self._create_planner(seen)
            if self._context.has_an_end or self._options.may_skip:
                from zkconsumer.spark.executor.task_reports import ReportListener, local_address

                host, bind = self._context.driver or local_address()
                self._reports = ReportListener(host, bind, on_skipped=self._record_skipped)
                self._reports.start()
            planner.start()
            if self._context.link is not None:
                from zkconsumer.spark.driver_link import DriverLink

                self._link = DriverLink(planner.consumer_id, self._context.cores, planner.finish_reported_batch)
                self._link.connect(self._context.link)
        return self._planner

    def _create_planner(self, seen: Mapping[str, Any]) -> Planner:
        from zkconsumer.spark.planning.factory import create_planner

        joined = None
        if self._join is not None:
            joined = self._join.take(is_new=not BatchOffset.from_json(seen).ends)
        try:
            planner = create_planner(self._options, seen, application=os.getppid(), joined=joined)
        except BaseException:
            if joined is not None:
                joined.close()
            raise
        if self._is_bounded:
            planner.prepare_for_available_now()
        return planner

    def _report_idle(self, planner: Planner) -> None:
        """Report the current state to the driver, because Spark sends no progress report without a batch."""
        now = time.monotonic()
        if self._link is not None and now >= self._idle_reported_at + _IDLE_REPORT_INTERVAL_S:
            self._idle_reported_at, latest = now, planner.latest()
            state = {key: latest[key] for key in ("lag", "owned", "health", "healthReasons")}
            state = {**state, "group": self._options.consumer.group_id, "delayed": planner.is_delayed}
            self._link.send(idle=state)

    def _record_skipped(self, ranges: Iterable[SkippedRange]) -> None:
        """Record the offsets that a task skipped. Called in a ``ReportListener`` thread."""
        planner, link = self._planner, self._link
        if planner is None:
            return
        planner.skipped.record(ranges)
        if link is not None:
            lost, skipped = planner.skipped.counts
            link.send(recordsLost=group_by_topic(lost), recordsSkipped=group_by_topic(skipped))
