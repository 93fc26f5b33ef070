"""What the driver does for queries that their own process is too late for, and what it shows of them.

The process that plans learns that a batch is done when it is asked for the next one. With a long trigger that is late,
and after ``Trigger.Once`` or a stop between two triggers it never is. Here Spark tells of each batch that is done; what
nobody has stored a second later is stored, and of a query that ends at once: only where no other member owns the
partition, and never backwards. A query whose decoder has seen the end of the stream is stopped.
"""

from __future__ import annotations

import contextlib
import json
import queue
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from pyspark.sql.streaming.listener import StreamingQueryListener

from zkconsumer.broker.cluster import cluster_of
from zkconsumer.errors import ConfigurationError, ZkConsumerError
from zkconsumer.log import get_logger
from zkconsumer.message import TopicPartition
from zkconsumer.metrics import MetricName, Metrics
from zkconsumer.offsets.factory import offsets_of
from zkconsumer.retry import retrying
from zkconsumer.spark.monitoring.lag import content
from zkconsumer.spark.offset import from_offset
from zkconsumer.spark.options.source_options import SourceOptions
from zkconsumer.zookeeper.registry import GroupPaths
from zkconsumer.zookeeper.session import ZooKeeperSession

#: Seconds that a batch's own process has for storing it.
_DELAY = 1.0

#: Seconds until it is looked again whether that worked.
_RETRY = 10.0

#: Seconds for storing the last batch of a query that has ended, while ZooKeeper is out of reach.
_PATIENCE = 30.0

_JOIN_TIMEOUT = 40.0

_STOP, _IDLE = object(), {"idle": True}


class _Done(NamedTuple):
    """The end of a batch, and when (seconds since the epoch) it was done."""

    options: SourceOptions
    end: Mapping[str, Any]
    at: float


@dataclass
class _Query:
    """What is known of a query: its sources here, their offsets that are done and not looked after, and its numbers."""

    name: str
    sources: list[SourceOptions]
    done: dict[int, _Done] = field(default_factory=dict)  # by the source's number
    written: dict[TopicPartition, int] = field(default_factory=dict)  # what was stored from here
    consumers: set[str] = field(default_factory=set)  # ids that its member has had
    due: float | None = None
    state: dict[str, float] = field(default_factory=dict)

    @property
    def groups(self) -> set[tuple[str, str]]:
        """The groups that its sources are of, each with its ZooKeeper."""
        return {(source.consumer.zookeeper_connect, source.consumer.group_id) for source in self.sources}


