"""Runs the query of an application in a thread, and restarts it."""

from __future__ import annotations

import enum
import threading
import time
from collections.abc import Callable

from zkconsumer.errors import StreamsError
from zkconsumer.health import Health, HealthReason, HealthState
from zkconsumer.log import get_logger
from zkconsumer.spark.driver.activity import QueryActivity, QueryStatus
from zkconsumer.spark.streams.progress import ProgressReports
from zkconsumer.spark.streams.query import TopologyQuery
from zkconsumer.threads import WAKE_INTERVAL_S, OwnedThread
from zkconsumer.topology.lifecycle import ApplicationState, Lifecycle

#: Seconds between two checks of the query.
_POLL_S = 0.5
#: Maximum seconds to wait for the current batch before the query is restarted to read new partitions, and for the query
#: to stop after its last batch.
_STOP_TIMEOUT_S = 60.0
#: Maximum seconds to wait between a failure and the restart.
_MAX_PAUSE_S = 60.0
#: Maximum exponent of the exponential backoff between a failure and the restart.
_MAX_EXPONENT = 6
#: Terminal states of an application.
_ENDED = (ApplicationState.ERROR, ApplicationState.NOT_RUNNING)
#: States after a failure.
_FAILED = (ApplicationState.PENDING_ERROR, ApplicationState.ERROR)


class ExceptionResponse(enum.Enum):
    """The response to a query exception. Source: StreamsUncaughtExceptionHandler."""

    #: Restart the query from its checkpoint.
    REPLACE_QUERY = "replace query"
    #: Stop the application, and set its state to ``ERROR``.
    SHUTDOWN = "shut down"


#: Function that is called with the exception that ended the query, and returns the response.
ExceptionHandler = Callable[[BaseException], ExceptionResponse]


