"""A query in a group with plain consumers that join and leave while records are written."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.aliases import Cluster, Loads, Topics
from helpers.producing import numbers, produce
from helpers.threads import in_thread
from helpers.topics import end_offsets
from helpers.waiting import TIMEOUT_S, wait_for, wait_until_equal
from helpers.znodes import members, owners, stored
from kazoo.client import KazooClient

from .neighbours import Plain
from .queries import Gate, Query, repetitions, runners, seen

pytestmark = pytest.mark.timeout(180)

Queries = Callable[..., Query]
Plains = Callable[..., Plain]


def shares(zk: KazooClient, group: str, topic: str) -> dict[str, list[int]]:
    """Return the partitions of each thread id."""
    found: dict[str, list[int]] = {}
    for partition, owner in owners(zk, group, topic).items():
        found.setdefault(owner, []).append(partition)
    return found


def wait_for_shares(zk: KazooClient, group: str, topic: str, sizes: list[int]) -> dict[str, list[int]]:
    """Wait until the thread ids own these numbers of partitions; return the partitions of each."""
    return wait_for(
        lambda: sorted(map(len, (found := shares(zk, group, topic)).values())) == sizes and found,
        what=f"shares of {sizes}",
    )


def wait_until_all_is_read(
    cluster: Cluster, query: Query, plain: list[Plain], topic: str, partitions: int
) -> dict[int, int]:
    """Wait until all records were read; return the end offset of each partition."""
    ends = end_offsets(cluster, topic, partitions)

    def read() -> int:
        return len(set().union(query.offsets, *(one.offsets for one in plain)))

    query.wait_for(lambda: read() >= sum(ends.values()), 60, what=f"all of {ends}")
    return ends


@pytest.mark.slow
def test_partitions_move_to_consumer_and_back_exactly_once(
    zkconsumer_cluster: Cluster,
    query: Queries,
    plain: Plains,
    load: Loads,
    topic: Topics,
    group: str,
    zk: KazooClient,
) -> None:
    name = topic(partitions=4)
    writer = load(name, 4)
    one = query(name)
    one.wait_for_records(200)
    [mine] = wait_for_shares(zk, group, name, [4])
    other = plain(name)
    theirs = next(owned for owner, owned in wait_for_shares(zk, group, name, [2, 2]).items() if owner != mine)
    wait_until_equal(lambda: other.owned, theirs)
    first = end_offsets(zkconsumer_cluster, name, 4)
    one.wait_for_more(200)
    other.wait_for_more(200)
    last = end_offsets(zkconsumer_cluster, name, 4)
    written = {p: {(p, offset) for offset in range(first[p], last[p])} for p in range(4)}
    assert all(written.values())
    for number in range(4):  # only the owner of a partition delivers its records
        reader = other if number in theirs else one
        one.wait_for(lambda: written[number] <= reader.offsets.keys())
        assert not written[number] & (one if reader is other else other).offsets.keys()
    other.leave()
    assert list(wait_for_shares(zk, group, name, [4])) == [mine]
    one.wait_for_more(200)
    writer.stop()
    ends = wait_until_all_is_read(zkconsumer_cluster, one, [other], name, 4)
    assert repetitions([one.offsets, other.offsets], ends) == 0
    wait_until_equal(lambda: stored(zk, group, name), {p: str(end) for p, end in ends.items()})
    assert one.state["rereadRecords"] == 0


@pytest.mark.slow
def test_batch_beyond_handover_is_counted_and_lost_nothing(
    zkconsumer_cluster: Cluster, query: Queries, gate: Gate, plain: Plains, topic: Topics, group: str, zk: KazooClient
) -> None:
    name, admin = topic(partitions=4), zkconsumer_cluster.admin
    for number in range(4):
        produce(admin, name, number, numbers(0, 50))
    one = query(name, on_batch=gate.hold, revokeTimeout="1s")
    one.wait_for(gate.holding.is_set, 60)
    other = plain(name, auto_commit_interval_ms=100)
    theirs = other.owned
    assert len(theirs) == 2
    other.wait_for_messages(100)
    wait_until_equal(
        lambda: stored(zk, group, name), {number: "50" if number in theirs else "0" for number in range(4)}
    )
    gate.open()
    one.wait_for_records(200)
    wait_until_equal(lambda: stored(zk, group, name), dict.fromkeys(range(4), "50"))
    for number in range(4):
        produce(admin, name, number, numbers(50, 60))
    one.wait_for_records(220)
    other.wait_for_messages(120)
    one.wait_for(lambda: one.state.get("rereadRecords") == 100, what="the progress report counts what is read again")
    assert one.state["owned"] == 2
    assert repetitions([one.offsets, other.offsets], dict.fromkeys(range(4), 60)) == 100
    assert {p for p, _ in one.batches[-1].spans.keys() & {(name, p) for p in theirs}} == set()
    other.leave()
    wait_until_equal(lambda: stored(zk, group, name), dict.fromkeys(range(4), "60"))


@pytest.mark.slow
def test_finished_batch_is_released_before_next_trigger(
    zkconsumer_cluster: Cluster, query: Queries, plain: Plains, topic: Topics, group: str, zk: KazooClient
) -> None:
    name, admin = topic(partitions=2), zkconsumer_cluster.admin
    for number in range(2):
        produce(admin, name, number, numbers(0, 50))
    one = query(name, trigger={"processingTime": "1 hour"}, revokeTimeout="10m")
    one.wait_for_records(100)
    wait_until_equal(lambda: stored(zk, group, name), {0: "50", 1: "50"})
    other = plain(name)
    [number] = other.owned
    produce(admin, name, number, numbers(50, 60))
    other.wait_for_messages(10)
    assert other.offsets == {(number, offset): 1 for offset in range(50, 60)}


@pytest.mark.slow
def test_join_waits_for_replayed_batch(
    zkconsumer_cluster: Cluster,
    query: Queries,
    gate: Gate,
    plain: Plains,
    topic: Topics,
    group: str,
    zk: KazooClient,
) -> None:
    name, admin = topic(partitions=2), zkconsumer_cluster.admin
    for number in range(2):
        produce(admin, name, number, numbers(0, 50))

    def refuse(_batch: object) -> None:
        raise OSError("the sink is full")

    with pytest.raises(Exception, match="the sink is full"):
        query(name, on_batch=refuse).finish()
    one = query(name, on_batch=gate.hold, revokeTimeout="20s")
    one.wait_for(gate.holding.is_set, 60)
    joining = in_thread(lambda: plain(name, rebalance_max_retries=1000))
    wait_for(lambda: len(members(zk, group)) == 2)
    produce(admin, name, 0, numbers(50, 60))
    produce(admin, name, 1, numbers(50, 60))
    gate.open()
    other = joining.result()
    one.wait_for_records(110)
    other.wait_for_messages(10)
    assert repetitions([one.offsets, other.offsets], dict.fromkeys(range(2), 60)) == 0


def test_three_members_share_topic_under_load(
    zkconsumer_cluster: Cluster,
    query: Queries,
    plain: Plains,
    load: Loads,
    topic: Topics,
    group: str,
    zk: KazooClient,
) -> None:
    name = topic(partitions=6)
    writer = load(name, 6)
    first = plain(name)
    first.wait_for_more(100)
    one = query(name)
    one.wait_for_records(100)
    second = plain(name)
    found = wait_for_shares(zk, group, name, [2, 2, 2])
    assert len({owner.rpartition("-")[0] for owner in found}) == 3
    first.wait_for_more(100)
    second.wait_for_more(100)
    one.wait_for_more(100)
    first.leave()
    wait_for_shares(zk, group, name, [3, 3])
    one.wait_for_more(100)
    writer.stop()
    ends = wait_until_all_is_read(zkconsumer_cluster, one, [first, second], name, 6)
    assert repetitions([one.offsets, first.offsets, second.offsets], ends) == 0


@pytest.mark.slow
def test_two_queries_of_group_share_topic(
    zkconsumer_cluster: Cluster, query: Queries, topic: Topics, group: str, zk: KazooClient, folder: Any
) -> None:
    name, admin = topic(partitions=4), zkconsumer_cluster.admin
    one = query(name)
    wait_for_shares(zk, group, name, [4])
    two = query(name, checkpoint=folder / "other")
    found = wait_for_shares(zk, group, name, [2, 2])
    assert len({owner.rpartition("-")[0] for owner in found}) == 2
    for number in range(4):
        produce(admin, name, number, numbers(0, 25))
    one.wait_for_records(50)
    two.wait_for_records(50)
    assert repetitions([one.offsets, two.offsets], dict.fromkeys(range(4), 25)) == 0
    wait_until_equal(lambda: stored(zk, group, name), dict.fromkeys(range(4), "25"))
    two.stop()
    wait_for_shares(zk, group, name, [4])
    for number in range(4):
        produce(admin, name, number, numbers(25, 50))
    one.wait_for_records(150)
    assert repetitions([one.offsets, two.offsets], dict.fromkeys(range(4), 50)) == 0


def in_done_batches(query: Query) -> Counter[tuple[int, int]]:
    """Count the offsets of batches in Spark's commit log. The sink may have seen one more batch."""
    done = {file.name for file in (query.checkpoint / "commits").iterdir()}
    return seen(batch for batch in query.batches if str(batch.number) in done)


