"""Queries while servers are restarted, paused or stopped, and with corrupt records, on a separate cluster."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.aliases import Loads, Topics
from helpers.configurations import plaintext
from helpers.producing import numbers, produce
from helpers.threads import in_thread
from helpers.topics import end_offsets
from helpers.waiting import wait_for, wait_until_equal
from helpers.znodes import members, owners, stored
from helpers.zookeeper import RECONNECTING, start_zookeeper, zookeeper_client, zookeeper_that_only_reads
from kazoo.client import KazooClient

from zkconsumer import ConsumerConfig, TopicPartition
from zkconsumer.broker.leaders import LeaderLookup
from zkconsumer.devcluster import DevCluster
from zkconsumer.devcluster.load import numbered_batch
from zkconsumer.spark.offset import INITIAL, from_offset
from zkconsumer.spark.options.source_options import SourceOptions
from zkconsumer.spark.planning.factory import create_planner

from .neighbours import Plain
from .queries import (
    ALL_AVAILABLE,
    Batch,
    Gate,
    Query,
    check_union,
    divides_available_now,
    repetitions,
    task_connections,
    waits_for_leaders,
)
from .test_topics import recreate_topic

pytestmark = [pytest.mark.timeout(180), pytest.mark.slow]

Queries = Callable[..., Query]
Plains = Callable[..., Plain]

SESSION = 2000


@pytest.fixture(scope="module")
def zkconsumer_cluster() -> Iterator[DevCluster]:
    """ZooKeeper and two brokers with a short session timeout."""
    with DevCluster(brokers=2, broker_config={"zookeeper.session.timeout.ms": 3000}) as cluster:
        yield cluster


@pytest.fixture
def cluster(zkconsumer_cluster: DevCluster) -> Iterator[DevCluster]:
    """The cluster; stopped or paused servers run again after the test."""
    yield zkconsumer_cluster
    for server in (zkconsumer_cluster.zookeeper, *zkconsumer_cluster.brokers):
        server.resume()
    start_zookeeper(zkconsumer_cluster)
    with zookeeper_client(zkconsumer_cluster.zookeeper_connect) as client:
        for broker in zkconsumer_cluster.brokers:
            if not broker.is_running:
                broker.start()
        wait_until_equal(lambda: sorted(client.get_children("/brokers/ids")), ["0", "1"])


@pytest.fixture
def zk(cluster: DevCluster) -> Iterator[KazooClient]:
    """A client that reconnects after restarts of ZooKeeper."""
    with zookeeper_client(cluster.zookeeper_connect, **RECONNECTING) as client:
        yield client
        cluster.zookeeper.resume()
        start_zookeeper(cluster)


def check_all_read(
    cluster: DevCluster, query: Query, topic: str, partitions: int, zk: KazooClient, group: str, again: int = 0
) -> None:
    """Check that all records were read, ``again`` of them twice, and that the end offsets are committed."""
    ends = end_offsets(cluster, topic, partitions)
    query.wait_for(lambda: len(query.offsets) >= sum(ends.values()), 60, what=f"all of {ends}")
    assert repetitions([query.offsets], ends) == again
    wait_until_equal(lambda: stored(zk, group, topic), {p: str(end) for p, end in ends.items()})


def test_zookeeper_restart_does_not_interrupt_query(
    cluster: DevCluster, query: Queries, load: Loads, topic: Topics, group: str, zk: KazooClient
) -> None:
    name = topic(partitions=4)
    writer = load(name, 4)
    one = query(name, zookeeper_session_timeout_ms=10_000)
    one.wait_for_records(200)
    before = members(zk, group)
    cluster.zookeeper.stop()
    start_zookeeper(cluster)
    one.wait_for_more(500)
    writer.stop()
    check_all_read(cluster, one, name, 4, zk, group)
    assert members(zk, group) == before


def test_failed_commit_is_counted_and_retried(
    cluster: DevCluster, query: Queries, topic: Topics, group: str, zk: KazooClient
) -> None:
    name, admin = topic(), cluster.admin
    produce(admin, name, 0, numbers(0, 10))
    one = query(name, zookeeper_session_timeout_ms=30_000, zookeeper_connection_timeout_ms=500)
    one.wait_for_records(10)
    wait_until_equal(lambda: stored(zk, group, name), {0: "10"})
    cluster.zookeeper.pause()
    try:
        for first in (10, 20, 30):
            produce(admin, name, 0, numbers(first, first + 10))
            one.wait_for_records(first + 10)
        one.wait_for(lambda: one.state.get("commitsFailed", 0) > 0, what="a store has failed")
    finally:
        cluster.zookeeper.resume()
    wait_until_equal(lambda: stored(zk, group, name), {0: "40"})
    produce(admin, name, 0, numbers(40, 50))
    one.wait_for(lambda: one.state.get("commits", 0) > 1, what="stores succeed again")
    assert one.offsets == {(0, offset): 1 for offset in range(50)}


def test_query_survives_frozen_zookeeper(
    cluster: DevCluster, query: Queries, load: Loads, topic: Topics, group: str, zk: KazooClient
) -> None:
    name = topic(partitions=4)
    writer = load(name, 4)
    one = query(name, zookeeper_session_timeout_ms=SESSION)
    one.wait_for_records(200)
    cluster.zookeeper.pause()
    one.wait_for(lambda: one.state.get("owned") == 0, what="it gives up its partitions")
    seen, written = one.count, writer.written
    writer.wait_for_more(500)
    assert one.count <= max(seen, written)
    cluster.zookeeper.resume()
    one.wait_for_more(500)
    writer.stop()
    check_all_read(cluster, one, name, 4, zk, group)


def test_query_survives_killed_zookeeper_during_batch(
    cluster: DevCluster, query: Queries, gate: Gate, topic: Topics, group: str, zk: KazooClient
) -> None:
    name, admin = topic(partitions=2), cluster.admin
    produce(admin, name, 0, numbers(0, 100))
    one = query(name, on_batch=gate.hold, zookeeper_session_timeout_ms=SESSION)
    one.wait_for(gate.holding.is_set, 60)
    cluster.zookeeper.kill()
    gate.open()
    one.wait_for(lambda: one.state.get("owned") == 0, what="it gives up its partitions")
    produce(admin, name, 0, numbers(100, 200))
    produce(admin, name, 1, numbers(0, 10))
    start_zookeeper(cluster)
    one.wait_for_records(210)
    check_all_read(cluster, one, name, 2, zk, group)


def test_broker_restart_under_load_loses_nothing(
    cluster: DevCluster, query: Queries, load: Loads, topic: Topics, group: str, zk: KazooClient
) -> None:
    name = topic(partitions=4)
    writer = load(name, 4)
    one = query(name)
    one.wait_for_records(200)
    before = members(zk, group)
    cluster.brokers[0].kill()
    cluster.brokers[0].start()
    one.wait_for_more(500)
    writer.stop()
    check_all_read(cluster, one, name, 4, zk, group)
    assert members(zk, group) == before


def test_planner_and_tasks_find_new_leader(
    cluster: DevCluster, query: Queries, load: Loads, topic: Topics, group: str, zk: KazooClient
) -> None:
    name = topic(partitions=4, replication=2)
    writer = load(name, 4)
    one = query(name)
    one.wait_for_records(200)
    writer.stop()
    check_all_read(cluster, one, name, 4, zk, group)  # all records are replicated now
    cluster.brokers[0].kill()
    writer = load(name, 4)
    one.wait_for_more(500)
    cluster.brokers[0].start()
    one.wait_for_more(500)
    writer.stop()
    check_all_read(cluster, one, name, 4, zk, group)


def test_broker_restart_during_task_loses_nothing(
    cluster: DevCluster, query: Queries, topic: Topics, group: str, zk: KazooClient
) -> None:
    name, admin = topic(partitions=2), cluster.admin
    for number in range(1500):  # one fetch per record batch of one record makes the tasks slow
        for partition in range(2):
            admin.produce(TopicPartition(name, partition), numbered_batch(number, 1, size=16))
    victim = cluster.brokers[0]
    earlier = task_connections([victim.endpoint.port])
    one = query(name, trigger={"availableNow": True}, fetch_message_max_bytes=1)
    one.wait_for(lambda: task_connections([victim.endpoint.port]) - earlier, 60)
    victim.kill()
    assert one.begun == []
    victim.start()
    one.finish()
    check_all_read(cluster, one, name, 2, zk, group)
    for partition in range(2):
        rows = zip(*(one.batches[0].column(c) for c in ("partition", "offset", "value")), strict=True)
        assert {o: int(v) for p, o, v in rows if p == partition} == {number: number for number in range(1500)}


def test_unreachable_broker_fails_task_with_position(cluster: DevCluster, query: Queries, topic: Topics) -> None:
    name, admin = topic(partitions=1), cluster.admin
    for number in range(1500):
        admin.produce(TopicPartition(name, 0), numbered_batch(number, 1, size=16))
    [victim] = [broker for broker in cluster.brokers if broker.endpoint == admin._leaders[TopicPartition(name, 0)]]
    earlier = task_connections([victim.endpoint.port])
    one = query(name, trigger={"availableNow": True}, fetch_message_max_bytes=1, clusterUnavailableTimeout="3s")
    one.wait_for(lambda: task_connections([victim.endpoint.port]) - earlier, 60)
    victim.kill()
    with pytest.raises(Exception, match=r"no records arrived for 3 s \(option clusterUnavailableTimeout\)") as failure:
        one.finish()
    assert f"topic {name!r} partition 0 must be read up to offset 1500" in str(failure.value)


def test_unreachable_brokers_fail_idle_query(
    cluster: DevCluster, query: Queries, topic: Topics, group: str, zk: KazooClient
) -> None:
    name = topic(partitions=2)
    produce(cluster.admin, name, 0, numbers(0, 10))
    one = query(name, clusterUnavailableTimeout="3s")
    one.wait_for_records(10)
    for broker in cluster.brokers:
        broker.kill()
    with pytest.raises(Exception, match=r"no batch could be planned for 3 s \(option clusterUnavailableTimeout"):
        one.finish()
    assert stored(zk, group, name) == {0: "10", 1: "0"}


def test_available_now_waits_for_brokers(
    cluster: DevCluster, config: Callable[..., ConsumerConfig], topic: Topics
) -> None:
    # If the planner reported no new records, the query would end successfully without having read any.
    name, admin = topic(partitions=2), cluster.admin
    for number in range(2):
        produce(admin, name, number, numbers(0, 10))
    options = dataclasses.replace(
        SourceOptions.parse({"group.id": "g", "zookeeper.connect": "z", "subscribe": name, "revokeTimeout": "1s"}),
        consumer=config(socket_timeout_ms=500),
        unavailable_timeout_s=30.0,
    )
    planner = create_planner(options)
    planner.start()
    try:
        planner.prepare_for_available_now()
        cluster.brokers[0].pause()
        planning = in_thread(lambda: planner.plan(INITIAL))
        planning.join(2)
        cluster.brokers[0].resume()
        assert from_offset(planning.result()) == {(name, 0): (0, 10), (name, 1): (0, 10)}
    finally:
        cluster.brokers[0].resume()
        planner.close()


def test_available_now_commits_after_zookeeper_outage(
    cluster: DevCluster, query: Queries, gate: Gate, topic: Topics, group: str, zk: KazooClient
) -> None:
    name = topic(partitions=2)
    for number in range(2):
        produce(cluster.admin, name, number, numbers(0, 10))
    one = query(name, on_batch=gate.hold, trigger={"availableNow": True}, zookeeper_session_timeout_ms=SESSION)
    one.wait_for(gate.holding.is_set, 60)
    cluster.zookeeper.kill()
    gate.open()
    one.wait_for(lambda: one.count == 20)
    start_zookeeper(cluster)
    one.finish()
    wait_until_equal(lambda: stored(zk, group, name), {0: "10", 1: "10"})


def test_query_joins_after_owners_session_expires(
    cluster: DevCluster, query: Queries, topic: Topics, group: str, zk: KazooClient
) -> None:
    name = topic()
    produce(cluster.admin, name, 0, numbers(0, 10))
    path = f"/consumers/{group}/owners/{name}/0"
    with zookeeper_client(cluster.zookeeper_connect, timeout=4) as dead:
        dead.create(path, b"someone-else-0", ephemeral=True, makepath=True)
        one = query(name, zookeeper_session_timeout_ms=10_000)
        one.wait_for(lambda: len(members(zk, group)) == 1, 60)
        assert owners(zk, group, name) == {0: "someone-else-0"}
    one.wait_for_records(10)


def test_restarted_query_waits_for_zookeeper(
    cluster: DevCluster, query: Queries, topic: Topics, group: str, zk: KazooClient
) -> None:
    name = topic()
    produce(cluster.admin, name, 0, numbers(0, 10))
    settings = {"zookeeper_session_timeout_ms": SESSION, "zookeeper_connection_timeout_ms": 500}
    first = query(name, **settings)
    first.wait_for_records(10)
    first.stop()
    produce(cluster.admin, name, 0, numbers(10, 20))
    cluster.zookeeper.kill()
    second = query(name, **settings)
    assert not second.handle.awaitTermination(10), "the query must wait for ZooKeeper"
    start_zookeeper(cluster)
    second.wait_for_records(10, 60)
    assert second.count == 10
    wait_until_equal(lambda: stored(zk, group, name), {0: "20"})


def test_query_survives_two_simultaneous_server_faults(
    cluster: DevCluster, query: Queries, plain: Plains, load: Loads, topic: Topics
) -> None:
    name = topic(partitions=4)
    writer = load(name, 4)
    one = query(name, zookeeper_session_timeout_ms=SESSION)
    other = plain(name, zookeeper_session_timeout_ms=SESSION)
    one.wait_for_records(200)
    other.wait_for_more(200)
    cluster.brokers[1].kill()
    cluster.zookeeper.stop()
    start_zookeeper(cluster)
    cluster.brokers[1].start()
    one.wait_for_more(200)
    other.wait_for_more(200)
    writer.stop()
    ends = end_offsets(cluster, name, 4)

    def missing() -> int:
        read = one.offsets
        read.update(other.offsets)
        return sum(ends.values()) - len(read)

    one.wait_for(lambda: missing() == 0, 60, what="all is read")


def test_query_reports_read_only_zookeeper(query: Queries, folder: Path) -> None:
    with zookeeper_that_only_reads(folder) as connect:
        one = query("any", zookeeper_connect=connect, zookeeper_connection_timeout_ms=1000)
        with pytest.raises(Exception, match="read-only servers do not accept consumers"):
            one.finish()


def test_batch_read_waits_for_frozen_broker(
    cluster: DevCluster, spark: Any, topic: Topics, options: Callable[..., dict[str, str]]
) -> None:
    name, admin = topic(partitions=2), cluster.admin
    for number in range(2):
        produce(admin, name, number, numbers(0, 10))
    settings = options(name, socket_timeout_ms=500, clusterUnavailableTimeout="30s")

    def read() -> list[tuple[int, int]]:
        frame = spark.read.format("zkconsumer").options(**settings).load()
        return sorted((row.partition, row.offset) for row in frame.collect())

    expected = [(number, offset) for number in range(2) for offset in range(10)]
    assert read() == expected  # the next read sends its requests at once
    frozen = cluster.brokers[0]
    frozen.pause()
    try:
        reading = in_thread(read)
        reading.join(5)  # longer than several of the timeouts above and the broker's session timeout
        assert reading.is_alive()
    finally:
        frozen.resume()
    assert reading.result(40) == expected


@divides_available_now
@pytest.mark.parametrize(
    ("fails", "alone"),
    [
        (False, False),
        (False, True),
        (True, False),
        (True, True),
    ],
    ids=["go-on", "go-on-alone", "fail", "fail-alone"],
)
def test_topic_deleted_under_available_now_is_reported(
    fails: bool, alone: bool, cluster: DevCluster, query: Queries, topic: Topics, group: str, zk: KazooClient
) -> None:
    lost, kept, admin = topic(), topic(), cluster.admin
    for name in (lost, kept):
        produce(admin, name, 0, numbers(0, 100))

    def delete(batch: Batch) -> None:
        if batch.number == 0:
            admin.delete_topic(lost)
            wait_for(lambda: zk.exists(f"/brokers/topics/{lost}") is None, what="it is gone")

    one = query(
        lost if alone else f"{lost},{kept}",
        on_batch=delete,
        trigger={"availableNow": True},
        maxOffsetsPerTrigger=20,
        failOnDataLoss=fails,
    )
    if fails:
        with pytest.raises(Exception, match=rf"KAFKA_DATA_LOSS\.PARTITIONS_DELETED. topic '{lost}' was deleted"):
            one.finish()
        return
    one.finish()
    wanted = {(lost, 0): (0, 20)} if alone else {(lost, 0): (0, 10), (kept, 0): (0, 100)}
    check_union([batch.spans for batch in one.batches], wanted)
    assert stored(zk, group, kept) == ({} if alone else {0: "100"})


@divides_available_now
def test_topic_re_created_under_available_now_is_read(cluster: DevCluster, query: Queries, topic: Topics) -> None:
    name, admin = topic(), cluster.admin
    produce(admin, name, 0, numbers(0, 100))

    def replace(batch: Batch) -> None:
        if batch.number == 0:
            recreate_topic(cluster, name, 5)

    one = query(
        name,
        on_batch=replace,
        trigger={"availableNow": True},
        maxOffsetsPerTrigger=20,
        failOnDataLoss=False,
        clusterUnavailableTimeout="12s",
    )
    one.finish()
    assert [value for batch in one.batches for value in batch.column("value")] == numbers(0, 20) + numbers(1000, 1005)


@pytest.mark.parametrize("anew", [False, True], ids=["deleted", "anew"])
def test_topic_deleted_before_batch_read_is_reported(
    anew: bool, cluster: DevCluster, query: Queries, topic: Topics, zk: KazooClient
) -> None:
    lost, kept, admin = topic(), topic(), cluster.admin
    for name in (lost, kept):
        produce(admin, name, 0, numbers(0, 20))

    def replace(number: int) -> None:
        if number > 0:
            return
        if anew:
            recreate_topic(cluster, lost, 5)
        else:
            admin.delete_topic(lost)
            wait_for(lambda: zk.exists(f"/brokers/topics/{lost}") is None, what="it is gone")

    one = query(
        f"{lost},{kept}",
        before=replace,
        trigger={"availableNow": True},
        failOnDataLoss=False,
        clusterUnavailableTimeout="12s",
    )
    one.finish()
    again = query(f"{lost},{kept}", trigger={"availableNow": True}, failOnDataLoss=False)
    again.finish()
    values = sorted(value for batch in one.batches + again.batches for value in batch.column("value"))
    # Records of the new topic may be read twice: first by tasks that were to read the deleted topic.
    assert sorted(set(values)) == sorted(numbers(0, 20) + (numbers(1000, 1005) if anew else []))


@pytest.mark.parametrize("count", [None, 5, 50], ids=["deleted", "fewer", "more"])
@pytest.mark.parametrize("fails", [False, True], ids=["go-on", "fail"])
def test_replay_of_deleted_topic_is_reported(
    fails: bool, count: int | None, cluster: DevCluster, query: Queries, topic: Topics
) -> None:
    lost, kept, admin = topic(), topic(), cluster.admin
    for name in (lost, kept):
        produce(admin, name, 0, numbers(0, 20))

    def refuse(_batch: Batch) -> None:
        raise OSError("the sink is full")

    with pytest.raises(Exception, match="the sink is full"):
        query(f"{lost},{kept}", trigger={"availableNow": True}, on_batch=refuse).finish()
    if count is None:
        admin.delete_topic(lost)
    else:
        recreate_topic(cluster, lost, count)
    one = query(f"{lost},{kept}", trigger=ALL_AVAILABLE, failOnDataLoss=fails, clusterUnavailableTimeout="12s")
    if fails:
        with pytest.raises(Exception, match=rf"KAFKA_DATA_LOSS\.PARTITIONS_DELETED. topic '{lost}' was deleted"):
            one.finish()
        assert one.begun == [], "no batch may start with records of the new topic"
        return
    one.finish()
    values = sorted(value for batch in one.batches for value in batch.column("value"))
    assert values == sorted(numbers(0, 20) + (numbers(1000, 1000 + count) if count else []))


@waits_for_leaders
def test_partition_without_leader_does_not_stop_others(
    cluster: DevCluster, query: Queries, topic: Topics, zk: KazooClient, group: str
) -> None:
    name, admin = topic(partitions=2), cluster.admin  # one partition on each broker
    for number in range(2):
        produce(admin, name, number, numbers(0, 10))
    lookup = LeaderLookup(plaintext(10))
    leaders = lookup.leaders([broker.endpoint for broker in cluster.brokers], [TopicPartition(name, 0)])
    lookup.close()
    port = leaders[TopicPartition(name, 0)][1].port
    [killed] = [broker for broker in cluster.brokers if broker.endpoint.port == port]
    killed.kill()
    one = query(name, clusterUnavailableTimeout="4s")  # partition 0 has no start position yet
    one.wait_for_records(10)
    check_others_are_read(cluster, one, name)
    assert {partition for partition, _ in one.offsets} == {1}
    killed.start()
    one.wait_for(lambda: (0, 9) in one.offsets, 60, what="the partition is available again")
    killed.kill()
    check_others_are_read(cluster, one, name)
    killed.start()
    produce(admin, name, 0, numbers(10, 20))
    one.wait_for(lambda: (0, 19) in one.offsets, 60, what="its later records are read")
    check_all_read(cluster, one, name, 2, zk, group)


def check_others_are_read(cluster: DevCluster, query: Query, topic: str) -> None:
    """Check that the query reads partition 1 for longer than its timeout, and reports partition 0 as unavailable."""
    deadline = time.monotonic() + 6
    while time.monotonic() < deadline:
        produce(cluster.admin, topic, 1, numbers(0, 10))
        query.wait_for_more(10)
    query.wait_for(lambda: query.state["unavailablePartitions"] == [f"{topic}-0"])
    assert (query.state["health"], query.state["healthReasons"]) == ("stalled", ["leader_not_found"])