class Supervisor:
    """Starts, restarts and stops the query of an application.

    Thread-safe. While the supervisor's thread runs, only this thread starts and stops the query; other threads request
    a stop with ``close``.

    Args:
        query: the query.
        name: name of the application.
        lifecycle: state of the application; the supervisor changes it.
        describe: function that describes an exception of the query.
        trigger_s: interval between batch starts, in seconds.
        max_restarts: maximum number of consecutive restarts without a processed record.

    Attributes:
        handler: function that determines the response to a query exception. Set before ``start``.
        progress_listener: function that is called with the progress after each batch, or None. Set before ``start``.
        reports: progress reports of the query.
        error: exception that ended the application; None if there is none.
    """

    def __init__(
        self,
        query: TopologyQuery,
        name: str,
        lifecycle: Lifecycle,
        describe: Callable[[BaseException], str],
        *,
        trigger_s: float,
        max_restarts: int,
    ) -> None:
        self.handler: ExceptionHandler = lambda _error: ExceptionResponse.SHUTDOWN
        self.progress_listener: Callable[..., object] | None = None
        self.reports = ProgressReports()
        self.error: BaseException | None = None
        self._query = query
        self._name = name
        self._lifecycle = lifecycle
        self._describe = describe
        self._max_restarts = max_restarts
        self._lock = threading.RLock()  # serializes ``start``, ``close`` and ``clean_up``
        self._started, self._stop = threading.Event(), threading.Event()
        self._close_timeout_s = 0.0
        self._has_stop_failed = False
        #: Time of the last failure, in seconds since the epoch, and its error.
        self._failure: tuple[float, BaseException] | None = None
        self._activity = QueryActivity(trigger_s, query.describe_running_tasks)
        self._thread = OwnedThread(self._run, f"zkconsumer-streams-{name}", self._on_crash)
        self._log = get_logger("zkconsumer.spark")

    def start(self) -> None:
        """Start the query, and wait until it has started; see ``StreamsApp.start``."""
        with self._lock:
            if self._lifecycle.state is not ApplicationState.CREATED:
                raise StreamsError(f"a StreamsApp can be started only once; its state is {self._lifecycle.state.name}")
            self._lifecycle.set_state(ApplicationState.REBALANCING)
            self._thread.start()
        while not self._started.wait(WAKE_INTERVAL_S):
            pass
        if self.error is not None:
            raise self.error

    def clean_up(self) -> list[str]:
        """Delete the state of an application that is not running; see ``StreamsApp.clean_up``."""
        with self._lock:
            if self._lifecycle.state not in (ApplicationState.CREATED, *_ENDED):
                raise StreamsError(f"clean_up() was called in state {self._lifecycle.state.name}; call close() first")
            return self._query.clean_up()

    def close(self, timeout_s: float) -> bool:
        """Stop the query, and return whether it ended within the timeout; see ``StreamsApp.close``."""
        with self._lock:
            was_started = self._lifecycle.state is not ApplicationState.CREATED
            if not was_started or self._lifecycle.state not in _ENDED:
                self._lifecycle.set_state(ApplicationState.PENDING_SHUTDOWN)
            self._close_timeout_s = timeout_s
            self._stop.set()
        if not was_started:
            self._lifecycle.set_state(ApplicationState.NOT_RUNNING)
        return self._thread.join(timeout_s + _STOP_TIMEOUT_S) and not self._has_stop_failed

    def health(self) -> Health:
        """Return whether the application makes progress, and if not, why."""
        failure, state = self._failure, self._lifecycle.state
        reasons = list(self._activity.health_reasons())
        if state is ApplicationState.RUNNING:
            reasons += [*self.reports.health_reasons(), *self._query.health_reasons()]
        if failure is not None and state in (ApplicationState.REBALANCING, *_FAILED):
            severity = HealthState.FAILED if state in _FAILED else HealthState.STALLED
            since, error = failure
            reasons.append(HealthReason(severity, "query_failed", since, self._describe(error)))
        return Health.of(reasons)

    # ---- called by the supervisor's thread ----

    def _run(self) -> None:
        try:
            error = self._supervise()
        except BaseException as crash:
            error = crash
        try:
            self._end(error)
        finally:
            self._started.set()

    def _supervise(self) -> BaseException | None:
        """Run the query, and restart it if the handler requests it; return the last error, or None.

        A query that ended without an error is restarted while it processes records or writes to its own source topics.
        A query whose topics have new partitions is restarted to read them.
        """
        failures = 0
        while not self._stop.is_set():
            has_started, work, error = self._run_query()
            if self._stop.is_set():
                return error
            new_topics = self._query.find_new_topics(is_due=error is not None) if has_started else []
            if new_topics:
                self._log.info("streams_topics_added", group=self._name, topics=new_topics)
            if new_topics or (error is None and work):
                self._query.stop(_STOP_TIMEOUT_S, keeps_owner=True)
                self._lifecycle.set_state(ApplicationState.REBALANCING)
                continue
            failures = 1 if work else failures + 1
            if error is None or not self._wants_restart(error, failures):
                return error
            self._log_failure(error, "restart")
            self._lifecycle.set_state(ApplicationState.REBALANCING)
            self._stop.wait(min(2.0 ** min(failures - 1, _MAX_EXPONENT), _MAX_PAUSE_S))
        return None

    def _run_query(self) -> tuple[bool, int, BaseException | None]:
        """Run the query until it ends, a stop is requested, or its topics have new partitions.

        Returns:
            Whether the query started, the number of records that it processed or wrote to its own source topics, and
            the exception that ended it or prevented its start.
        """
        self._activity.update(QueryStatus())
        try:
            self._query.start()
        except Exception as error:
            self._activity.end()
            if not self._started.is_set():
                raise  # ``start`` raises the error
            return False, 0, error
        self._lifecycle.set_state(ApplicationState.RUNNING)
        self._started.set()
        count = 0
        while not self._stop.is_set():
            has_ended = self._query.wait(_POLL_S)
            count += self._add_reports()
            if has_ended:
                self._activity.end()
                return True, count, self._query.exception()
            self._activity.update(self._query.status, lag=self.reports.lag)
            if self._query.find_new_topics():
                break
        return True, count, None

    def _end(self, error: BaseException | None) -> None:
        """Stop the query, and set the final state, even if stopping fails."""
        self._activity.end()
        self._has_stop_failed = True
        try:
            self._query.stop(self._close_timeout_s if error is None else 0)
            self._has_stop_failed = False
            self._add_reports()
        except Exception as second:
            self._log_failure(second, "stop")
        self._query.close()
        if error is None:
            self._lifecycle.set_state(ApplicationState.PENDING_SHUTDOWN)
            self._lifecycle.set_state(ApplicationState.NOT_RUNNING)
            return
        self._log_failure(error, "stop")
        with self._lock:  # a concurrent close() sets the stop event and the state together
            if not self._stop.is_set():
                self.error = error
                self._lifecycle.set_state(ApplicationState.PENDING_ERROR)
                self._lifecycle.set_state(ApplicationState.ERROR)
                return
        self._lifecycle.set_state(ApplicationState.NOT_RUNNING)

    def _add_reports(self) -> int:
        """Add the progress reports of new batches; return the sum of the results of ``ProgressReports.add``."""
        count = 0
        for report in self._query.take_reports():
            count += self.reports.add(report)
            self._query.finish_batch(report)
            if self.progress_listener is not None:
                self.progress_listener(self.reports.progress())
        return count

    def _wants_restart(self, error: BaseException, failures: int) -> bool:
        try:
            response = self.handler(error)
        except Exception as second:
            error.add_note(f"the exception handler failed: {second!r}")
            return False
        return response is ExceptionResponse.REPLACE_QUERY and failures <= self._max_restarts

    def _log_failure(self, error: BaseException, reason: str) -> None:
        self._failure = time.time(), error
        self._log.error("streams_query_failed", group=self._name, error=self._describe(error), reason=reason)

    def _on_crash(self, error: BaseException) -> None:
        self.error = error
        self._log_failure(error, "stop")
