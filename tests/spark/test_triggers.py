"""Triggers, limits and restarts: the order in which Spark calls the source depends on them and on Spark's version."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from helpers.aliases import Cluster, Topics
from helpers.producing import numbers, produce
from helpers.waiting import wait_for
from helpers.znodes import stored
from kazoo.client import KazooClient

from zkconsumer.spark.compat import HAS_ADMISSION_CONTROL

from .queries import Batch, Query, repetitions

pytestmark = pytest.mark.timeout(180)

Queries = Callable[..., Query]

PARTITIONS = 2
#: Number of records that a test adds to each partition at a time.
ADDED = 10

TRIGGERS: dict[str, dict[str, Any] | None] = {
    "available now": {"availableNow": True},
    "once": {"once": True},
    "continuous": None,
}


class Source:
    """A topic to which the test adds records, and the runs of a query that reads it."""

    def __init__(self, cluster: Cluster, name: str, query: Queries, committed: Callable[[], dict[int, str]]) -> None:
        self.added = 0
        self.runs: list[Query] = []
        self.failed: int | None = None  # number of the batch that failed
        self._admin = cluster.admin
        self._name = name
        self._query = query
        self._committed = committed

    def add(self) -> None:
        """Add records to each partition."""
        for partition in range(PARTITIONS):
            produce(self._admin, self._name, partition, numbers(self.added, self.added + ADDED))
        self.added += ADDED

    def run(self, trigger: dict[str, Any] | None = TRIGGERS["available now"], **arguments: Any) -> Query:
        """Run the query until it ends; a continuous query ends when it has read all records."""
        one = self._query(self._name, trigger=trigger, **arguments)
        self.runs.append(one)
        if trigger is None:
            # A query that is stopped before the end of its batch repeats the batch.
            one.wait_for(self.is_committed, what="the offsets of all records are committed")
            one.stop()
        one.finish()
        return one

    def fail(self, batch: int) -> None:
        """Run the query until a batch fails."""

        def fail(taken: Batch) -> None:
            if taken.number == batch:
                self.failed = batch
                raise RuntimeError("planned failure")

        with pytest.raises(Exception, match="planned failure"):
            self.run(on_batch=fail)

    def is_committed(self) -> bool:
        """Return whether the offsets of all records are committed."""
        return self._committed() == dict.fromkeys(range(PARTITIONS), str(self.added))

    @property
    def unread(self) -> int:
        """Number of records that no finished batch has read."""
        return self.added * PARTITIONS - sum(one.count for one in self.runs)


def new(source: Source) -> None:
    source.add()


def finished(source: Source) -> None:
    source.add()
    source.run()
    source.add()


def idle(source: Source) -> None:
    source.add()
    source.run()


def batch_0_failed(source: Source) -> None:
    source.add()
    source.fail(0)
    source.add()


def batch_1_failed(source: Source) -> None:
    finished(source)
    source.fail(1)
    source.add()


@pytest.mark.parametrize("limit", [None, 6])
@pytest.mark.parametrize("trigger", TRIGGERS)
@pytest.mark.parametrize(
    "history",
    [new, pytest.param(finished, marks=pytest.mark.slow), pytest.param(idle, marks=pytest.mark.slow)]
    + [pytest.param(one, marks=pytest.mark.slow) for one in (batch_0_failed, batch_1_failed)],
)
def test_each_record_is_read_once(
    zkconsumer_cluster: Cluster,
    query: Queries,
    topic: Topics,
    group: str,
    zk: KazooClient,
    history: Callable[[Source], None],
    trigger: str,
    limit: int | None,
) -> None:
    name = topic(partitions=PARTITIONS)
    source = Source(zkconsumer_cluster, name, query, lambda: stored(zk, group, name))
    history(source)
    sizes = []
    for _ in range(20):
        one = source.run(TRIGGERS[trigger], maxOffsetsPerTrigger=limit)
        sizes += [batch.table.num_rows for batch in one.batches if batch.number != source.failed]
        if not source.unread:
            break

    assert repetitions([one.offsets for one in source.runs], dict.fromkeys(range(PARTITIONS), source.added)) == 0
    if limit is None or (trigger == "once" and HAS_ADMISSION_CONTROL):
        assert len(sizes) == min(1, sum(sizes)), "the first batch reads all records"
    else:
        assert all(size <= limit for size in sizes)
    wait_for(source.is_committed, what="the offsets of all records are committed")
