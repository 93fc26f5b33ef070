"""``StreamsApp``: runs a topology as one streaming query.

Source: Kafka 3.9 org.apache.kafka.streams.KafkaStreams.
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable, Mapping
from typing import Any

from zkconsumer.errors import StreamsError
from zkconsumer.log import get_logger
from zkconsumer.spark.streams.query import QuerySettings, TopologyQuery
from zkconsumer.threads import OwnedThread
from zkconsumer.topology.builder import Topology
from zkconsumer.topology.config import ApplicationConfig
from zkconsumer.topology.lifecycle import ApplicationState, Lifecycle, StateListener

#: Seconds between two looks at the query.
_POLL_S = 0.5


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
        checkpoint: folder of the checkpoint, which all workers can access.
        properties: consumer properties with ``zookeeper.connect`` or ``bootstrap.servers``.
        settings: settings of the query.
        max_restarts: number of times that ``ExceptionResponse.REPLACE_QUERY`` restarts the query.

    Raises:
        TopologyError: the topology has no source.
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
        self._query = TopologyQuery(topology, config, spark, str(checkpoint), properties, settings or QuerySettings())
        self._name = config.application_id
        self._lifecycle = Lifecycle()
        self._restarts_left = max_restarts
        self._handler: ExceptionHandler = lambda _error: ExceptionResponse.SHUTDOWN
        self._stop = threading.Event()
        self._thread = OwnedThread(self._run, f"zkconsumer-streams-{self._name}", self._on_crash)
        self._error: BaseException | None = None
        self._metrics: dict[str, dict[str, int]] = {}
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
        """Set the function that is called with the new and the old state.

        Raises:
            StreamsError: the application was started.
        """
        self._lifecycle.set_listener(listener)

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
        """Start the query, and wait until Spark has planned it.

        Raises:
            StreamsError: the application was started before, or the checkpoint belongs to another one.
            ConfigurationError: a property or topic is invalid.
        """
        if self.state is not ApplicationState.CREATED:
            raise StreamsError(f"a StreamsApp can be started once; its state is {self.state.name}")
        self._lifecycle.set_state(ApplicationState.REBALANCING)
        try:
            self._query.start()
        except BaseException as error:
            self._fail(error)
            raise
        self._lifecycle.set_state(ApplicationState.RUNNING)
        self._thread.start()

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
        """Stop the query, and return whether it ended in time. A second call has no effect.

        It waits for the end of the current batch. A batch that does not end in time is repeated after a restart.
        """
        if self.state in (ApplicationState.ERROR, ApplicationState.NOT_RUNNING):
            return self._thread.join(timeout_s)
        self._lifecycle.set_state(ApplicationState.PENDING_SHUTDOWN)
        self._stop.set()
        self._query.stop(timeout_s)
        ended = self._thread.join(timeout_s)
        if ended:
            self._lifecycle.set_state(ApplicationState.NOT_RUNNING)
        return ended

    def _run(self) -> None:
        while not self._stop.is_set():
            has_ended = self._query.wait(_POLL_S)
            self._add_metrics()
            if not has_ended:
                continue
            error = self._query.exception()
            if self._stop.is_set():
                return
            if error is None:  # something else has stopped it
                self._query.stop(0)
                self._lifecycle.set_state(ApplicationState.PENDING_SHUTDOWN)
                self._lifecycle.set_state(ApplicationState.NOT_RUNNING)
                return
            if not self._replace(error):
                self._fail(error)
                return

    def _add_metrics(self) -> None:
        changes = self._query.take_metrics()
        with self._metrics_lock:
            for task, of_task in changes.items():
                total = self._metrics.setdefault(task, {})
                for name, change in of_task.items():
                    total[name] = total.get(name, 0) + change

    def _replace(self, error: BaseException) -> bool:
        """Restart the query after an exception, if the handler wants it."""
        if self._handler(error) is not ExceptionResponse.REPLACE_QUERY:
            return False
        if self._restarts_left == 0:
            self._log.error("streams_restarts_exhausted", group=self._name, error=describe(error))
            return False
        self._restarts_left -= 1
        if self._lifecycle.set_state(ApplicationState.REBALANCING):  # False if the application is being closed
            self._query.start()
            self._lifecycle.set_state(ApplicationState.RUNNING)
            if self._stop.is_set():
                self._query.stop(0)
        return True

    def _fail(self, error: BaseException) -> None:
        self._error = error
        self._query.stop(0)
        self._lifecycle.set_state(ApplicationState.PENDING_ERROR)
        self._lifecycle.set_state(ApplicationState.ERROR)

    def _on_crash(self, error: BaseException) -> None:
        self._fail(error)


def describe(error: BaseException) -> str:
    """Return the message of an error: of an exception of Spark, that of the Python exception in a worker."""
    lines = str(error).splitlines() or [repr(error)]
    return next((line for line in reversed(lines) if line.startswith("zkconsumer.errors.")), lines[0])
