"""Start and end offsets of queries, and their znodes while they run."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.aliases import Cluster, Topics
from helpers.producing import numbers, produce
from helpers.waiting import wait_until_equal
from helpers.znodes import members, owners, stored
from kazoo.client import KazooClient

from zkconsumer.message import TopicPartition

from .queries import Batch, Query, delete_records, planned

pytestmark = pytest.mark.timeout(120)

Queries = Callable[..., Query]

NOW = {"availableNow": True}

#: Session timeout in milliseconds, so long that tests fail if ephemeral znodes are not deleted explicitly.
LONG = 60_000


def test_available_now_reads_and_commits_to_end(
    zkconsumer_cluster: Cluster, query: Queries, topic: Topics, group: str, zk: KazooClient
) -> None:
    name, admin = topic(partitions=3), zkconsumer_cluster.admin
    produce(admin, name, 0, numbers(0, 100))
    produce(admin, name, 1, numbers(100, 150))

    def write_more(_batch: Any) -> None:
        produce(admin, name, 0, numbers(500, 510))
        produce(admin, name, 2, numbers(500, 510))

    first = query(name, trigger=NOW, on_batch=write_more, zookeeper_session_timeout_ms=LONG)
    first.finish()
    assert stored(zk, group, name) == {0: "100", 1: "50", 2: "0"}
    assert [batch.spans for batch in first.batches] == [{(name, 0): (0, 100, 100), (name, 1): (0, 50, 50)}]
    assert sorted(first.batches[0].column("value")) == sorted(numbers(0, 150))
    wait_until_equal(lambda: (members(zk, group), owners(zk, group, name)), ([], {}))

    second = query(name, trigger=NOW)
    second.finish()
    assert stored(zk, group, name) == {0: "110", 1: "50", 2: "10"}
    assert [batch.spans for batch in second.batches] == [{(name, 0): (100, 110, 10), (name, 2): (0, 10, 10)}]
    third = query(name, trigger=NOW)
    third.finish()
    assert third.batches == []
    wait_until_equal(lambda: (members(zk, group), owners(zk, group, name)), ([], {}))


@pytest.mark.slow
def test_stopped_idle_query_leaves_group_at_once(
    zkconsumer_cluster: Cluster, query: Queries, topic: Topics, group: str, zk: KazooClient
) -> None:
    name, admin = topic(partitions=2), zkconsumer_cluster.admin
    one = query(name, zookeeper_session_timeout_ms=LONG)
    for end in (30, 60):
        produce(admin, name, 0, numbers(0, 30))
        produce(admin, name, 1, numbers(0, 10))
        one.wait_for_records(end // 30 * 40)
        wait_until_equal(lambda: stored(zk, group, name), {0: str(end), 1: str(end // 3)})
    [consumer_id] = members(zk, group)
    assert owners(zk, group, name) == {0: f"{consumer_id}-0", 1: f"{consumer_id}-0"}
    one.wait_for(lambda: one.state.get("lag") == 0)
    assert one.state["latest"] == {name: {"0": 60, "1": 20}}
    one.stop()
    wait_until_equal(lambda: (members(zk, group), owners(zk, group, name)), ([], {}))
    assert stored(zk, group, name) == {0: "60", 1: "20"}


@pytest.mark.slow
def test_idle_query_runs_no_batch_for_a_minute(
    zkconsumer_cluster: Cluster, query: Queries, topic: Topics, checkpoint: Path
) -> None:
    name = topic(partitions=2)
    produce(zkconsumer_cluster.admin, name, 0, numbers(0, 10))
    one = query(name)
    one.wait_for_records(10)
    one.handle.processAllAvailable()
    offsets = {file.name: file.read_bytes() for file in (checkpoint / "offsets").iterdir()}
    end = time.monotonic() + 60

    one.wait_for(lambda: time.monotonic() > end, 70, what="a minute has passed")

    assert {file.name: file.read_bytes() for file in (checkpoint / "offsets").iterdir()} == offsets
    produce(zkconsumer_cluster.admin, name, 1, numbers(0, 10))
    one.wait_for_records(20)


@pytest.mark.parametrize("fault", ["sink", pytest.param("source", marks=pytest.mark.slow)])
def test_failed_query_leaves_group_at_once(
    fault: str, zkconsumer_cluster: Cluster, query: Queries, topic: Topics, group: str, zk: KazooClient
) -> None:
    name, other, admin = topic(), topic(), zkconsumer_cluster.admin
    produce(admin, name, 0, numbers(0, 10))

    def refuse(_batch: Batch) -> None:
        assert len(members(zk, group)) == 1
        raise OSError("the sink is full")

    settings = {"zookeeper_session_timeout_ms": LONG, "clusterUnavailableTimeout": "1s"}
    one = query(f"{name},{other}", on_batch=refuse if fault == "sink" else None, **settings)
    if fault == "source":
        one.wait_for_records(10)
        assert len(members(zk, group)) == 1
        admin.delete_topic(other)
    with pytest.raises(Exception, match="the sink is full" if fault == "sink" else "PARTITIONS_DELETED"):
        one.finish()
    wait_until_equal(lambda: (members(zk, group), owners(zk, group, name)), ([], {}), 5)


@pytest.mark.slow
def test_num_streams_sets_number_of_threads(
    zkconsumer_cluster: Cluster, query: Queries, topic: Topics, group: str, zk: KazooClient
) -> None:
    name = topic(partitions=3)
    produce(zkconsumer_cluster.admin, name, 2, numbers(0, 10))
    one = query(name, numStreams=2)
    one.wait_for_records(10)
    [consumer_id] = members(zk, group)
    assert owners(zk, group, name) == {0: f"{consumer_id}-0", 1: f"{consumer_id}-0", 2: f"{consumer_id}-1"}
    registration = zk.get(f"/consumers/{group}/ids/{consumer_id}")[0]
    assert f'"subscription":{{"{name}":2}},"pattern":"static"'.encode() in registration


def test_query_starts_at_committed_offsets(
    zkconsumer_cluster: Cluster, query: Queries, topic: Topics, group: str, zk: KazooClient, store: Callable[..., None]
) -> None:
    name, admin = topic(partitions=3), zkconsumer_cluster.admin
    for number in range(3):
        produce(admin, name, number, numbers(0, 100))
    store(name, {0: 40, 1: 100})
    one = query(name, trigger=NOW)
    one.finish()
    assert [batch.spans for batch in one.batches] == [{(name, 0): (40, 100, 60), (name, 2): (0, 100, 100)}]
    assert stored(zk, group, name) == {0: "100", 1: "100", 2: "100"}


def test_records_read_by_group_are_not_read_again(
    zkconsumer_cluster: Cluster, query: Queries, topic: Topics, store: Callable[..., None]
) -> None:
    name, admin = topic(partitions=2), zkconsumer_cluster.admin
    for number in range(2):
        produce(admin, name, number, numbers(0, 100))
    query(name, trigger=NOW).finish()
    for number in range(2):
        produce(admin, name, number, numbers(100, 200))
    store(name, {0: 150})
    one = query(name, trigger=NOW)
    one.finish()
    assert [batch.spans for batch in one.batches] == [{(name, 0): (150, 200, 50), (name, 1): (100, 200, 100)}]


@pytest.mark.slow
def test_query_without_commits_resumes_from_checkpoint(
    zkconsumer_cluster: Cluster, query: Queries, topic: Topics, group: str, zk: KazooClient
) -> None:
    name, admin = topic(partitions=2), zkconsumer_cluster.admin
    produce(admin, name, 0, numbers(0, 50))
    first = query(name, commitOffsets="false")
    first.wait_for_records(50)
    produce(admin, name, 1, numbers(0, 10))
    first.wait_for_records(60)
    first.handle.processAllAvailable()  # now the batch is in the commit log
    assert len(members(zk, group)) == 1
    first.stop()
    wait_until_equal(lambda: members(zk, group), [])
    produce(admin, name, 0, numbers(50, 60))
    again = query(name, trigger=NOW, commitOffsets="false")
    again.finish()
    assert [batch.spans for batch in again.batches] == [{(name, 0): (50, 60, 10)}]
    assert again.state["commits"] == first.state["commits"] == 0
    assert stored(zk, group, name) == {}


@pytest.mark.parametrize(("reset", "start"), [("smallest", 0), pytest.param("largest", 100, marks=pytest.mark.slow)])
def test_auto_offset_reset_start_is_committed_at_once(
    zkconsumer_cluster: Cluster,
    query: Queries,
    topic: Topics,
    group: str,
    zk: KazooClient,
    gate: Any,
    reset: str,
    start: int,
) -> None:
    name, admin = topic(partitions=2), zkconsumer_cluster.admin
    produce(admin, name, 0, numbers(0, 100))
    one = query(name, on_batch=gate.hold, auto_offset_reset=reset)
    wait_until_equal(lambda: stored(zk, group, name), {0: str(start), 1: "0"}, 60)
    produce(admin, name, 0, numbers(100, 150))
    produce(admin, name, 1, numbers(0, 10))
    one.wait_for(gate.holding.is_set, 60)
    assert stored(zk, group, name) == {0: str(start), 1: "0"}
    gate.open()
    one.wait_for_records(160 - start)
    assert one.offsets.keys() == {(0, offset) for offset in range(start, 150)} | {(1, offset) for offset in range(10)}
    assert one.count == 160 - start


@pytest.mark.slow
def test_checkpoint_contains_ranges_of_batches(zkconsumer_cluster: Cluster, query: Queries, topic: Topics) -> None:
    name, admin = topic(partitions=12), zkconsumer_cluster.admin
    one = query(name)
    for round_ in range(3):
        before = one.count
        for number in range(round_, 12):
            produce(admin, name, number, numbers(0, 5 + number))
        one.wait_for_records(before + sum(5 + number for number in range(round_, 12)))
    one.stop()
    assert planned(one.checkpoint) == {
        batch.number: {partition: (start, until) for partition, (start, until, _) in batch.spans.items()}
        for batch in one.batches
    }
    offset = json.loads((one.checkpoint / "offsets" / "0").read_text().splitlines()[2])
    assert [int(number) for number in offset["ranges"][name]] == list(range(12))


@pytest.mark.slow
def test_offset_below_log_start_fails_query(
    zkconsumer_cluster: Cluster, query: Queries, topic: Topics, group: str, zk: KazooClient, store: Callable[..., None]
) -> None:
    name, admin = topic(partitions=2), zkconsumer_cluster.admin
    produce(admin, name, 1, numbers(0, 50))
    produce(admin, name, 1, numbers(50, 100))
    store(name, {0: 0, 1: 7})
    delete_records(zkconsumer_cluster, TopicPartition(name, 1), 50)
    one = query(name, trigger=NOW)
    with pytest.raises(Exception, match="KAFKA_DATA_LOSS.START_OFFSET_RESET") as failure:
        one.finish()
    text = (
        f"topic {name!r} partition 1: the next offset to read is 7, but the log start offset is 50; 43 offsets are lost"
    )
    assert text in str(failure.value)
    assert stored(zk, group, name) == {0: "0", 1: "7"}

    store(name, {1: 50})  # the remedy in the error message
    again = query(name, trigger=NOW)
    again.finish()
    assert planned(again.checkpoint) == {0: {(name, 1): (50, 100)}}


def test_committed_offset_above_log_end_fails_query(
    zkconsumer_cluster: Cluster, query: Queries, topic: Topics, store: Callable[..., None]
) -> None:
    # The offset is beyond the log end, as after a topic was re-created. Waiting would skip the records below it. The
    # error is delayed, because a new leader may report a lower end offset for a short time.
    name, admin = topic(), zkconsumer_cluster.admin
    produce(admin, name, 0, numbers(0, 50))
    store(name, {0: 1000})
    one = query(name, trigger=NOW, clusterUnavailableTimeout="1s")
    with pytest.raises(Exception, match=f"topic {name!r} partition 0.* 1000, .* 50"):
        one.finish()
