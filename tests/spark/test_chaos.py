"""No records are lost while drivers, workers and servers are killed at random times and the group keeps rebalancing.

``ZKCONSUMER_CHAOS_SEED`` sets the random seed, which repeats the random choices of a run.
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
from helpers.topics import end_offsets
from helpers.waiting import TIMEOUT_S, wait_for, wait_until_equal
from helpers.znodes import stored
from helpers.zookeeper import RECONNECTING, zookeeper_client
from interop.jvm import WIDTH
from kazoo.client import KazooClient

from zkconsumer import ConsumerConfig, create_consumer
from zkconsumer.devcluster import DevCluster

from .chaos import Chaos, Driver, Extent, Seen, StubbornLoad
from .queries import START, planned

PARTITIONS = 6

#: Extent of the short run, which takes about a minute.
SAMPLE = Extent(driver_kills=1, worker_kills=1, bounces=2, neighbours=1, queries=0, pace=0.3, slow=0.5, per_second=600)
#: Extent of the full run, which takes about 15 minutes.
LONG = Extent(
    driver_kills=30, worker_kills=30, bounces=1000, neighbours=1000, queries=1000, pace=1.0, slow=4.0, per_second=600
)

#: Concatenated values by partition.
Logs = dict[int, bytes]


@pytest.fixture(scope="module")
def zkconsumer_cluster() -> Iterator[DevCluster]:
    """ZooKeeper and two brokers that only this module uses."""
    config = {
        "zookeeper.session.timeout.ms": 3000,
        "controlled.shutdown.max.retries": 1,  # there is no other replica
        "controlled.shutdown.retry.backoff.ms": 100,
    }
    with DevCluster(brokers=2, broker_config=config) as cluster:
        yield cluster


@pytest.fixture
def zk(zkconsumer_cluster: DevCluster) -> Iterator[KazooClient]:
    """A client that reconnects after restarts of ZooKeeper."""
    with zookeeper_client(zkconsumer_cluster.zookeeper_connect, **RECONNECTING) as client:
        yield client


def read_logs(config: ConsumerConfig, topic: str, ends: dict[int, int]) -> Logs:
    """Return the values in the log of each partition."""
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
    """Parse concatenated values of the load, each ``WIDTH`` digits, and return the numbers."""
    digits = np.frombuffer(values, np.uint8).reshape(-1, WIDTH).astype(np.int64) - ord("0")
    return digits @ 10 ** np.arange(WIDTH - 1, -1, -1)


def lines_of(neighbour: Any) -> bytes:
    """Return the values that a JVM consumer has printed."""
    return b"".join(value for value in neighbour.values if value)


def check_replays(driver: Driver, logs: Logs) -> dict[int, dict[int, Seen]]:
    """Check that all runs of a batch read the same records, namely those in the log.

    Returns:
        the first run of each batch, by partition.
    """
    runs: dict[int, dict[int, dict[int, Seen]]] = defaultdict(lambda: defaultdict(dict))
    for one in driver.seen:
        assert one.partition not in runs[one.batch][one.run], f"{driver.name}: duplicate in one run: {one}"
        runs[one.batch][one.run][one.partition] = one
        where = f"{driver.name}: {one}"
        assert one.records == one.until - one.start, where
        content = logs[one.partition][one.start * WIDTH : one.until * WIDTH]
        assert one.checksum == zlib.crc32(content), f"{where} differs from the log"
    batches = {}
    for number, by_run in sorted(runs.items()):
        spans = [{p: (one.start, one.until) for p, one in seen.items()} for seen in by_run.values()]
        assert all(span == spans[0] for span in spans), f"{driver.name}: batch {number} has different ranges: {spans}"
        batches[number] = next(iter(by_run.values()))
    logged = planned(driver.checkpoint) if driver.checkpoint.exists() else {}
    told = {number: {p: span for (_, p), span in ranges.items()} for number, ranges in logged.items() if ranges}
    saw = {number: {p: (one.start, one.until) for p, one in seen.items()} for number, seen in batches.items()}
    assert saw == told, f"{driver.name}: the ranges in the checkpoint differ from those read"
    return batches


def check_overlaps(driver: Driver, batches: dict[int, dict[int, Seen]]) -> None:
    """Check that the batches of a checkpoint do not overlap and are in order."""
    by_partition: dict[int, list[Seen]] = defaultdict(list)
    for _, seen in sorted(batches.items()):
        for partition, one in seen.items():
            by_partition[partition].append(one)
    wrong = [f"{a} and {b}" for pieces in by_partition.values() for a, b in pairwise(pieces) if a.until > b.start]
    assert not wrong, f"{driver.name}: {len(wrong)} overlaps: {wrong[:5]}"


def missing(chaos: Chaos, logs: Logs) -> list[tuple[int, int]]:
    """Return the partition and offset of records that no query and no JVM consumer has read.

    JVM consumers print values only. If a value is in the logs several times, because the load retried a request whose
    response was lost, each copy that no query has read must have been printed.
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
    """Check that no records were lost and no batches overlap; return a summary of the run."""
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
        f"drivers that terminated unexpectedly: {len(chaos.died)}; failed rebalances of JVM consumers: {failures}; "
        f"batches: {done}, runs repeated: {runs - done}; records: {records}, "
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
    """Run the random events, wait until all records are read and committed, and check the result."""
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
        chaos.log("all records are written")
        ends = end_offsets(cluster, topic, PARTITIONS)
        end = {partition: str(offset) for partition, offset in ends.items()}
        wait_until_equal(lambda: stored(zk, group, topic), end, 2 * START)
        chaos.log("all offsets are committed")
        logs = read_logs(config(group_id=f"{group}-check"), topic, ends)
        assert set(numbers(b"".join(logs.values())).tolist()) == set(range(written))
        # A batch in the checkpoint is replayed even if another member has read and committed its records.
        for driver in (chaos.first, chaos.second):
            wait_for(lambda: driver.is_done or not driver.is_running, 2 * START, what=f"{driver.name} is done")
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
def run_chaos(
    zkconsumer_cluster: DevCluster,
    config: Callable[..., ConsumerConfig],
    options: Callable[..., dict[str, str]],
    topic: Callable[..., str],
    group: str,
    zk: KazooClient,
    tmp_path: Path,
) -> Callable[[Extent, float], None]:
    """Run random events of an extent within a timeout in seconds, and check the result."""

    def start(extent: Extent, timeout: float) -> None:
        run(extent, timeout, zkconsumer_cluster, config, options, topic(PARTITIONS), group, zk, tmp_path)

    return start


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_two_kills_lose_and_duplicate_nothing(run_chaos: Callable[[Extent, float], None]) -> None:
    run_chaos(SAMPLE, 150)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_thirty_kills_lose_and_duplicate_nothing(run_chaos: Callable[[Extent, float], None]) -> None:
    run_chaos(LONG, 3000)
