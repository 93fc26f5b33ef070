"""Drivers, workers and servers killed at random moments, and a group that changes all the time: nothing is missing.

``ZKCONSUMER_CHAOS_SEED`` repeats the moments of a run, as far as they depend on chance alone.
"""

from __future__ import annotations

import os
import random
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from interop.jvm import WIDTH
from kazoo.client import KazooClient
from support import TIMEOUT_S, stored, wait_for, wait_until_equal

from zkconsumer import ConsumerConfig, create_consumer
from zkconsumer.devcluster import DevCluster

from .chaos import Chaos, Driver, Extent, Seen, StubbornLoad
from .neighbours import end_offsets
from .queries import START, planned

PARTITIONS = 6

#: What ``make test`` has of it.
SAMPLE = Extent(driver_kills=1, worker_kills=1, bounces=2, neighbours=1, queries=0, pace=0.3, slow=0.5, per_second=600)
#: All of it, about a quarter of an hour.
LONG = Extent(
    driver_kills=30, worker_kills=30, bounces=1000, neighbours=1000, queries=1000, pace=1.0, slow=4.0, per_second=600
)

#: The values in a partition, one after another.
Logs = dict[int, bytes]


@pytest.fixture(scope="module")
def zkconsumer_cluster() -> Iterator[DevCluster]:
    """ZooKeeper and two brokers, for this alone."""
    config = {
        "zookeeper.session.timeout.ms": 3000,
        "controlled.shutdown.max.retries": 1,  # there is no replica that could lead
        "controlled.shutdown.retry.backoff.ms": 100,
    }
    with DevCluster(brokers=2, broker_config=config) as cluster:
        yield cluster


@pytest.fixture
def zk(zkconsumer_cluster: DevCluster) -> Iterator[KazooClient]:
    """A connection that outlives what is done to ZooKeeper."""
    client = KazooClient(
        zkconsumer_cluster.zookeeper_connect,
        timeout=30,
        connection_retry={"max_tries": -1, "delay": 0.1, "backoff": 1},
    )
    client.start(timeout=TIMEOUT_S)
    yield client
    client.stop()
    client.close()


def read_logs(config: ConsumerConfig, topic: str, ends: dict[int, int]) -> Logs:
    """Return what is in the log of each partition."""
    found: dict[int, list[bytes]] = defaultdict(list)
    connector = create_consumer(config)
    try:
        [stream] = connector.create_message_streams({topic: 1})[topic]
        batches = stream.batches()
        while sum(map(len, found.values())) < sum(ends.values()):
            batch: Any = next(batches)
            [partition] = set(batch.column("partition").to_pylist())
            assert batch.column("offset").to_pylist()[0] == len(found[partition])
            found[partition] += batch.column("value").to_pylist()
    finally:
        connector.shutdown()
    assert {partition: len(values) for partition, values in found.items()} == ends
    return {partition: b"".join(values) for partition, values in found.items()}


def numbers(values: bytes) -> Any:
    """Return the numbers of the load that so many values of its width say."""
    digits = np.frombuffer(values, np.uint8).reshape(-1, WIDTH).astype(np.int64) - ord("0")
    return digits @ 10 ** np.arange(WIDTH - 1, -1, -1)


def lines_of(neighbour: Any) -> bytes:
    """Return what a JVM has printed."""
    return b"".join(value for value in neighbour.values if value)


def check_replays(driver: Driver, logs: Logs) -> dict[int, dict[int, Seen]]:
    """Each run of a batch saw the same, which is what the log has there; returns the first of each, by partition."""
    runs: dict[int, dict[int, dict[int, Seen]]] = defaultdict(lambda: defaultdict(dict))
    for one in driver.seen:
        assert one.partition not in runs[one.batch][one.run], f"{driver.name}: twice in a batch: {one}"
        runs[one.batch][one.run][one.partition] = one
        where = f"{driver.name}: {one}"
        assert one.records == one.until - one.start, where
        content = logs[one.partition][one.start * WIDTH : one.until * WIDTH]
        assert one.checksum == zlib.crc32(content), f"{where} is not what the log has there"
    batches = {}
    for number, by_run in sorted(runs.items()):
        spans = [{p: (one.start, one.until) for p, one in seen.items()} for seen in by_run.values()]
        assert all(span == spans[0] for span in spans), f"{driver.name}: batch {number}: {spans}"
        batches[number] = next(iter(by_run.values()))
    logged = planned(driver.checkpoint) if driver.checkpoint.exists() else {}
    told = {number: {p: span for (_, p), span in ranges.items()} for number, ranges in logged.items() if ranges}
    saw = {number: {p: (one.start, one.until) for p, one in seen.items()} for number, seen in batches.items()}
    assert saw == told, f"{driver.name}: the checkpoint says something else"
    return batches


def check_overlaps(driver: Driver, batches: dict[int, dict[int, Seen]]) -> None:
    """No batch has a record that another batch of the checkpoint had, and none goes back."""
    by_partition: dict[int, list[Seen]] = defaultdict(list)
    for _, seen in sorted(batches.items()):
        for partition, one in seen.items():
            by_partition[partition].append(one)
    wrong = [f"{a} and {b}" for pieces in by_partition.values() for a, b in pairwise(pieces) if a.until > b.start]
    assert not wrong, f"{driver.name}: {len(wrong)} overlaps: {wrong[:5]}"


