"""Compare the duration of a rebalance after a join or a kill between zkconsumer and the JVM."""

from __future__ import annotations

from statistics import median

import pytest
from kazoo.client import KazooClient

from bench.rebalance import KINDS, gaps, measure
from zkconsumer.devcluster import DevCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.parametrize("partitions", [8, 64])
def test_join_and_death_cost_less_than_with_jvm(
    partitions: int, zkconsumer_cluster: DevCluster, zk: KazooClient, capsys: pytest.CaptureFixture[str]
) -> None:
    found = {kind: measure(zkconsumer_cluster, zk, kind, partitions, 2, rounds=3) for kind in KINDS}

    with capsys.disabled():
        print(f"\nseconds until each of {partitions} partitions delivers again, 2 members")
        print("kind            join     kill")
        for kind, (join, death) in found.items():
            print(f"{kind:<12} {join:>7.2f}  {death:>7.2f}")
    zkconsumer, jvm = found.values()
    assert zkconsumer[0] < jvm[0] / 2  # at most a third if nothing else runs on the machine
    assert zkconsumer[1] < jvm[1]


def test_kept_partition_is_not_interrupted(zkconsumer_cluster: DevCluster, capsys: pytest.CaptureFixture[str]) -> None:
    found = gaps(zkconsumer_cluster, rounds=5)

    with capsys.disabled():
        print(f"\n{found}")
    # On a busy machine, the largest gap of a second is several times the 99th percentile, with or without a rebalance.
    assert median(found.rebalancing) <= 2 * max(found.p99, median(found.steady))
