"""End offsets in a checkpoint of partitions that its last batch does not contain."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.producing import numbers, produce
from helpers.waiting import wait_for, wait_until_equal
from helpers.znodes import members, owners, stored
from interop.jvm import our_consumer
from kazoo.client import KazooClient

from zkconsumer.devcluster import DevCluster, ExistingCluster

from .queries import START, Gate, Query

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.mark.parametrize("restarts", [False, True], ids=["runs-on", "restarts"])
def test_regained_partition_continues_after_checkpoint(
    restarts: bool,
    zkconsumer_cluster: DevCluster | ExistingCluster,
    query: Callable[..., Query],
    gate: Gate,
    topic: Callable[..., str],
    group: str,
    zk: KazooClient,
    tmp_path: Path,
) -> None:
    """In between, another member owned the partition during a batch, and was killed before it committed an offset."""
    name, admin = topic(partitions=2), zkconsumer_cluster.admin
    for number in range(2):
        produce(admin, name, number, numbers(0, 50))
    one = query(name, on_batch=gate.hold, revokeTimeout="500ms")
    one.wait_for(gate.holding.is_set, START)
    [mine] = members(zk, group)
    settings = {
        **zkconsumer_cluster.consumer_properties,
        "group.id": group,
        "auto.offset.reset": "smallest",
        "auto.commit.interval.ms": 600_000,
        "zookeeper.session.timeout.ms": 3000,
    }
    other = our_consumer("other", tmp_path, settings, name)
    other.start()
    try:
        [gone] = wait_for(lambda: [p for p, owner in owners(zk, group, name).items() if not owner.startswith(mine)])
        kept = 1 - gone
        gate.open()
        one.wait_for_records(100)  # batch 0
        wait_until_equal(lambda: stored(zk, group, name), {gone: "0", kept: "50"})
        produce(admin, name, kept, numbers(50, 60))
        one.wait_for_records(110)  # batch 1
        wait_until_equal(lambda: stored(zk, group, name), {gone: "0", kept: "60"})
        if restarts:
            one.stop()
    finally:
        other.kill()
    again = query(name) if restarts else one
    produce(admin, name, gone, numbers(50, 60))
    again.wait_for(lambda: again.batches and again.batches[-1].number == 2, START)
    assert again.batches[-1].spans == {(name, gone): (50, 60, 10)}