class QueryListener(StreamingQueryListener):
    """Follows the queries of a session that read with this source; ``zkconsumer.spark.register`` adds one.

    It is a ``MetricsSource``: ``zkconsumer.prometheus.ConsumerCollector(listener)`` shows lag, rates and commits.
    Spark's threads only put events on a queue, and one thread of its own takes them. Offsets are stored by threads that
    live as long as that takes, one after another for a group: its ZooKeeper may be away.
    """

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        self._events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._queries: dict[str, _Query] = {}
        self._metrics = Metrics()
        self._metrics.register_gauges(self._gauges)
        self._log = get_logger("zkconsumer.spark")
        self._thread = threading.Thread(target=self._run, name="zkconsumer-query-listener", daemon=True)
        self._storing: dict[threading.Thread, set[tuple[str, str]]] = {}  # and the groups of which
        self._lock = threading.Lock()  # of what is done, which the threads that store take and give back

    def start(self) -> None:
        """Begin to listen."""
        self._thread.start()
        self._spark.streams.addListener(self)

    def close(self) -> None:
        """Listen no more; what is done is stored first."""
        with contextlib.suppress(Exception):  # the session may have ended
            self._spark.streams.removeListener(self)
        self._events.put(_STOP)
        self._thread.join(_JOIN_TIMEOUT)
        for thread in self._storing:
            thread.join(_JOIN_TIMEOUT)

    @property
    def consumer_id(self) -> str | None:
        """It is not a member of a group."""
        return None

    @property
    def metrics(self) -> Mapping[MetricName, Mapping[str, float]]:
        """What the last progress reports of the running queries told, and how commits from here went."""
        return self._metrics.snapshot()

    # ---- called by Spark, in threads of its own ----

    def onQueryStarted(self, event: Any) -> None:
        """Take note of the query's sources, which later events do not tell."""
        run = str(event.runId)
        try:
            sources = list(_sources(self._spark.streams.get(str(event.id))))
        except Exception as error:  # an error here would be Spark's to log, in Scala's words
            self._log.warning("query_not_followed", query=str(event.id), error=repr(error))
            return
        if sources:
            self._events.put((run, _Query(event.name or str(event.id), sources)))

    def onQueryProgress(self, event: Any) -> None:
        """A batch is done."""
        self._events.put((str(event.progress.runId), json.loads(event.progress.json)))

    def onQueryIdle(self, event: Any) -> None:
        """Nothing is new; an ended query that was started again has nothing else to tell."""
        self._events.put((str(event.runId), _IDLE))

    def onQueryTerminated(self, event: Any) -> None:
        """The query has ended."""
        self._events.put((str(event.runId), None))

    # ---- the thread ----

    def _run(self) -> None:
        while True:
            due = min((query.due for query in self._queries.values() if query.due is not None), default=None)
            try:
                item = self._events.get(timeout=None if due is None else max(0.0, due - time.monotonic()))
            except queue.Empty:
                item = None
            if item is _STOP:
                break
            try:
                if item is None:
                    self._store_what_is_due()
                else:
                    self._take(*item)
            except Exception:  # of one query; the others go on
                self._log.error("query_not_followed", exc_info=True)
        for query in self._queries.values():
            self._store(query, _PATIENCE)

    def _take(self, run: str, told: _Query | Mapping[str, Any] | None) -> None:
        if isinstance(told, _Query):
            self._queries[run] = told
        elif told is _IDLE:
            if run in self._queries and self._has_ended(run):
                self._stop_query(run)
        elif (query := self._queries.get(run)) is not None and told is not None:
            self._note(run, query, told)
        elif query is not None:
            del self._queries[run]
            self._store(query, _PATIENCE)

    def _note(self, run: str, query: _Query, progress: Mapping[str, Any]) -> None:
        query.state = {"InputRowsPerSecond": float(progress.get("inputRowsPerSecond") or 0)}
        query.state["ProcessedRowsPerSecond"] = float(progress.get("processedRowsPerSecond") or 0)
        for number, source in enumerate(progress["sources"]):
            end, latest = content(source.get("endOffset")), content(source.get("latestOffset"))
            if not end.get("group"):
                continue
            options = _options_of(query.sources, end)
            if options is not None and options.commits:
                with self._lock:
                    query.done[number] = _Done(options, end, _end_of(progress))
            if consumer := latest.get("consumer"):
                query.consumers.add(consumer)
            rate = float(source.get("processedRowsPerSecond") or 0)
            bytes_ = rate * float(latest.get("bytesPerRecord") or 0)
            query.state["BytesPerSecond"] = query.state.get("BytesPerSecond", 0.0) + bytes_
            for key in _GAUGES.keys() & latest.keys():
                if latest[key] is not None:
                    query.state[_GAUGES[key]] = query.state.get(_GAUGES[key], 0.0) + float(latest[key])
            if end.get("ended"):
                self._log.info("query_ended", query=query.name, reason="its decoder has seen the end of the stream")
                self._stop_query(run)
        query.due = time.monotonic() + _DELAY

    def _has_ended(self, run: str) -> bool:
        """Whether the offsets that a query goes on from say that it has ended."""
        for active in self._spark.streams.active:
            if str(active.runId) == run:
                offsets = str(active._jsq.streamingQuery().committedOffsets().toString())
                return '"ended": true' in offsets or '"ended":true' in offsets
        return False

    def _stop_query(self, run: str) -> None:
        for active in self._spark.streams.active:
            if str(active.runId) == run:
                active.stop()

    def _store_what_is_due(self) -> None:
        now = time.monotonic()
        for query in self._queries.values():
            if query.due is None or query.due > now:
                continue
            if self._storing_for(query):
                query.due = now + _DELAY
            elif query.done:
                query.due = now + _RETRY
                self._store(query, 0.0)
            else:
                query.due = None

    def _storing_for(self, query: _Query) -> list[threading.Thread]:
        """Return the threads that are storing offsets of the query's groups."""
        self._storing = {thread: groups for thread, groups in self._storing.items() if thread.is_alive()}
        return [thread for thread, groups in self._storing.items() if groups & query.groups]

    def _store(self, query: _Query, patience: float) -> None:
        """Store what is done in a thread, once what is being stored of the same groups is through."""
        earlier = self._storing_for(query)
        if not (query.done or earlier):
            return

        def work() -> None:
            for thread in earlier:
                thread.join()
            with self._lock:
                done, query.done = query.done, {}
            try:
                self._store_now(query, done, patience)
            except Exception:  # of one query; the others go on
                self._log.error("query_not_followed", query=query.name, exc_info=True)
            with self._lock:
                query.done = done | query.done  # what is left, unless there is a later batch already

        thread = threading.Thread(target=work, name=f"zkconsumer-store-{query.name}", daemon=True)
        self._storing[thread] = query.groups
        thread.start()

    def _store_now(self, query: _Query, done: dict[int, _Done], patience: float) -> None:
        """Store what is done, and leave what failed, which is counted."""
        for number, batch in list(done.items()):
            group = batch.options.consumer.group_id
            where = {"query": query.name, "groupId": group}
            try:
                stored = retrying(patience)(_store, batch, query.consumers, query.written)
            except ZkConsumerError as error:
                self._metrics.meter("zkconsumer.spark", "QueryListener", "CommitsFailed", **where).mark()
                self._log.warning("commit_postponed", query=query.name, group=group, error=str(error))
                continue
            del done[number]
            query.written.update(stored)
            if stored:
                self._metrics.meter("zkconsumer.spark", "QueryListener", "CommitsSucceeded", **where).mark()
                offsets = {str(partition): offset for partition, offset in sorted(stored.items())}
                self._log.info("offsets_stored_for_query", query=query.name, group=group, offsets=offsets)

    def _gauges(self) -> Iterator[tuple[MetricName, float]]:
        for query in list(self._queries.values()):
            for name, value in list(query.state.items()):
                yield MetricName.of("zkconsumer.spark", "StreamingQuery", name, query=query.name), value