@pytest.mark.slow
def test_changing_number_of_queries_is_exactly_once(
    zkconsumer_cluster: Cluster, query: Queries, load: Loads, topic: Topics, group: str, zk: KazooClient, folder: Path
) -> None:
    name = topic(partitions=6)
    writer = load(name, 6, per_second=500)

    def start(number: int) -> Query:
        return query(name, checkpoint=folder / str(number), revokeTimeout="1m")

    one = start(1)
    one.wait_for_records(100)
    two, three = start(2), start(3)
    wait_for(lambda: sorted(map(len, shares(zk, group, name).values())) == [2, 2, 2], 60, what="shares of three")
    for each in (one, two, three):
        each.wait_for_more(100)
    one.stop()
    wait_for(lambda: sorted(map(len, shares(zk, group, name).values())) == [3, 3], 60, what="shares of two")
    for each in (two, three):
        each.wait_for_more(100)
    writer.stop()
    ends = end_offsets(zkconsumer_cluster, name, 6)

    def read() -> int:
        return len(set().union(*(in_done_batches(each) for each in (one, two, three))))

    two.wait_for(lambda: read() >= sum(ends.values()), 60, what=f"all of {ends}")
    three.wait_for(lambda: True)
    last = one.batches[-1].table.num_rows  # the planning process may have been stopped before it learned of its end
    assert repetitions([in_done_batches(each) for each in (one, two, three)], ends) in (0, last)
    wait_until_equal(lambda: stored(zk, group, name), {p: str(end) for p, end in ends.items()})
    assert [each.state["rereadRecords"] for each in (two, three)] == [0, 0]


