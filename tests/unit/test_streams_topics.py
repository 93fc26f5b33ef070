"""Checks of a running application for new partitions of its topics."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.clocks import Clock

from zkconsumer.errors import BrokerUnavailableError
from zkconsumer.spark.streams.cluster import ClusterState
from zkconsumer.spark.streams.query import TopologyQuery
from zkconsumer.spark.streams.settings import QuerySettings
from zkconsumer.topology import ApplicationConfig, Topology


class ChangingCluster:
    """A cluster that fails to describe its topics a number of times."""

    def __init__(self, max_age_s: float) -> None:
        self.config = SimpleNamespace(metadata_max_age_s=max_age_s)
        self.partitions, self.failures, self.calls = 1, 0, 0

    def describe(self) -> ClusterState:
        self.calls += 1
        if self.failures:
            self.failures -= 1
            raise BrokerUnavailableError("planned")
        return ClusterState({"a": self.partitions}, [])


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(time, "monotonic", found)
    return found


def open_query(max_age_s: float) -> tuple[TopologyQuery, ChangingCluster]:
    topology = Topology().add_source("source", "a").add_sink("sink", "out", "source")
    query: Any = TopologyQuery(topology, ApplicationConfig(application_id="app"), None, "c", {}, QuerySettings())
    cluster = query._cluster = ChangingCluster(max_age_s)
    query._watched_counts = {"a": 1}
    return query, cluster


def test_topics_are_checked_at_intervals(clock: Clock) -> None:
    query, cluster = open_query(300)
    assert query.find_new_topics() == []
    cluster.partitions = 2
    clock.now += 299
    assert query.find_new_topics() == []
    clock.now += 1
    assert query.find_new_topics() == ["a"]
    assert cluster.calls == 2


@pytest.mark.parametrize(("max_age_s", "retry_s"), [(300, 5), (5, 5), (1, 1)])
def test_failed_check_is_repeated_sooner(clock: Clock, max_age_s: float, retry_s: float) -> None:
    query, cluster = open_query(max_age_s)
    cluster.partitions, cluster.failures = 2, 2
    found = []
    for _ in range(3):
        found.append(query.find_new_topics())
        clock.now += retry_s - 0.01
        assert query.find_new_topics() == found[-1]
        clock.now += 0.01
    assert found == [[], [], ["a"]]


def test_check_after_error_is_repeated_at_once() -> None:
    query, cluster = open_query(300)
    cluster.partitions, cluster.failures = 2, 3
    assert query.find_new_topics(is_due=True) == ["a"]
    assert cluster.calls == 4
