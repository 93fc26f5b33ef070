"""``StreamsApp``: runs a topology as one streaming query.

Source: Kafka 3.9 org.apache.kafka.streams.KafkaStreams.
"""

from __future__ import annotations

import enum
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from zkconsumer.errors import ConfigurationError, StreamsError
from zkconsumer.log import get_logger
from zkconsumer.spark.streams.query import TopologyQuery
from zkconsumer.spark.streams.settings import QuerySettings
from zkconsumer.threads import OwnedThread
from zkconsumer.topology.builder import Topology
from zkconsumer.topology.config import ApplicationConfig
from zkconsumer.topology.lifecycle import ApplicationState, Lifecycle, StateListener

#: Seconds between two looks at the query.
_POLL_S = 0.5
#: Maximum seconds for the end of the query after the last batch.
_STOP_TIMEOUT_S = 60.0
#: Maximum seconds between a failure and the restart.
_MAX_PAUSE_S = 60.0
#: States after which nothing happens.
_ENDED = (ApplicationState.ERROR, ApplicationState.NOT_RUNNING)


class ExceptionResponse(enum.Enum):
    """What happens after an exception of the query. Source: StreamsUncaughtExceptionHandler."""

    #: Start the query again, from its checkpoint.
    REPLACE_QUERY = "replace query"
    #: Stop the application, with the state ``ERROR``.
    SHUTDOWN = "shut down"


#: Called with the exception that ended the query.
ExceptionHandler = Callable[[BaseException], ExceptionResponse]