def missing(chaos: Chaos, logs: Logs) -> list[tuple[int, int]]:
    """Return the partition and offset of records that nobody has read.

    The JVM tells values only. One that is twice in the logs, since an answer to the load was lost, it has to have
    printed as often as it is missing elsewhere.
    """
    printed = Counter(numbers(b"".join(lines_of(one) for one in chaos.neighbours)).tolist())
    covered: dict[int, np.ndarray] = {
        partition: np.zeros(len(values) // WIDTH, bool) for partition, values in logs.items()
    }
    for driver in (chaos.first, chaos.second):
        for one in driver.seen:
            covered[one.partition][one.start : one.until] = True
    left = []
    for partition, values in logs.items():
        all_numbers = numbers(values)
        for offset in np.flatnonzero(~covered[partition]).tolist():
            number = int(all_numbers[offset])
            if printed[number]:
                printed[number] -= 1
            else:
                left.append((partition, offset))
    return left


def check_all(chaos: Chaos, logs: Logs) -> str:
    """Check what is promised, and return what happened."""
    batches = {driver: check_replays(driver, logs) for driver in (chaos.first, chaos.second)}
    lost = missing(chaos, logs)
    assert not lost, f"{len(lost)} records are missing: {lost[:20]}"
    for driver, of_driver in batches.items():
        check_overlaps(driver, of_driver)
    records = sum(len(values) // WIDTH for values in logs.values())
    runs = sum(len({(one.batch, one.run) for one in driver.seen}) for driver in batches)
    done = sum(map(len, batches.values()))
    delivered = sum(one.records for driver in batches for one in driver.seen)
    once = sum(one.records for of_driver in batches.values() for seen in of_driver.values() for one in seen.values())
    by_jvm = sum(len(one.values) for one in chaos.neighbours)
    failures = sum("can't rebalance after" in line for one in chaos.neighbours for line in one.failures)
    counts = ", ".join(f"{what}: {count}" for what, count in sorted(chaos.counts.items()))
    return (
        f"{counts}; tasks that failed: {sum(driver.lost_tasks for driver in batches)}; "
        f"drivers that ended by themselves: {len(chaos.died)}; rebalances that a JVM gave up: {failures}; "
        f"batches: {done}, of these run again: {runs - done} times; records: {records}, "
        f"delivered by the queries: {delivered}, by the JVMs: {by_jvm}; read again: {delivered + by_jvm - records}, "
        f"of these in a replay of the same batch: {delivered - once}"
    )


def run(
    extent: Extent,
    timeout: float,
    cluster: DevCluster,
    config: Callable[..., ConsumerConfig],
    options: Callable[..., dict[str, str]],
    topic: str,
    group: str,
    zk: KazooClient,
    folder: Path,
) -> None:
    """Let it happen, let everything be read, and check it."""
    seed = int(os.environ.get("ZKCONSUMER_CHAOS_SEED") or random.randrange(1_000_000))
    print(f"\nZKCONSUMER_CHAOS_SEED={seed}")
    own = options(
        topic,
        zookeeper_session_timeout_ms=3000,
        zookeeper_connection_timeout_ms=60_000,
    )
    load = StubbornLoad(cluster, topic, PARTITIONS, per_second=extent.per_second)
    chaos = Chaos(cluster, zk, group, load, own, folder, extent, seed)
    try:
        chaos.first.start()
        wait_for(
            lambda: len(stored(zk, group, topic)) == PARTITIONS or not chaos.first.is_running,
            START,
            what="the group has offsets",
        )
        assert chaos.first.is_running, chaos.first.output
        chaos.run(timeout)
        written = load.stop()
        chaos.log("all is written")
        ends = end_offsets(cluster, topic, PARTITIONS)
        end = {partition: str(offset) for partition, offset in ends.items()}
        wait_until_equal(lambda: stored(zk, group, topic), end, 2 * START)
        chaos.log("all is stored")
        logs = read_logs(config(group_id=f"{group}-check"), topic, ends)
        assert set(numbers(b"".join(logs.values())).tolist()) == set(range(written))
        # What is stored may have been read by others: a batch that the checkpoint has is run again nevertheless.
        for driver in (chaos.first, chaos.second):
            wait_for(lambda: driver.is_done or not driver.is_running, 2 * START, what=f"{driver.name} does all batches")
        for driver in (chaos.first, chaos.second):
            driver.stop(TIMEOUT_S)
    finally:
        chaos.close()
        load.stop()
        for text in chaos.died:
            print(text)
    print(f"chaos, seed {seed}: {check_all(chaos, logs)}")
    assert chaos.died == []


@pytest.fixture
def happen(
    zkconsumer_cluster: DevCluster,
    config: Callable[..., ConsumerConfig],
    options: Callable[..., dict[str, str]],
    topic: Callable[..., str],
    group: str,
    zk: KazooClient,
    tmp_path: Path,
) -> Callable[[Extent, float], None]:
    """Let so much of it happen within so many seconds, and check the outcome."""

    def start(extent: Extent, timeout: float) -> None:
        run(extent, timeout, zkconsumer_cluster, config, options, topic(PARTITIONS), group, zk, tmp_path)

    return start


@pytest.mark.timeout(240)
def test_two_kills_lose_and_duplicate_nothing(happen: Callable[[Extent, float], None]) -> None:
    happen(SAMPLE, 150)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_thirty_kills_lose_and_duplicate_nothing(happen: Callable[[Extent, float], None]) -> None:
    happen(LONG, 3000)
