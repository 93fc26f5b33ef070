"""Health of a streaming query, from its progress reports, its status, and the state of its planning processes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from zkconsumer.health import HealthReason, HealthState, ProgressWatch
from zkconsumer.spark.driver.activity import QueryActivity, describe_running_tasks, read_status
from zkconsumer.spark.driver.failures import describe_failure
from zkconsumer.spark.driver.source_reports import find_report

#: Expected interval between two attempts to commit a finished batch, in seconds.
_COMMIT_INTERVAL_S = 10.0


class ReportedReasons:
    """Health reasons that were reported as codes, with the time when each code was first reported.

    One thread updates them; any thread may read them.
    """

    def __init__(self) -> None:
        self._reasons: dict[str, HealthReason] = {}

    def __iter__(self) -> Iterator[HealthReason]:
        return iter(list(self._reasons.values()))

    def update(self, found: Mapping[str, tuple[HealthState, str]]) -> None:
        """Replace the reasons.

        Args:
            found: state and message by code.
        """
        known, now = self._reasons, time.time()
        self._reasons = {
            code: HealthReason(state, code, known[code].since if code in known else now, message)
            for code, (state, message) in found.items()
        }


class _CommitWatch(ProgressWatch):
    """Detects that the offsets of a source are not committed.

    Args:
        group: ``group.id`` of the source.
    """

    def __init__(self, group: str) -> None:
        super().__init__(_COMMIT_INTERVAL_S)
        self.group = group


class QueryHealth:
    """Determines whether a query makes progress. The listener thread updates it; any thread may read it.

    Args:
        spark: the Spark session.
        query: the streaming query.
        name: name or id of the query, for messages.
        groups: ``group.id`` of the query's sources.
    """

    def __init__(self, spark: Any, query: Any, name: str, groups: Collection[str]) -> None:
        self._spark, self._query, self._name, self._groups = spark, query, name, groups
        self._activity = QueryActivity(
            find_trigger_interval(query), lambda: describe_running_tasks(spark, query.runId, None)
        )
        self._commits: dict[int, _CommitWatch] = {}  # by source index
        self._reported = ReportedReasons()
        #: Last state of each planning process, by consumer id: ``lag``, ``owned``, ``health`` and
        #: ``healthReasons``, and ``delayed`` if the process planned no batch.
        self._states: dict[str, Mapping[str, Any]] = {}
        self._last_batch, self._idle_plannings = -1, 0

    def add_progress(self, progress: Mapping[str, Any]) -> None:
        """Record a finished batch, given its progress report."""
        self._last_batch = progress["batchId"]
        states = (find_report(source) for source in progress["sources"])
        self._states = {state["consumer"]: state for state in states if "consumer" in state}
        self._update_reported()

    def add_idle(self, consumer_id: str, state: Mapping[str, Any]) -> None:
        """Record that a planning process found no records for a batch, if the process belongs to the query.

        Args:
            consumer_id: consumer id of the planning process.
            state: its group and current state, as in its reports about batches, and as ``delayed`` whether a limit such
                as ``minOffsetsPerTrigger`` delays the unread records.
        """
        if consumer_id in self._states or (not self._states and state["group"] in self._groups):
            self._states[consumer_id] = state
            self._idle_plannings += 1
            self._update_reported()

    def update(self, uncommitted: Mapping[int, str], commit_counts: Mapping[int, int]) -> None:
        """Record the current state of the query.

        Args:
            uncommitted: ``group.id`` of each source with a finished batch whose offsets have not been committed, by
                source index.
            commit_counts: number of batches whose offsets were committed, by source index.
        """
        new = uncommitted.keys() - self._commits.keys()
        self._commits |= {source: _CommitWatch(uncommitted[source]) for source in new}
        for source, watch in self._commits.items():
            watch.update(commit_counts.get(source, 0), has_work=source in uncommitted)
        with contextlib.suppress(Exception):  # the session is being stopped
            status = read_status(self._spark, self._query, self._last_batch)
            # The last known lag of a query without partitions is that of partitions which other members read.
            waiting = (one for one in self._states.values() if one["owned"] and not one.get("delayed"))
            lag = sum(int(state["lag"]) for state in waiting)
            self._activity.update(status, lag=lag, idle_plannings=self._idle_plannings)

    def reasons(self) -> Iterator[HealthReason]:
        """Yield the reasons why the query is not healthy."""
        yield from self._reported
        yield from self._activity.health_reasons(f"query {self._name!r}: ")
        for watch in list(self._commits.values()):
            waited_s = watch.find_stall()
            if waited_s is not None:
                message = (
                    f"query {self._name!r}: the offsets of a finished batch of the group {watch.group!r} were not "
                    f"committed for {waited_s:.0f} s"
                )
                yield HealthReason(HealthState.STALLED, "commit_failed", time.time() - waited_s, message)

    def _update_reported(self) -> None:
        self._reported.update(
            {
                code: (
                    HealthState[state["health"].upper()],
                    f"query {self._name!r}: the planning process reported {code}; see its log",
                )
                for state in self._states.values()
                for code in state.get("healthReasons", ())
            }
        )


class FailedQueries:
    """Queries that ended with an exception, until they are started again.

    The listener thread updates them; any thread may read them.
    """

    def __init__(self) -> None:
        self._reasons: dict[str, tuple[str, HealthReason]] = {}  # by query id: the name, and the reason

    @property
    def names(self) -> list[str]:
        """Names of the queries."""
        return [name for name, _ in self._reasons.copy().values()]

    def add(self, query_id: str, name: str, error: str) -> None:
        """Add a query.

        Args:
            query_id: id of the query, which is the same after a restart from the checkpoint.
            name: name of the query, or its id if it has none.
            error: the exception and its stack trace as text.
        """
        message = f"query {name!r} failed and must be restarted: {describe_failure(error)}"
        self._reasons[query_id] = name, HealthReason(HealthState.FAILED, "query_failed", time.time(), message)

    def remove(self, query_id: str, name: str) -> None:
        """Remove a query that was started again, with the same checkpoint or the same name."""
        for known, (known_name, _) in list(self._reasons.items()):
            if query_id == known or name == known_name:
                del self._reasons[known]

    def reasons(self) -> list[HealthReason]:
        """Return one reason for each query."""
        return [reason for _, reason in self._reasons.copy().values()]


def find_trigger_interval(query: Any) -> float:
    """Return the trigger interval of a streaming query in seconds; 0 if it starts batches without waiting."""
    with contextlib.suppress(Exception):  # other triggers have no interval
        return float(query._jsq.streamingQuery().trigger().intervalMs()) / 1_000
    return 0.0
