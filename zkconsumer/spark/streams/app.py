"""``StreamsApp``: runs a topology as one streaming query.

Source: Kafka 3.9 org.apache.kafka.streams.KafkaStreams.
"""

from __future__ import annotations

import enum
import threading
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from os import PathLike
from typing import Any

from zkconsumer.argument_checks import check_attribute
from zkconsumer.checked_arguments import check_arguments_as
from zkconsumer.errors import ConfigurationError, StreamsError
from zkconsumer.health import Health, HealthReason, HealthState
from zkconsumer.log import get_logger
from zkconsumer.metrics import Kind, MetricName, declare
from zkconsumer.spark.driver.activity import QueryActivity, QueryStatus
from zkconsumer.spark.driver.failures import describe_error
from zkconsumer.spark.streams.changes import AllowedChange
from zkconsumer.spark.streams.progress import Progress, ProgressReports
from zkconsumer.spark.streams.query import TopologyQuery
from zkconsumer.spark.streams.settings import QuerySettings
from zkconsumer.spark.streams.signals import handling_signals
from zkconsumer.threads import WAKE_INTERVAL_S, OwnedThread, run_protected
from zkconsumer.topology.builder import Topology
from zkconsumer.topology.config import ApplicationConfig
from zkconsumer.topology.lifecycle import ApplicationState, Lifecycle, StateListener

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


_HEALTH = declare(
    "zkconsumer.streams",
    "StreamsApp",
    "Health",
    Kind.GAUGE,
    "application",
    "0 healthy, 2 stalled or restarting after a failure, 4 failed.",
)


class ExceptionResponse(enum.Enum):
    """The response to a query exception. Source: StreamsUncaughtExceptionHandler."""

    #: Restart the query from its checkpoint.
    REPLACE_QUERY = "replace query"
    #: Stop the application, and set its state to ``ERROR``.
    SHUTDOWN = "shut down"


#: Function that is called with the progress after each batch.
ProgressListener = Callable[[Progress], object]

#: Function that is called with the exception that ended the query, and returns the response.
ExceptionHandler = Callable[[BaseException], ExceptionResponse]