def test_expired_query_registers_again_without_loss(
    zkconsumer_cluster: Cluster,
    query: Queries,
    runner_pid: Callable[[], int],
    load: Loads,
    topic: Topics,
    group: str,
    zk: KazooClient,
) -> None:
    name = topic(partitions=4)
    writer = load(name, 4)
    one = query(name, zookeeper_session_timeout_ms=1500)
    one.wait_for_records(200)
    [consumer_id] = members(zk, group)
    path = f"/consumers/{group}/ids/{consumer_id}"
    session = zk.exists(path).ephemeralOwner
    runner = runner_pid()
    os.kill(runner, signal.SIGSTOP)  # the session expires as if the host had failed
    try:
        wait_for(lambda: members(zk, group) == [], what="the session expires")
    finally:
        os.kill(runner, signal.SIGCONT)
    one.wait_for(lambda: members(zk, group) == [consumer_id], what="it registers anew")
    assert zk.exists(path).ephemeralOwner != session
    wait_for_shares(zk, group, name, [4])
    one.wait_for_more(500)
    writer.stop()
    ends = wait_until_all_is_read(zkconsumer_cluster, one, [], name, 4)
    assert repetitions([one.offsets], ends) == 0
    wait_until_equal(lambda: stored(zk, group, name), {p: str(end) for p, end in ends.items()})


