"""Records that a query skips are counted in its progress reports, its metrics and its lag."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from helpers.aliases import Cluster, Topics
from helpers.producing import numbers, produce
from helpers.waiting import wait_for

import zkconsumer.spark
from zkconsumer.message import TopicPartition

from .queries import ALL_AVAILABLE, Query, delete_records

pytestmark = pytest.mark.timeout(120)

Queries = Callable[..., Query]


def gauges(spark: Any, query: Query, name: str) -> dict[tuple[str, ...], float]:
    """Return a metric of a query by topic and partition, () for that of the whole query."""
    listener = zkconsumer.spark.register(spark)
    assert listener is not None
    return {
        tuple(value for _, value in key.tags[1:]): attributes["Value"]
        for key, attributes in listener.metrics.items()
        if key.name == name and dict(key.tags)["query"] == str(query.handle.id)
    }


@pytest.mark.slow
def test_expired_records_are_counted_by_partition(
    spark: Any, zkconsumer_cluster: Cluster, query: Queries, topic: Topics
) -> None:
    name, admin = topic(partitions=2), zkconsumer_cluster.admin
    produce(admin, name, 0, numbers(0, 100))
    produce(admin, name, 1, numbers(0, 100))
    one = query(name, maxOffsetsPerTrigger=20, trigger=ALL_AVAILABLE, failOnDataLoss=False)
    one.finish()
    assert one.state["recordsLost"] == one.state["recordsSkipped"] == {}

    def expire(number: int) -> None:
        if number == 10:  # it reads the offsets 100 to 120 of partition 0, of which the planner has seen all
            delete_records(zkconsumer_cluster, TopicPartition(name, 0), 115)

    produce(admin, name, 0, numbers(100, 140))
    delete_records(zkconsumer_cluster, TopicPartition(name, 1), 100)
    two = query(name, before=expire, maxOffsetsPerTrigger=20, failOnDataLoss=False)
    two.wait_for_records(25)
    lost = {TopicPartition(name, 0): 15}
    two.wait_for(lambda: zkconsumer.spark.lag(two.handle).records_lost == lost, what="the task has reported")
    wait_for(lambda: gauges(spark, two, "RecordsLost") == {(): 15, (name, "0"): 15})
    assert gauges(spark, two, "RecordsSkipped") == {(): 0}
    two.wait_for(lambda: two.state["recordsLost"] == {name: {"0": 15}}, what="the next report has the number")


def test_records_expired_while_stopped_are_counted(zkconsumer_cluster: Cluster, query: Queries, topic: Topics) -> None:
    name, admin = topic(), zkconsumer_cluster.admin
    produce(admin, name, 0, numbers(0, 10))
    query(name, trigger={"availableNow": True}).finish()
    produce(admin, name, 0, numbers(10, 100))
    delete_records(zkconsumer_cluster, TopicPartition(name, 0), 40)
    one = query(name, trigger={"availableNow": True}, failOnDataLoss=False)
    one.finish()
    assert one.count == 60
    assert one.state["recordsLost"] == {name: {"0": 30}}