class StreamsApp:
    """Runs a topology on Spark. After a restart, it restores tasks, stores and offsets from the checkpoint.

    ::

        app = StreamsApp(topology, ApplicationConfig(application_id="counts"), spark, "/data/counts",
                         {"bootstrap.servers": "kafka:9092"})
        with app:
            app.wait()

    Args:
        topology: the topology.
        config: application settings. ``application_id`` is the consumer group whose offsets are committed for
            monitoring.
        spark: a Spark session.
        checkpoint: checkpoint directory, which all workers must be able to access.
        properties: consumer properties, including ``zookeeper.connect`` or ``bootstrap.servers``.
        settings: query settings.
        allow: topology changes that are allowed when the application resumes from the checkpoint.
        max_restarts: maximum number of consecutive restarts after ``ExceptionResponse.REPLACE_QUERY`` if no record was
            processed between them.

    Raises:
        ConfigurationError: an argument has the wrong type or is out of range.
    """

    @check_arguments_as(ConfigurationError)
    def __init__(
        self,
        topology: Topology,
        config: ApplicationConfig,
        spark: Any,
        checkpoint: str | PathLike[str],
        properties: Mapping[str, str],
        settings: QuerySettings | None = None,
        *,
        allow: Collection[AllowedChange] = (),
        max_restarts: int = 10,
    ) -> None:
        check_attribute("spark", spark, "readStream", "a SparkSession")
        settings = settings or QuerySettings()
        self._query = TopologyQuery(topology, config, spark, str(checkpoint), properties, settings, allow)
        self._name = config.application_id
        self._describe = partial(describe_error, checkpoint=str(checkpoint))
        self._lifecycle = Lifecycle()
        self._max_restarts = max_restarts
        self._progress_listener: ProgressListener | None = None
        self._handler: ExceptionHandler = lambda _error: ExceptionResponse.SHUTDOWN
        self._starting = threading.RLock()  # serializes ``start``, ``close`` and ``clean_up``
        self._started, self._stop = threading.Event(), threading.Event()
        self._close_timeout_s = 0.0
        self._has_stop_failed = False
        self._thread = OwnedThread(self._run, f"zkconsumer-streams-{self._name}", self._on_crash)
        self._error: BaseException | None = None
        #: Time of the last failure, in seconds since the epoch, and its error.
        self._failure: tuple[float, BaseException] | None = None
        self._reports = ProgressReports()
        self._activity = QueryActivity(settings.trigger_ms / 1_000, self._query.describe_running_tasks)
        self._log = get_logger("zkconsumer.spark")

    def __enter__(self) -> StreamsApp:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        run_protected(self.close, f"zkconsumer-streams-{self._name}-close")

    @property
    def state(self) -> ApplicationState:
        """The current state of the application."""
        return self._lifecycle.state

    @check_arguments_as(ConfigurationError)
    def set_state_listener(self, listener: StateListener | None) -> None:
        """Set a function that is called with the new and the old state; None removes it. Its errors are logged.

        Raises:
            ConfigurationError: ``listener`` is neither a function nor None.
            StreamsError: the application was already started.
        """
        self._lifecycle.set_listener(None if listener is None else partial(self._notify, listener))

    @check_arguments_as(ConfigurationError)
    def set_progress_listener(self, listener: ProgressListener | None) -> None:
        """Set a function that is called with the ``Progress`` after each batch; None removes it. Its errors are logged.

        It is called in the thread that monitors the query, so it must return quickly.

        Raises:
            ConfigurationError: ``listener`` is neither a function nor None.
            StreamsError: the application was already started.
        """
        self._check_not_started("a progress listener")
        self._progress_listener = listener

    @check_arguments_as(ConfigurationError)
    def set_uncaught_exception_handler(self, handler: ExceptionHandler) -> None:
        """Set a function that determines the response to a query exception.

        Raises:
            ConfigurationError: ``handler`` is not a function.
            StreamsError: the application was already started.
        """
        self._check_not_started("an exception handler")
        self._handler = handler

    @property
    def task_metrics(self) -> dict[str, dict[str, int]]:
        """Metric totals from the start to the last batch, by task id and metric name; see ``StreamTask.metrics``."""
        return self._reports.task_metrics()

    @property
    def metrics(self) -> dict[MetricName, Mapping[str, float]]:
        """Health, task metrics and query metrics, for ``zkconsumer.prometheus.ConsumerCollector``."""
        health = {_HEALTH.named(application=self._name): {"Value": float(self.health.state)}}
        return {**self._query.listener_metrics, **health, **dict(self._reports.gauges(self._name))}

    @property
    def consumer_id(self) -> str | None:
        """None, because the application is not a group member."""
        return None

    @property
    def progress(self) -> Progress | None:
        """Progress as of the last batch, with totals since the start; None before the first batch."""
        return self._reports.progress()

    @property
    def health(self) -> Health:
        """Whether the application makes progress, and if not, why."""
        failure, state = self._failure, self.state
        reasons = list(self._activity.health_reasons())
        if state is ApplicationState.RUNNING:
            reasons += [*self._reports.health_reasons(), *self._query.health_reasons()]
        if failure is not None and state in (ApplicationState.REBALANCING, *_FAILED):
            severity = HealthState.FAILED if state in _FAILED else HealthState.STALLED
            since, error = failure
            reasons.append(HealthReason(severity, "query_failed", since, self._describe(error)))
        return Health.of(reasons)

    def start(self) -> None:
        """Start the query. Errors in its first batch are raised by ``wait``.

        Raises:
            StreamsError: the application was already started, another instance of it is running, the checkpoint belongs
                to another application or topology or is used by an active query, or an internal topic cannot be used.
            ConfigurationError: a property or setting is invalid, or a required package is not installed.
            TopologyError: the topology has no source or cannot be pickled, a source topic does not exist, or
                co-partitioned topics have different partition counts.
            UnsupportedBrokerError: a broker does not support ``exactly_once_v2``.
            RetriableError: ZooKeeper or the brokers are unreachable.
        """
        with self._starting:
            if self.state is not ApplicationState.CREATED:
                raise StreamsError(f"a StreamsApp can be started only once; its state is {self.state.name}")
            self._lifecycle.set_state(ApplicationState.REBALANCING)
            self._thread.start()
        while not self._started.wait(WAKE_INTERVAL_S):
            pass
        if self._error is not None:
            raise self._error

    @check_arguments_as(ConfigurationError)
    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the application to end; return False if the timeout expires.

        Raises:
            StreamsError: the query failed; its exception is the cause.
        """
        ended = self._lifecycle.wait_for(ApplicationState.NOT_RUNNING, ApplicationState.ERROR, timeout_s=timeout_s)
        if self._error is not None:
            raise StreamsError(f"application {self._name!r} failed: {self._describe(self._error)}") from self._error
        return ended

    def run(self) -> None:
        """Start the application, wait until it ends or receives SIGINT (Ctrl-C), SIGTERM or SIGHUP, and close it.

        Further signals do not interrupt ``close``. Signals that are ignored stay ignored. Must be called in the main
        thread, because only that thread can handle signals.

        Raises:
            StreamsError: the query failed; its exception is the cause. See also ``start``.
        """
        with handling_signals() as stop, self:
            while not self.wait(_POLL_S):
                if stop.has_arrived:
                    return

    def clean_up(self) -> list[str]:
        """Delete the checkpoint with the stores, the group's committed offsets, and the internal topics.

        Other topics are not deleted. After the next start, the application processes them from their starting offsets.

        Returns:
            Descriptions of the deleted items.

        Raises:
            StreamsError: the application is running, or the checkpoint was not written by an application.
            RetriableError: ZooKeeper or the brokers are unreachable.
        """
        with self._starting:
            if self.state not in (ApplicationState.CREATED, *_ENDED):
                raise StreamsError(f"clean_up() was called in state {self.state.name}; call close() first")
            return self._query.clean_up()

    @check_arguments_as(ConfigurationError)
    def close(self, timeout_s: float = 60.0) -> bool:
        """Stop the query, and return whether it ended in time.

        Waits for the current batch to finish. A batch that does not finish in time is repeated after a restart. If the
        query cannot be stopped, its batch may still be running, and the application's znode is kept until this process
        ends.
        """
        with self._starting:
            was_started = self.state is not ApplicationState.CREATED
            if not was_started or self.state not in _ENDED:
                self._lifecycle.set_state(ApplicationState.PENDING_SHUTDOWN)
            self._close_timeout_s = timeout_s
            self._stop.set()
        if not was_started:
            self._lifecycle.set_state(ApplicationState.NOT_RUNNING)
        return self._thread.join(timeout_s + _STOP_TIMEOUT_S) and not self._has_stop_failed

    # ---- application thread; while it runs, only this thread uses the query ----

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
            self._activity.update(self._query.status, lag=self._reports.lag)
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
        with self._starting:  # a concurrent close() sets the stop event and the state together
            if not self._stop.is_set():
                self._error = error
                self._lifecycle.set_state(ApplicationState.PENDING_ERROR)
                self._lifecycle.set_state(ApplicationState.ERROR)
                return
        self._lifecycle.set_state(ApplicationState.NOT_RUNNING)

    def _add_reports(self) -> int:
        """Add the progress reports of new batches; return the sum of the results of ``ProgressReports.add``."""
        count = 0
        for report in self._query.take_reports():
            count += self._reports.add(report)
            self._query.finish_batch(report)
            if self._progress_listener is not None:
                self._notify(self._progress_listener, self._reports.progress())
        return count

    def _check_not_started(self, what: str) -> None:
        if self.state is not ApplicationState.CREATED:
            raise StreamsError(f"{what} can be set only before start(); the state is {self.state.name}")

    def _notify(self, listener: Callable[..., object], *arguments: object) -> None:
        """Call a listener; its errors are logged."""
        try:
            listener(*arguments)
        except (Exception, SystemExit) as error:
            self._log.error("streams_listener_failed", group=self._name, error=repr(error), exc_info=error)

    def _wants_restart(self, error: BaseException, failures: int) -> bool:
        try:
            response = self._handler(error)
        except Exception as second:
            error.add_note(f"the exception handler failed: {second!r}")
            return False
        return response is ExceptionResponse.REPLACE_QUERY and failures <= self._max_restarts

    def _log_failure(self, error: BaseException, reason: str) -> None:
        self._failure = time.time(), error
        self._log.error("streams_query_failed", group=self._name, error=self._describe(error), reason=reason)

    def _on_crash(self, error: BaseException) -> None:
        self._error = error
        self._log_failure(error, "stop")
