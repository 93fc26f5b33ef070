"""Tests of Metadata responses that lack topics or partitions, from brokers on sockets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fake_broker import FakeBroker

from zkconsumer.broker import known_partitions
from zkconsumer.broker.cluster import BootstrapCluster


@pytest.fixture
def brokers() -> Iterator[list[FakeBroker]]:
    """Two brokers that know topic ``t`` with three partitions."""
    with FakeBroker() as one, FakeBroker() as two:
        one.partition_counts, two.partition_counts = {"t": 3}, {"t": 3}
        yield [one, two]


def cluster_of(*brokers: FakeBroker) -> BootstrapCluster:
    return BootstrapCluster([broker.endpoint for broker in brokers], "test", timeout=5)


def connected(cluster: BootstrapCluster, brokers: list[FakeBroker]) -> tuple[FakeBroker, FakeBroker]:
    """Return the broker to which the cluster is connected, and the other one."""
    assert cluster.partitions(["t"]) == {"t": [0, 1, 2]}
    assert cluster.topics() == ["t"]
    first, second = brokers
    return (first, second) if first.metadata_requests else (second, first)


@pytest.mark.parametrize("stale", [{}, {"t": 2}])
def test_stale_response_of_one_broker_is_ignored(brokers: list[FakeBroker], stale: dict[str, int]) -> None:
    cluster = cluster_of(*brokers)
    current, _ = connected(cluster, brokers)
    current.partition_counts = stale
    for _ in range(3):
        assert cluster.partitions(["t"]) == {"t": [0, 1, 2]}
        assert cluster.topics() == ["t"]
    cluster.close()


def test_starting_member_ignores_stale_response(brokers: list[FakeBroker]) -> None:
    brokers[0].partition_counts = {}
    for _ in range(4):  # the broker is chosen at random
        cluster = cluster_of(*brokers)
        assert cluster.partitions(["t"]) == {"t": [0, 1, 2]}
        cluster.close()


@pytest.mark.parametrize(("present", "found"), [({}, {}), ({"t": 2}, {"t": [0, 1]})])
def test_two_brokers_confirm_a_deletion(
    brokers: list[FakeBroker], present: dict[str, int], found: dict[str, list[int]]
) -> None:
    cluster = cluster_of(*brokers)
    connected(cluster, brokers)
    for broker in brokers:
        broker.partition_counts = present
    assert cluster.partitions(["t"]) == found
    assert cluster.topics() == [*found]
    cluster.close()


def test_single_broker_is_believed_after_grace_period(
    brokers: list[FakeBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = cluster_of(*brokers)
    current, other = connected(cluster, brokers)
    other.close()
    current.partition_counts = {}
    for _ in range(2):
        assert cluster.partitions(["t"]) == {"t": [0, 1, 2]}
        assert cluster.topics() == ["t"]
    monkeypatch.setattr(known_partitions, "GRACE_S", -1.0)
    assert cluster.partitions(["t"]) == {}
    assert cluster.topics() == []
    current.partition_counts = {"t": 1}
    assert cluster.partitions(["t"]) == {"t": [0]}
    cluster.close()


def test_present_topics_cost_one_request(brokers: list[FakeBroker]) -> None:
    cluster = cluster_of(*brokers)
    current, other = connected(cluster, brokers)
    before = current.metadata_requests
    for _ in range(5):
        cluster.partitions(["t"])
    assert (current.metadata_requests - before, other.metadata_requests) == (5, 0)
    cluster.close()
