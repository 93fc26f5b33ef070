"""The driver listener: commits that the planning process makes too late or not at all, and metrics."""

from __future__ import annotations

import gc
import json
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.aliases import Cluster, Topics
from helpers.batch_offsets import offset_json
from helpers.processes import run_module
from helpers.producing import numbers, produce
from helpers.waiting import wait_for, wait_until_equal
from helpers.znodes import members, stored
from helpers.zookeeper import zookeeper_client
from kazoo.client import KazooClient
from prometheus_client import CollectorRegistry

import zkconsumer.spark
from zkconsumer.devcluster.servers import ZooKeeperServer
from zkconsumer.message import Endpoint, TopicPartition
from zkconsumer.prometheus import ConsumerCollector
from zkconsumer.spark.compat import HAS_ADMISSION_CONTROL
from zkconsumer.spark.driver import commits, observed_query, query_listener
from zkconsumer.spark.driver.query_health import find_trigger_interval
from zkconsumer.spark.options.source_options import SourceOptions

from .queries import Query
from .tracebacks import find_errors

pytestmark = pytest.mark.timeout(120)

Queries = Callable[..., Query]


@pytest.mark.slow
def test_batch_of_once_trigger_is_committed(
    zkconsumer_cluster: Cluster,
    query: Queries,
    topic: Topics,
    zk: KazooClient,
    group: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name, admin = topic(), zkconsumer_cluster.admin
    produce(admin, name, 0, numbers(0, 100))
    known: list[list[Endpoint]] = []
    commit = commits.commit_batch

    def record_brokers(batch: commits.CompletedBatch, *others: Any) -> dict[TopicPartition, int]:
        known.append(batch.known.before([]))
        return commit(batch, *others)

    monkeypatch.setattr(commits, "commit_batch", record_brokers)
    one = query(name, trigger={"once": True}, maxOffsetsPerTrigger=10)
    one.finish()
    count = 100 if HAS_ADMISSION_CONTROL else 10
    assert one.count == count, "Trigger.Once must ignore the limit where Spark says that it is Trigger.Once"
    wait_until_equal(lambda: stored(zk, group, name), {0: str(count)})
    brokers = ",".join(sorted(f"{broker.host}:{broker.port}" for broker in known[0]))
    assert brokers == ",".join(sorted(zkconsumer_cluster.bootstrap_servers.split(","))), "named by the planning process"


@pytest.mark.slow
def test_batch_of_two_sources_is_committed_for_both(
    zkconsumer_cluster: Cluster,
    spark: Any,
    topic: Topics,
    options: Callable[..., dict[str, str]],
    checkpoint: Path,
    zk: KazooClient,
    group: str,
) -> None:
    names = topic(), topic()
    for name in names:
        produce(zkconsumer_cluster.admin, name, 0, numbers(0, 100))
    first, second = (spark.readStream.format("zkconsumer").options(**options(name)).load() for name in names)
    one = Query(first.union(second), checkpoint, trigger={"once": True})
    one.finish()
    assert one.count == 200
    wait_until_equal(lambda: [stored(zk, group, name) for name in names], [{0: "100"}, {0: "100"}])


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_exit_of_forked_process_keeps_the_listener(spark: Any) -> None:
    """The exit of a forked process calls ``close`` there, too."""
    own = zkconsumer.spark.register(spark)
    assert own is not None
    before = len(spark.streams._jsqm.listListeners())
    child = os.fork()
    if child == 0:
        gc.disable()  # py4j would release objects of the JVM through the connection of the parent
        own.close()
        os._exit(0)
    wait_for(lambda: os.waitpid(child, os.WNOHANG)[0], what="the forked process ends")
    assert len(spark.streams._jsqm.listListeners()) == before >= 1


@pytest.mark.slow
def test_unreachable_zookeeper_delays_no_other_query(
    zkconsumer_cluster: Cluster,
    query: Queries,
    topic: Topics,
    zk: KazooClient,
    group: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(query_listener, "_LAST_COMMIT_TIMEOUT_S", 100.0)
    name = topic()
    produce(zkconsumer_cluster.admin, name, 0, numbers(0, 100))
    elsewhere = ZooKeeperServer(tmp_path)
    elsewhere.start()
    try:
        first = query(
            name,
            checkpoint=tmp_path / "first",
            on_batch=lambda batch: elsewhere.kill(),
            trigger={"processingTime": "1 hour"},
            zookeeper_connect=elsewhere.connect,
            bootstrap_servers=zkconsumer_cluster.bootstrap_servers,
        )
        first.wait_for(lambda: first.state, what="its batch is done")
        first.stop()
        second = query(name, trigger={"once": True})
        second.finish()
        wait_until_equal(lambda: stored(zk, group, name), {0: "100"}, 10)
        elsewhere.start()
        with zookeeper_client(elsewhere.connect) as client:
            wait_until_equal(lambda: stored(client, group, name), {0: "100"})
    finally:
        elsewhere.kill()


def test_batch_is_committed_before_next_trigger(
    zkconsumer_cluster: Cluster, query: Queries, topic: Topics, zk: KazooClient, group: str
) -> None:
    name, admin = topic(), zkconsumer_cluster.admin
    produce(admin, name, 0, numbers(0, 100))
    one = query(name, trigger={"processingTime": "1 hour"})
    one.wait_for_records(100)
    wait_until_equal(lambda: stored(zk, group, name), {0: "100"})
    assert len(members(zk, group)) == 1
    assert find_trigger_interval(one.handle) == 3_600


@pytest.mark.slow
def test_stopped_query_has_committed_last_batch(
    zkconsumer_cluster: Cluster, query: Queries, topic: Topics, zk: KazooClient, group: str
) -> None:
    name, admin = topic(), zkconsumer_cluster.admin
    produce(admin, name, 0, numbers(0, 100))
    one = query(name, trigger={"processingTime": "1 hour"})
    one.wait_for(lambda: one.handle.lastProgress, what="the batch is done")
    one.stop()
    wait_until_equal(lambda: (members(zk, group), stored(zk, group, name)), ([], {0: "100"}))


@pytest.mark.slow
@pytest.mark.parametrize("running", [False, True], ids=["finished", "running"])
def test_job_without_stop_commits_and_logs_no_errors(
    running: bool,
    zkconsumer_cluster: Cluster,
    topic: Topics,
    options: Callable[..., dict[str, str]],
    folder: Path,
    zk: KazooClient,
    group: str,
) -> None:
    name, admin = topic(), zkconsumer_cluster.admin
    produce(admin, name, 0, numbers(0, 100))
    trigger = {"processingTime": "1 hour"} if running else {"once": True}
    settings = {"folder": str(folder), "options": options(name), "trigger": trigger, "running": running}
    done = run_module("spark.drivers.job_without_stop", json.dumps(settings), timeout=100)
    assert stored(zk, group, name) == {0: "100"}
    after = done.stderr.partition("the job is done")[2]
    assert not find_errors(after), after


def test_failed_batch_is_not_committed(
    zkconsumer_cluster: Cluster, query: Queries, topic: Topics, zk: KazooClient, group: str, folder: Path
) -> None:
    name, admin = topic(), zkconsumer_cluster.admin
    produce(admin, name, 0, numbers(0, 100))

    def fail(_batch: Any) -> None:
        raise RuntimeError("the sink is broken")

    one = query(name, on_batch=fail, trigger={"once": True})
    with pytest.raises(Exception, match="the sink is broken"):
        one.finish()
    other = topic()
    produce(admin, other, 0, numbers(0, 1))
    query(other, trigger={"once": True}, checkpoint=folder / "other").finish()
    wait_until_equal(lambda: stored(zk, group, other), {0: "1"})  # events are in order, so earlier ones were handled
    assert stored(zk, group, name) == {0: "0"}


def test_listener_respects_owners_and_higher_offsets(
    topic: Topics, options: Callable[..., dict[str, str]], store: Callable[..., None], zk: KazooClient, group: str
) -> None:
    name = topic(partitions=4)
    store(name, {0: 10, 1: 10, 2: 99})
    for partition, owner in ((0, "g_other-0"), (1, "g_me-0")):
        zk.create(f"/consumers/{group}/owners/{name}/{partition}", owner.encode(), ephemeral=True, makepath=True)
    end = offset_json({TopicPartition(name, number): (0, 50) for number in range(4)}, group=group)
    done = commits.CompletedBatch(SourceOptions.parse(options(name)), end, time.time() + 5)
    assert commits.commit_batch(done, {"g_me"}, {}) == {TopicPartition(name, 1): 50, TopicPartition(name, 3): 50}
    assert stored(zk, group, name) == {0: "10", 1: "50", 2: "99", 3: "50"}


def test_offset_lowered_by_operator_is_kept(
    topic: Topics, options: Callable[..., dict[str, str]], store: Callable[..., None], zk: KazooClient, group: str
) -> None:
    name = topic()
    end = offset_json({TopicPartition(name, 0): (0, 50)}, group=group)
    done = commits.CompletedBatch(SourceOptions.parse(options(name)), end, time.time() - 5)
    store(name, {0: 10})
    assert commits.commit_batch(done, set(), {}) == {}
    assert stored(zk, group, name) == {0: "10"}
    # A late commit of an earlier batch of the query does not count as an offset reset.
    assert commits.commit_batch(done, set(), {TopicPartition(name, 0): 10}) == {TopicPartition(name, 0): 50}


@pytest.mark.parametrize(("restart", "committed"), [("group", {}), ("furthest", {0: 50})])
def test_offset_reset_before_restart_is_kept(
    restart: str,
    committed: dict[int, int],
    topic: Topics,
    options: Callable[..., dict[str, str]],
    store: Callable[..., None],
) -> None:
    name = topic()
    store(name, {0: 10})
    replayed = offset_json({TopicPartition(name, 0): (40, 50)}, group="g")
    done = commits.CompletedBatch(SourceOptions.parse(options(name, resumeFrom=restart)), replayed, time.time() + 5)
    expected = {TopicPartition(name, partition): offset for partition, offset in committed.items()}
    assert commits.commit_batch(done, set(), {}) == expected


def test_sources_of_one_group_are_matched_by_topics(options: Callable[..., dict[str, str]]) -> None:
    a, b = (SourceOptions.parse(options(name)) for name in ("a", "b"))
    for number, name in enumerate("ab"):
        end = offset_json({TopicPartition(name, 0): (0, 1)}, group=a.consumer.group_id)
        assert observed_query.find_options([a, b], end) is (a, b)[number]
    assert observed_query.find_options([a, b], offset_json({TopicPartition("c", 0): (0, 1)}, group="other")) is None


@pytest.mark.slow
def test_single_batch_ignores_delays_and_limits(zkconsumer_cluster: Cluster, query: Queries, topic: Topics) -> None:
    name, admin = topic(partitions=2), zkconsumer_cluster.admin  # partition 1 is empty
    produce(admin, name, 0, numbers(0, 100))
    limits: dict[str, object] = {"minOffsetsPerTrigger": 1000}
    if HAS_ADMISSION_CONTROL:
        limits |= {"maxAlignmentLag": "1m", "maxBytesPerTrigger": 10}
    one = query(name, trigger={"once": True}, **limits)
    one.finish()
    assert one.count == 100


def test_progress_figures_become_metrics(
    spark: Any, zkconsumer_cluster: Cluster, query: Queries, topic: Topics
) -> None:
    name, admin = topic(partitions=2), zkconsumer_cluster.admin
    one = query(name, maxOffsetsPerTrigger=10)
    produce(admin, name, 0, numbers(0, 100))
    one.wait_for_records(100)
    registry = CollectorRegistry()
    metrics = zkconsumer.spark.register(spark)
    assert metrics is not None
    registry.register(ConsumerCollector(metrics))
    labels = {"query": str(one.handle.id)}

    def value(kind: str) -> float:
        found = registry.get_sample_value(f"zkconsumer_spark_StreamingQuery_{kind}", labels)
        return math.nan if found is None else float(found)

    wait_for(lambda: value("Lag") == 0 and value("Commits") > 1, what="the last progress is known")
    assert value("OwnedPartitions") == 2
    assert value("InputRowsPerSecond") > 0
    assert value("BytesPerSecond") > value("ProcessedRowsPerSecond")
    assert value("Rebalances") == 1
    assert value("Health") == 0
    health = metrics._queries[str(one.handle.runId)].health
    wait_for(lambda: health._idle_plannings > 1, what="the planning process reports that there is nothing to read")
    assert not list(health.reasons())
    assert value("CommitsFailed") == 0
    assert value("CommitAgeSeconds") >= 0
    assert one.state["commits"] >= 1
    one.stop()
    wait_for(lambda: math.isnan(value("Lag")), what="the query is forgotten")


@pytest.mark.slow
def test_stopped_sessions_leave_no_threads_and_ports(folder: Path) -> None:
    done = run_module("spark.drivers.sessions", str(folder), "3", timeout=100)
    sessions = json.loads(done.stdout.splitlines()[-1])
    assert [threads for threads, _ in sessions] == [[], [], []]
    ports = [count for _, count in sessions]
    assert ports[1] == ports[0], "PySpark has a port until the end of its JVM"
    assert ports[2] <= ports[0]
