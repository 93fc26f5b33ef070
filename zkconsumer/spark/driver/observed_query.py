"""A query that the driver listener observes, and what the listener reads from its plan and progress reports."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from zkconsumer.errors import ConfigurationError
from zkconsumer.spark.driver.commits import CompletedBatch, UncommittedBatches
from zkconsumer.spark.driver.query_health import QueryHealth
from zkconsumer.spark.offset import from_offset
from zkconsumer.spark.options.source_options import SourceOptions


@dataclass
class ObservedQuery:
    """A running query.

    Attributes:
        query_id: id of the query, which is the same after a restart from the checkpoint.
        name: name of the query, or its id if it has none.
        sources: options of the query's ``format("zkconsumer")`` sources.
        health: health of the query.
        due: time (``time.monotonic``) of the next attempt to commit the query's batches; None if none is scheduled.
        reported: number of the last report to the planning process, and the reported batch, by source index.
        progress: last progress report; None before the first one.
    """

    query_id: str
    name: str
    sources: list[SourceOptions]
    uncommitted: UncommittedBatches
    health: QueryHealth
    due: float | None = None
    reported: dict[int, tuple[int, CompletedBatch]] = field(default_factory=dict)
    progress: Mapping[str, Any] | None = None

    def confirm(self, consumer_id: str, report: int) -> None:
        """Record that a planning process committed a reported batch, if the process belongs to the query.

        Args:
            consumer_id: consumer id of the planning process.
            report: number of the report. A later batch may have replaced the reported one.
        """
        if consumer_id in self.uncommitted.consumer_ids:
            self.uncommitted.count_commit(self.uncommitted.consumer_ids[consumer_id])
        for source, (number, batch) in self.reported.items():
            if number == report:
                self.uncommitted.remove(source, batch)


def read_sources(query: Any) -> Iterator[SourceOptions]:
    """Yield the options of a query's ``format("zkconsumer")`` sources, read from its plan."""
    leaves = query._jsq.streamingQuery().analyzedPlan().collectLeaves()
    for number in range(leaves.size()):
        leaf = leaves.apply(number)
        if leaf.getClass().getSimpleName() != "StreamingRelationV2" or leaf.sourceName().lower() != "zkconsumer":
            continue
        with contextlib.suppress(ConfigurationError):  # the planning process reports the error
            yield SourceOptions.parse(dict(leaf.extraOptions().asCaseSensitiveMap()))


def find_completion_time(progress: Mapping[str, Any]) -> float:
    """Return a batch's completion time in seconds since the epoch. Its progress report may arrive later."""
    started = datetime.fromisoformat(progress["timestamp"])
    return started.timestamp() + float(progress["durationMs"].get("triggerExecution", 0)) / 1000


def find_options(sources: list[SourceOptions], end: Mapping[str, Any]) -> SourceOptions | None:
    """Return the options of the source whose group and topics match an offset; None if there is no such source."""
    topics = {partition.topic for partition in from_offset(end)}
    for options in sources:
        exclude = options.consumer.exclude_internal_topics
        if options.consumer.group_id == end["group"] and (
            options.keeps_unsubscribed or all(options.subscription.wants(topic, exclude) for topic in topics)
        ):
            return options
    return None