def test_suspended_query_commits_no_lost_partition(
    zkconsumer_cluster: Cluster,
    query: Queries,
    runner_pid: Callable[[], int],
    gate: Gate,
    plain: Plains,
    topic: Topics,
    group: str,
    zk: KazooClient,
) -> None:
    name, admin = topic(partitions=2), zkconsumer_cluster.admin
    for number in range(2):
        produce(admin, name, number, numbers(0, 50))
    one = query(name, on_batch=gate.hold, zookeeper_session_timeout_ms=1500)
    one.wait_for(gate.holding.is_set, 60)
    runner = runner_pid()
    os.kill(runner, signal.SIGSTOP)
    try:
        wait_for(lambda: members(zk, group) == [], what="the session expires")
        other = plain(name, auto_commit_interval_ms=600_000)
        other.wait_for_messages(100)
        assert other.owned == [0, 1]
        gate.open()  # the batch ends while the process is stopped
    finally:
        os.kill(runner, signal.SIGCONT)
    shared = wait_for_shares(zk, group, name, [1, 1])
    assert len(shared) == 2
    # The other member committed the offset of the released partition, and of its own one in the same rebalance. Its
    # assignment still has the released partition while the query claims it.
    [kept] = wait_for(lambda: len(owned := other.owned) == 1 and owned, what="the other member owns one partition")
    one.wait_for_records(100)
    produce(admin, name, 1 - kept, numbers(50, 60))
    one.wait_for_records(110)
    wait_until_equal(lambda: stored(zk, group, name)[1 - kept], "60")
    assert stored(zk, group, name)[kept] == "50"
    produce(admin, name, kept, numbers(50, 55))
    other.wait_for_messages(105)
    other.leave()
    wait_until_equal(lambda: stored(zk, group, name), {kept: "55", 1 - kept: "60"}, TIMEOUT_S)


@pytest.mark.slow
def test_query_without_partitions_is_idle(
    zkconsumer_cluster: Cluster, query: Queries, topic: Topics, zk: KazooClient, group: str, folder: Path
) -> None:
    name, admin = topic(), zkconsumer_cluster.admin
    produce(admin, name, 0, numbers(0, 10))
    first = query(name)
    first.wait_for_records(10)
    second = query(name, checkpoint=folder / "second")
    wait_for(lambda: len(members(zk, group)) == 2, what="both are members")
    counts = first.count, second.count
    produce(admin, name, 0, numbers(10, 20))
    wait_for(lambda: (first.count, second.count) != counts, what="one of them has the partition")
    owner, idle = (first, second) if first.count > counts[0] else (second, first)
    # Spark requests an offset from both about 90 times per second, which must use little CPU time.
    processes = runners(os.getpid())
    used, started = sum(process.cpu_times().user for process in processes), time.monotonic()
    wait_for(lambda: time.monotonic() - started > 3, what="three seconds")
    assert sum(process.cpu_times().user for process in processes) - used < 2 * 0.5 * (time.monotonic() - started)
    assert idle.handle.isActive
    owner.stop()
    produce(admin, name, 0, numbers(20, 30))
    idle.wait_for_more(10)
    assert (first.offsets + second.offsets) == {(0, offset): 1 for offset in range(30)}