#: What a progress report tells, and the gauge that shows it.
_GAUGES = {
    "lag": "Lag",
    "maxOffsetsBehindLatest": "MaxOffsetsBehindLatest",
    "minOffsetsBehindLatest": "MinOffsetsBehindLatest",
    "avgOffsetsBehindLatest": "AvgOffsetsBehindLatest",
    "owned": "OwnedPartitions",
    "rebalances": "Rebalances",
    "rereadRecords": "RereadRecords",
    "commits": "Commits",
    "commitsFailed": "CommitsFailed",
    "commitAgeSeconds": "CommitAgeSeconds",
}


def _sources(query: Any) -> Iterator[SourceOptions]:
    """Yield the options of a query's sources of this kind, from its plan."""
    leaves = query._jsq.streamingQuery().analyzedPlan().collectLeaves()
    for number in range(leaves.size()):
        leaf = leaves.apply(number)
        if leaf.getClass().getSimpleName() != "StreamingRelationV2" or leaf.sourceName() != "zkconsumer":
            continue
        with contextlib.suppress(ConfigurationError):  # its own process tells that
            yield SourceOptions.parse(dict(leaf.extraOptions().asCaseSensitiveMap()))


def _end_of(progress: Mapping[str, Any]) -> float:
    """Return when a batch was done, in seconds since the epoch; the report of it may come a while later."""
    begun = datetime.fromisoformat(progress["timestamp"])
    return begun.timestamp() + float(progress["durationMs"].get("triggerExecution", 0)) / 1000


def _options_of(sources: list[SourceOptions], end: Mapping[str, Any]) -> SourceOptions | None:
    """Return the options of the source that an offset is of: of its group, and subscribed to its topics."""
    topics = {partition.topic for partition in from_offset(end)}
    for options in sources:
        exclude = options.consumer.exclude_internal_topics
        if options.consumer.group_id == end["group"] and (
            options.keeps_restored or all(options.subscription.wants(topic, exclude) for topic in topics)
        ):
            return options
    return None


def _store(done: _Done, ours: set[str], written: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Store the offsets of a batch that is done where they are higher than the group's, and return those.

    Args:
        ours: the consumer ids of the query.
        written: what was stored for it before.
    """
    config = done.options.consumer
    session = ZooKeeperSession.of(config, queue.SimpleQueue())
    session.start()
    timeout = config.connection_timeout
    cluster = cluster_of(config, session, timeout)
    offsets = offsets_of(
        config,
        session,
        cluster.brokers,
        timeout,
        storage=config.offsets_storage,
        dual_commit=bool(config.dual_commit_enabled),
    )
    try:
        paths, untils = GroupPaths(config.group_id), {p: until for p, (_, until) in from_offset(done.end).items()}
        nodes = session.znodes.get_many([paths.owner(partition) for partition in untils])
        owners = {p: node.data.decode(errors="replace") for p, node in zip(untils, nodes, strict=True) if node}
        free = [p for p in untils if p not in owners or owners[p].rpartition("-")[0] in ours]
        # Who has written an offset after the batch was done has set the group there.
        nodes = session.znodes.get_many([paths.offset(partition) for partition in free])
        ours_still = {p: b"%d" % offset for p, offset in written.items()}
        free = [
            p
            for p, node in zip(free, nodes, strict=True)
            if node is None or node.modified <= done.at or node.data == ours_still.get(p)
        ]
        known = offsets.fetch(free)
        higher = {partition: untils[partition] for partition in free if known[partition] < untils[partition]}
        offsets.commit(higher)
        return higher
    finally:
        offsets.close()
        cluster.close()
        session.close()
