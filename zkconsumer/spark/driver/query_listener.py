"""The driver listener, which commits the offsets of completed batches and collects query metrics.

The planning process learns that a batch is completed only when Spark requests the next one. With a long trigger
interval this is late, and with ``Trigger.Once`` or a stop between two triggers it never happens. The listener therefore
commits the offsets of a completed batch if the planning process does not do so within a second, and immediately when
the query ends. It commits offsets only for partitions that no other member owns, and never lowers an offset. It also
stops queries whose decoder detected the end of the stream.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import json
import math
import queue
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from pyspark.sql.streaming.listener import StreamingQueryListener

from zkconsumer.argument_checks import check_attribute
from zkconsumer.broker.known_brokers import KnownBrokers
from zkconsumer.health import Health, HealthState
from zkconsumer.log import get_logger
from zkconsumer.message import Endpoint
from zkconsumer.metrics import MetricName, Metrics
from zkconsumer.spark.driver import sink_metrics, skipped
from zkconsumer.spark.driver.commits import CompletedBatch, DriverCommits, UncommittedBatches
from zkconsumer.spark.driver.metrics import query_metrics
from zkconsumer.spark.driver.observed_query import (
    ObservedQuery,
    find_completion_time,
    find_options,
    read_sources,
)
from zkconsumer.spark.driver.query_health import FailedQueries, QueryHealth
from zkconsumer.spark.driver.source_reports import add_report, find_report, offset_object
from zkconsumer.spark.driver_link import PlannerConnections
from zkconsumer.spark.keyed_server import ServerAddress
from zkconsumer.threads import OwnedThread

#: Maximum seconds to wait for the planning process to commit a completed batch.
_COMMIT_DELAY_S = 1.0

#: Seconds before a failed commit is retried.
_RETRY_INTERVAL_S = 10.0

#: Maximum seconds to retry a query's last commit while ZooKeeper or the brokers are unreachable.
_LAST_COMMIT_TIMEOUT_S = 30.0

#: Maximum seconds to wait for the last commits, and for the thread that starts them.
_COMMITS_TIMEOUT_S = _LAST_COMMIT_TIMEOUT_S + 5.0
_JOIN_TIMEOUT_S = _COMMITS_TIMEOUT_S + 5.0

#: Maximum milliseconds to wait for pending events when the listener is closed.
_EVENTS_TIMEOUT_MS = 10_000

#: Seconds for which the brokers of a planning process are kept after it ended. Spark can report its last batch later.
_KEPT_BROKERS_S = 600.0

#: Interval in seconds at which the listener checks whether the application has ended. While queries are running, each
#: check also looks up the number of executor cores.
_CHECK_INTERVAL_S = 1.0

#: Used instead of a run id in events that contain a planning process's commit confirmation, or its state if it found no
#: records to read.
_COMMITTED, _PLANNED_NOTHING = "committed", "idle"

_STOP, _IDLE = object(), object()


class _Started(NamedTuple):
    """The start of a query of any source.

    Attributes:
        query_id: id of the query.
        name: name of the query, or its id if it has none.
        query: the query.
    """

    query_id: str
    name: str
    query: Any


class _Terminated(NamedTuple):
    """The end of a query.

    Attributes:
        error: the exception and its stack trace as text; None if the query ended without an error.
    """

    error: str | None


class QueryListener(StreamingQueryListener):
    """Observes a session's ``format("zkconsumer")`` queries. Created by ``zkconsumer.spark.register``.

    It is a ``MetricsSource``: ``zkconsumer.prometheus.ConsumerCollector(listener)`` exports lag, rates and commits. It
    is also a ``HealthSource`` for ``HealthServer``.
    Spark's threads put events on a queue, and the listener thread handles them. Other threads commit offsets. PySpark
    has no event for ``spark.stop()``, so the listener thread checks every second whether the application has ended, and
    closes the listener if it has.

    The class has many methods, because it implements these two protocols and Spark's listener interface.
    """

    def __init__(self, spark: Any) -> None:
        check_attribute("spark", spark, "readStream", "a SparkSession")
        self._spark = spark
        self._events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._queries: dict[str, ObservedQuery] = {}  # by run id; only the listener thread changes it
        self._failed = FailedQueries()
        self._metrics = Metrics()
        self._metrics.register_gauges(self._gauges)
        self._commits = DriverCommits(self._metrics)
        self._planners = PlannerConnections(self._receive)
        self._known: dict[str, KnownBrokers] = {}  # by consumer id of the planning process
        self._ended_at: dict[str, float] = {}  # by consumer id, when it was first seen without a connection
        self._cores = 0
        self._checked_at = -math.inf
        self._numbers = itertools.count()
        self._log = get_logger("zkconsumer.spark")
        self._thread = OwnedThread(self._run, "zkconsumer-query-listener", self._log_crash("query_listener_failed"))

    def start(self) -> None:
        """Start listening."""
        self._planners.start()
        self._refresh_cores()
        self._thread.start()
        self._spark.streams.addListener(self)
        # Without this, the thread would end with the interpreter, before the last batch is committed, and Spark would
        # log an error for each later event.
        atexit.register(self.close)

    def close(self) -> None:
        """Commit the completed batches, and stop listening. Also called at interpreter exit."""
        atexit.unregister(self.close)
        if self._thread.is_alive:  # False in a forked process, which also calls close() at exit
            self._stop_listening()
            self._thread.join(_JOIN_TIMEOUT_S)
        self._planners.close()

    @property
    def is_open(self) -> bool:
        """Whether the listener is running: it was started, and neither it nor its application was stopped."""
        return self._thread.is_alive

    def observes(self, spark: Any) -> bool:
        """Return whether ``spark`` belongs to the observed session, which several Python objects can represent."""
        own = self._spark
        return own.sparkContext is spark.sparkContext and bool(own._jsparkSession == spark._jsparkSession)

    @property
    def link(self) -> ServerAddress:
        """The address to which planning processes connect."""
        return self._planners.address

    @property
    def consumer_id(self) -> str | None:
        """None, because the listener is not a group member."""
        return None

    @property
    def health(self) -> Health:
        """Whether queries failed or do not make progress, and why; see ``HealthServer``."""
        running = (reason for query in list(self._queries.values()) for reason in query.health.reasons())
        return Health.of([*self._failed.reasons(), *running])

    @property
    def metrics(self) -> Mapping[MetricName, Mapping[str, float]]:
        """Metrics of the running queries, from their last progress reports, and of the listener's commits."""
        return self._metrics.snapshot()

    # ---- called by Spark's threads ----

    def onQueryStarted(self, event: Any) -> None:
        """Find the query. Spark does not start it before this method returns, so the listener thread reads its plan."""
        query_id = str(event.id)
        try:
            query = self._spark.streams.get(query_id)
        except Exception as error:  # Spark's own log message would not identify the query
            self._log_unmonitored(query_id, error)
        else:
            self._events.put((str(event.runId), _Started(query_id, event.name or query_id, query)))

    def onQueryProgress(self, event: Any) -> None:
        """Handle a completed batch."""
        self._events.put((str(event.progress.runId), json.loads(event.progress.json)))

    def onQueryIdle(self, event: Any) -> None:
        """Stop the query if it was restarted after the end of its stream, because it has no further batches."""
        self._events.put((str(event.runId), _IDLE))

    def onQueryTerminated(self, event: Any) -> None:
        """Handle the end of the query."""
        self._events.put((str(event.runId), _Terminated(event.exception)))

    def _stop_listening(self) -> None:
        """Receive all pending events, and end the listener thread after the last one."""
        with contextlib.suppress(Exception):  # the session may have been stopped
            self._spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(_EVENTS_TIMEOUT_MS)
        with contextlib.suppress(Exception):
            self._spark.streams.removeListener(self)
        self._events.put(_STOP)

    # ---- called by the listener thread ----

    def _run(self) -> None:
        try:
            self._handle_all()
            for query in self._queries.values():
                self._commits.commit(query.uncommitted, _LAST_COMMIT_TIMEOUT_S)
            self._commits.join(_COMMITS_TIMEOUT_S)
        finally:
            self._planners.close()
            atexit.unregister(self.close)  # only now, because interpreter exit must wait for the commits

    def _log_crash(self, event: str) -> Callable[[BaseException], object]:
        """Return a function that logs the exception with which a thread terminated."""
        return lambda error: self._log.error(event, exc_info=error)

    def _handle_all(self) -> None:
        while (item := self._next_item()) is not _STOP:
            try:
                if item is None:
                    self._commit_due()
                else:
                    self._handle(*item)
            except Exception:  # an error in one query must not affect other queries
                self._log.error("query_event_failed", exc_info=True)

    def _next_item(self) -> Any:
        """Return the next event or ``_STOP``; None if batches must be committed, or after ``_CHECK_INTERVAL_S``."""
        now = time.monotonic()
        if now >= self._checked_at + _CHECK_INTERVAL_S:
            self._checked_at = now
            if self._spark.sparkContext._jsc is None:  # the application was stopped with spark.stop()
                self._stop_listening()
            elif self._queries:
                self._refresh_cores()
                for query in self._queries.values():
                    uncommitted = query.uncommitted
                    query.health.update(uncommitted.waiting, uncommitted.commit_counts)
            self._forget_planners()
        due = min((query.due for query in self._queries.values() if query.due is not None), default=math.inf)
        try:
            return self._events.get(timeout=max(0.0, min(due, self._checked_at + _CHECK_INTERVAL_S) - now))
        except queue.Empty:
            return None

    def _handle(self, run: str, event: Any) -> None:
        """Handle an event: ``_Started``, a progress report, ``_IDLE`` or ``_Terminated``.

        If ``run`` is ``_COMMITTED``, the event is a planning process's consumer id, and the number of a report whose
        batch it committed. If it is ``_PLANNED_NOTHING``, the event is a planning process's consumer id and state.
        """
        if run == _PLANNED_NOTHING:
            for each in self._queries.values():
                each.health.add_idle(*event)
            return
        if run == _COMMITTED:
            for each in self._queries.values():
                each.confirm(*event)
            return
        if isinstance(event, _Started):
            self._observe(run, *event)
            return
        query = self._queries.get(run)
        if query is None:
            return
        if event is _IDLE:
            if self._is_at_end(run):
                self._stop_query(run)
        elif isinstance(event, _Terminated):
            self._commits.commit(query.uncommitted, _LAST_COMMIT_TIMEOUT_S)
            if event.error is not None:
                self._failed.add(query.query_id, query.name, event.error)
            del self._queries[run]
        else:
            self._handle_progress(run, query, event)

    def _observe(self, run: str, query_id: str, name: str, query: Any) -> None:
        """Observe a query, unless it has no ``format("zkconsumer")`` source."""
        try:
            sources = list(read_sources(query))
        except Exception as error:
            self._log_unmonitored(query_id, error)
            return
        if sources:
            health = QueryHealth(self._spark, query, name, {source.consumer.group_id for source in sources})
            self._add(run, ObservedQuery(query_id, name, sources, UncommittedBatches(name, sources), health))

    def _add(self, run: str, query: ObservedQuery) -> None:
        self._failed.remove(query.query_id, query.name)
        self._queries[run] = query

    def _log_unmonitored(self, query_id: str, error: Exception) -> None:
        self._log.warning("query_not_monitored", query=query_id, error=repr(error))

    def _handle_progress(self, run: str, query: ObservedQuery, progress: Mapping[str, Any]) -> None:
        for number, source in enumerate(progress["sources"]):
            end = offset_object(source.get("endOffset"))
            if not end.get("group"):
                continue
            if consumer_id := find_report(source).get("consumer"):
                query.uncommitted.consumer_ids[consumer_id] = number
            options = find_options(query.sources, end)
            if options is not None and options.commits:
                known = self._known_by(consumer_id) if consumer_id else KnownBrokers()
                batch = CompletedBatch(options, end, find_completion_time(progress), known)
                query.uncommitted.add(number, batch)
                if consumer_id is not None:
                    query.reported[number] = next(self._numbers), batch
                    self._planners.send(consumer_id, {"finished": end, "number": query.reported[number][0]})
            if end.get("ended"):
                self._log.info("end_of_stream_reached", query=query.name)
                self._stop_query(run)
        query.due = time.monotonic() + _COMMIT_DELAY_S
        query.progress = progress
        query.health.add_progress(progress)

    def _receive(self, consumer_id: str, message: Mapping[str, Any]) -> None:
        """Handle a message from a planning process or a sink, in the thread of its connection."""
        if "committed" in message:
            self._events.put((_COMMITTED, (consumer_id, message["committed"])))
        elif "idle" in message:
            self._events.put((_PLANNED_NOTHING, (consumer_id, message["idle"])))
        elif "report" in message:
            add_report(message["batch"], message["report"])
        elif "sink" in message:
            sink_metrics.add(message["sink"])
        elif "brokers" in message:
            self._known_by(consumer_id).record(Endpoint(host, port) for host, port in message["brokers"])
        else:
            skipped.update(consumer_id, message)

    def _known_by(self, consumer_id: str) -> KnownBrokers:
        return self._known.setdefault(consumer_id, KnownBrokers())

    def _forget_planners(self) -> None:
        """Forget the brokers of planning processes that ended, unless their query may still report a batch."""
        kept = self._planners.connected.union(*(query.uncommitted.consumer_ids for query in self._queries.values()))
        now = time.monotonic()
        self._ended_at = {one: self._ended_at.get(one, now) for one in set(self._known) - kept}
        for consumer_id, ended_at in self._ended_at.items():
            if now >= ended_at + _KEPT_BROKERS_S:
                self._known.pop(consumer_id, None)

    def _refresh_cores(self) -> None:
        """Report the number of executor cores to the planning processes if it changed."""
        try:
            cores = int(self._spark.sparkContext.defaultParallelism)
        except Exception:  # the session is being stopped
            return
        if cores != self._cores:
            self._cores = cores
            self._planners.broadcast({"cores": cores})

    def _is_at_end(self, run: str) -> bool:
        """Return whether the query's checkpoint records the end of the stream."""
        for query in self._active(run):
            offsets = str(query._jsq.streamingQuery().committedOffsets().toString())
            return '"ended": true' in offsets or '"ended":true' in offsets
        return False

    def _stop_query(self, run: str) -> None:
        """Stop a query in a new thread: stop() waits for the running batch, and would delay events of other queries."""
        for query in self._active(run):
            OwnedThread(query.stop, "zkconsumer-query-stop", self._log_crash("query_stop_failed")).start()

    def _active(self, run: str) -> Iterable[Any]:
        return [query for query in self._spark.streams.active if str(query.runId) == run]

    def _commit_due(self) -> None:
        now = time.monotonic()
        for query in self._queries.values():
            if query.due is None or query.due > now:
                continue
            if self._commits.is_committing(query.uncommitted):
                query.due = now + _COMMIT_DELAY_S
            elif query.uncommitted:
                query.due = now + _RETRY_INTERVAL_S
                self._commits.commit(query.uncommitted, 0.0)
            else:
                query.due = None

    def _gauges(self) -> Iterator[tuple[MetricName, float]]:
        for name in self._failed.names:
            yield from query_metrics(name, None, HealthState.FAILED).items()
        for query in list(self._queries.values()):
            state = Health.of(query.health.reasons()).state
            yield from query_metrics(query.name, query.progress, state).items()
