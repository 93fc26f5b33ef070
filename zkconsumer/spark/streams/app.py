"""``StreamsApp``: runs a topology as one streaming query.

Source: Kafka 3.9 org.apache.kafka.streams.KafkaStreams.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from os import PathLike
from types import FrameType
from typing import Any

from zkconsumer.argument_checks import check_attribute
from zkconsumer.checked_arguments import check_arguments_as
from zkconsumer.errors import ConfigurationError, StreamsError
from zkconsumer.health import Health
from zkconsumer.log import get_logger
from zkconsumer.metrics import Kind, MetricName, declare
from zkconsumer.signals import END_SIGNALS, handle_end_signals
from zkconsumer.spark.driver.failures import describe_error
from zkconsumer.spark.streams.application_properties import read_application_properties
from zkconsumer.spark.streams.changes import AllowedChange
from zkconsumer.spark.streams.progress import Progress
from zkconsumer.spark.streams.query import TopologyQuery
from zkconsumer.spark.streams.settings import QuerySettings
from zkconsumer.spark.streams.supervisor import ExceptionHandler, Supervisor
from zkconsumer.threads import run_protected
from zkconsumer.topology.builder import Topology
from zkconsumer.topology.config import ApplicationConfig
from zkconsumer.topology.lifecycle import ApplicationState, Lifecycle, StateListener

#: Seconds between two checks whether a signal arrived.
_SIGNAL_POLL_S = 0.5

_HEALTH = declare(
    "zkconsumer.streams",
    "StreamsApp",
    "Health",
    Kind.GAUGE,
    "application",
    "0 healthy, 2 stalled or restarting after a failure, 4 failed.",
)

#: Function that is called with the progress after each batch.
ProgressListener = Callable[[Progress], object]


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
        ConfigurationError: an argument has the wrong type or is out of range, or the session is one of Spark Connect.
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
        if not hasattr(spark, "_jsparkSession"):
            raise ConfigurationError(
                "spark must be a classic SparkSession, because Spark Connect gives no access to the driver, which "
                "commits the offsets of the application; create the session without remote()"
            )
        settings = settings or QuerySettings()
        self._query = TopologyQuery(topology, config, spark, str(checkpoint), properties, settings, allow)
        self._name = config.application_id
        self._describe = partial(describe_error, checkpoint=str(checkpoint))
        self._lifecycle = Lifecycle()
        self._supervisor = Supervisor(
            self._query,
            self._name,
            self._lifecycle,
            self._describe,
            trigger_s=settings.trigger_ms / 1_000,
            max_restarts=max_restarts,
        )
        self._log = get_logger("zkconsumer.spark")

    @classmethod
    @check_arguments_as(ConfigurationError)
    def from_properties(
        cls,
        topology: Topology,
        properties: Mapping[str, Any] | str | PathLike[str],
        spark: Any,
        checkpoint: str | PathLike[str],
        settings: QuerySettings | None = None,
        *,
        allow: Collection[AllowedChange] = (),
        max_restarts: int = 10,
    ) -> StreamsApp:
        """Create an application from properties with the names of Kafka Streams, such as ``application.id``.

        Specify Kafka classes by name, with or without the package. In a dict, the value can also be a serde, a
        timestamp extractor or an error handler. Properties with the prefix ``producer.`` are producer settings.
        Properties with the prefix ``consumer.`` or ``main.consumer.``, and all properties that only Kafka's clients
        define, are consumer properties.

        Args:
            topology: the topology.
            properties: properties by name, or the path of a Java properties file.
            spark: see ``StreamsApp``.
            checkpoint: see ``StreamsApp``.
            settings: query settings. The properties take precedence.
            allow: see ``StreamsApp``.
            max_restarts: see ``StreamsApp``.

        Raises:
            ConfigurationError: the file cannot be read, ``application.id`` is missing, a property is invalid or not
                supported, or another argument is invalid.

        Source: Kafka 3.9 and 4.4 org.apache.kafka.streams.StreamsConfig.
        """
        check_attribute("spark", spark, "readStream", "a SparkSession")
        found = read_application_properties(properties, settings)
        return cls(
            topology,
            found.config,
            spark,
            checkpoint,
            found.consumer,
            found.settings,
            allow=allow,
            max_restarts=max_restarts,
        )

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
        self._supervisor.progress_listener = None if listener is None else partial(self._notify, listener)

    @check_arguments_as(ConfigurationError)
    def set_uncaught_exception_handler(self, handler: ExceptionHandler) -> None:
        """Set a function that determines the response to a query exception.

        Raises:
            ConfigurationError: ``handler`` is not a function.
            StreamsError: the application was already started.
        """
        self._check_not_started("an exception handler")
        self._supervisor.handler = handler

    @property
    def task_metrics(self) -> dict[str, dict[str, int]]:
        """Metric totals from the start to the last batch, by task id and metric name; see ``StreamTask.metrics``."""
        return self._supervisor.reports.task_metrics()

    @property
    def metrics(self) -> dict[MetricName, Mapping[str, float]]:
        """Health, task metrics and query metrics, for ``zkconsumer.prometheus.ConsumerCollector``."""
        health = {_HEALTH.named(application=self._name): {"Value": float(self.health.state)}}
        return {**self._query.listener_metrics, **health, **dict(self._supervisor.reports.gauges(self._name))}

    @property
    def consumer_id(self) -> str | None:
        """None, because the application is not a group member."""
        return None

    @property
    def progress(self) -> Progress | None:
        """Progress as of the last batch, with totals since the start; None before the first batch."""
        return self._supervisor.reports.progress()

    @property
    def health(self) -> Health:
        """Whether the application makes progress, and if not, why."""
        return self._supervisor.health()

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
        self._supervisor.start()

    @check_arguments_as(ConfigurationError)
    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the application to end; return False if the timeout expires.

        Raises:
            StreamsError: the query failed; its exception is the cause.
        """
        ended = self._lifecycle.wait_for(ApplicationState.NOT_RUNNING, ApplicationState.ERROR, timeout_s=timeout_s)
        error = self._supervisor.error
        if error is not None:
            raise StreamsError(f"application {self._name!r} failed: {self._describe(error)}") from error
        return ended

    def run(self) -> None:
        """Start the application, wait until it ends or receives SIGINT (Ctrl-C), SIGTERM or SIGHUP, and close it.

        Further signals do not interrupt ``close``. Signals that are ignored stay ignored. Must be called in the main
        thread, because only that thread can handle signals.

        Raises:
            StreamsError: the query failed; its exception is the cause. See also ``start``.
        """
        with handling_signals() as stop, self:
            while not self.wait(_SIGNAL_POLL_S):
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
        return self._supervisor.clean_up()

    @check_arguments_as(ConfigurationError)
    def close(self, timeout_s: float = 60.0) -> bool:
        """Stop the query, and return whether it ended in time.

        Waits for the current batch to finish. A batch that does not finish in time is repeated after a restart. If the
        query cannot be stopped, its batch may still be running, and the application's znode is kept until this process
        ends.
        """
        return self._supervisor.close(timeout_s)

    def _check_not_started(self, what: str) -> None:
        if self.state is not ApplicationState.CREATED:
            raise StreamsError(f"{what} can be set only before start(); the state is {self.state.name}")

    def _notify(self, listener: Callable[..., object], *arguments: object) -> None:
        """Call a listener; its errors are logged."""
        try:
            listener(*arguments)
        except (Exception, SystemExit) as error:
            self._log.error("streams_listener_failed", group=self._name, error=repr(error), exc_info=error)


class StopSignal:
    """Signal handler that records that a signal arrived.

    It sets an attribute, because ``threading.Event.set`` acquires a lock that the interrupted code may hold.

    Attributes:
        has_arrived: whether a signal arrived.
    """

    def __init__(self) -> None:
        self.has_arrived = False

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        self.has_arrived = True


@contextmanager
def handling_signals() -> Iterator[StopSignal]:
    """Record the signals that end a program, instead of calling the previous handlers.

    Signals that are ignored stay ignored. Further signals have no effect.
    """
    before = {number: signal.getsignal(number) for number in END_SIGNALS}
    stop = StopSignal()
    try:
        handle_end_signals(stop)
        yield stop
    finally:
        for number, handler in before.items():
            if handler is not None:  # None if it was not set by Python
                signal.signal(number, handler)