class StreamsApp:
    """A topology that runs on Spark: tasks, stores and offsets continue from the checkpoint after a restart.

    ::

        app = StreamsApp(topology, ApplicationConfig(application_id="counts"), spark, "/data/counts",
                         {"bootstrap.servers": "kafka:9092"})
        with app:
            app.wait()

    Args:
        topology: the topology.
        config: settings of the application. ``application_id`` is the consumer group, whose offsets are committed for
            monitoring.
        spark: a Spark session.
        checkpoint: directory of the checkpoint, which all workers can access.
        properties: consumer properties with ``zookeeper.connect`` or ``bootstrap.servers``.
        settings: settings of the query.
        max_restarts: maximum number of restarts by ``ExceptionResponse.REPLACE_QUERY``.

    Raises:
        ConfigurationError: ``max_restarts`` is negative.
    """

    def __init__(
        self,
        topology: Topology,
        config: ApplicationConfig,
        spark: Any,
        checkpoint: str,
        properties: Mapping[str, str],
        settings: QuerySettings | None = None,
        *,
        max_restarts: int = 10,
    ) -> None:
        if max_restarts < 0:
            raise ConfigurationError(f"max_restarts must be a non-negative integer, got {max_restarts}")
        self._query = TopologyQuery(topology, config, spark, str(checkpoint), properties, settings or QuerySettings())
        self._name = config.application_id
        self._lifecycle = Lifecycle()
        self._restarts_left = max_restarts
        self._handler: ExceptionHandler = lambda _error: ExceptionResponse.SHUTDOWN
        self._starting = threading.Lock()  # a start and a close change the state one after the other
        self._started, self._stop = threading.Event(), threading.Event()
        self._close_timeout_s = 0.0
        self._thread = OwnedThread(self._run, f"zkconsumer-streams-{self._name}", self._on_crash)
        self._error: BaseException | None = None
        self._metrics: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._metrics_lock = threading.Lock()
        self._log = get_logger("zkconsumer.spark")

    def __enter__(self) -> StreamsApp:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def state(self) -> ApplicationState:
        """The current state."""
        return self._lifecycle.state

    def set_state_listener(self, listener: StateListener | None) -> None:
        """Set the function that is called with the new and the old state. Its errors are logged.

        Raises:
            StreamsError: the application was started.
        """

        def notify(new: ApplicationState, old: ApplicationState) -> None:
            try:
                assert listener is not None
                listener(new, old)
            except Exception as error:
                self._log.error("streams_listener_failed", group=self._name, error=repr(error), exc_info=error)

        self._lifecycle.set_listener(None if listener is None else notify)

    def set_uncaught_exception_handler(self, handler: ExceptionHandler) -> None:
        """Set the function that decides what happens after an exception of the query.

        Raises:
            StreamsError: the application was started.
        """
        if self.state is not ApplicationState.CREATED:
            raise StreamsError(f"an exception handler can be set only before the start; the state is {self.state.name}")
        self._handler = handler

    @property
    def metrics(self) -> dict[str, dict[str, int]]:
        """Metrics by task id and name since the start, updated after each batch; see ``StreamTask.metrics``."""
        with self._metrics_lock:
            return {task: dict(values) for task, values in self._metrics.items()}

    def start(self) -> None:
        """Start the query. Errors of its first batch are raised by ``wait``.

        Raises:
            StreamsError: the application was started before, or the checkpoint belongs to another one.
            ConfigurationError: a property is invalid.
            TopologyError: the topology has no source, or a source topic does not exist.
            RetriableError: ZooKeeper or the brokers are unreachable.
        """
        with self._starting:
            if self.state is not ApplicationState.CREATED:
                raise StreamsError(f"a StreamsApp can be started once; its state is {self.state.name}")
            self._lifecycle.set_state(ApplicationState.REBALANCING)
            self._thread.start()
        self._started.wait()
        if self._error is not None:
            raise self._error

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the end of the application, and return False after the timeout.

        Raises:
            StreamsError: the query failed; its exception is the cause.
        """
        ended = self._lifecycle.wait_for(ApplicationState.NOT_RUNNING, ApplicationState.ERROR, timeout_s=timeout_s)
        if self._error is not None:
            raise StreamsError(f"application {self._name!r} failed: {describe(self._error)}") from self._error
        return ended

    def close(self, timeout_s: float = 60.0) -> bool:
        """Stop the query, and return whether it ended in time.

        It waits for the end of the current batch. A batch that does not end in time is repeated after a restart.
        """
        with self._starting:
            was_started = self.state is not ApplicationState.CREATED
            if not was_started or self.state not in _ENDED:
                self._lifecycle.set_state(ApplicationState.PENDING_SHUTDOWN)
            self._close_timeout_s = timeout_s
            self._stop.set()
        if not was_started:
            self._lifecycle.set_state(ApplicationState.NOT_RUNNING)
        return self._thread.join(timeout_s + _STOP_TIMEOUT_S)

    # ---- the thread of the application, which alone uses the query ----

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
        """Run the query, and restart it after errors, if wanted; return the last error, or None after a stop."""
        attempt = 0
        while not self._stop.is_set():
            error = self._run_query()
            if error is None or self._stop.is_set() or not self._wants_restart(error):
                return error
            self._log_failure(error, "restart")
            self._lifecycle.set_state(ApplicationState.REBALANCING)
            self._stop.wait(min(2.0**attempt, _MAX_PAUSE_S))
            attempt += 1
        return None

    def _run_query(self) -> BaseException | None:
        """Return the exception that ended the query, or prevented a restart; None if the query was stopped."""
        try:
            self._query.start()
        except Exception as error:
            if not self._started.is_set():
                raise  # ``start`` raises it
            return error
        self._lifecycle.set_state(ApplicationState.RUNNING)
        self._started.set()
        while not self._stop.is_set():
            has_ended = self._query.wait(_POLL_S)
            self._add_metrics()
            if has_ended:
                return self._query.exception()
        return None

    def _end(self, error: BaseException | None) -> None:
        """Stop the query, and set the final state, whatever fails."""
        try:
            self._query.stop(self._close_timeout_s if error is None else 0)
            self._add_metrics()
        except Exception as second:
            self._log_failure(second, "stop")
        if error is None:
            self._lifecycle.set_state(ApplicationState.PENDING_SHUTDOWN)
            self._lifecycle.set_state(ApplicationState.NOT_RUNNING)
            return
        self._log_failure(error, "stop")
        if self._stop.is_set():
            self._lifecycle.set_state(ApplicationState.NOT_RUNNING)
            return
        self._error = error
        self._lifecycle.set_state(ApplicationState.PENDING_ERROR)
        self._lifecycle.set_state(ApplicationState.ERROR)

    def _add_metrics(self) -> None:
        changes = list(self._query.take_metrics())
        with self._metrics_lock:
            for task, of_task in changes:
                self._metrics[task].update(of_task)

    def _wants_restart(self, error: BaseException) -> bool:
        try:
            response = self._handler(error)
        except Exception as second:
            error.add_note(f"the exception handler failed: {second!r}")
            return False
        if response is not ExceptionResponse.REPLACE_QUERY or self._restarts_left == 0:
            return False
        self._restarts_left -= 1
        return True

    def _log_failure(self, error: BaseException, reason: str) -> None:
        self._log.error("streams_query_failed", group=self._name, error=describe(error), reason=reason)

    def _on_crash(self, error: BaseException) -> None:
        self._error = error
        self._log_failure(error, "stop")


def describe(error: BaseException) -> str:
    """Return the message of an error: of an exception of Spark, that of the Python exception in a worker."""
    lines = str(error).splitlines() or [repr(error)]
    return next((line for line in reversed(lines) if line.startswith("zkconsumer.errors.")), lines[0])
