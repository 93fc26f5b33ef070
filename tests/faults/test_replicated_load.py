"""Load with ``acks=all`` on three brokers that are killed in turn: no valid offset may count as corrupt.

Brokers return records above the high watermark of the same response, and a new leader may report a lower one.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator

import pytest
from helpers.teardown import started
from helpers.waiting import wait_for, wait_until_equal
from helpers.zookeeper import zookeeper_client
from kafka import KafkaProducer
from kafka.errors import KafkaError

from zkconsumer import ConsumerConfig
from zkconsumer.devcluster import DevCluster

from .faults import Member
from .test_broker_faults import in_sync

TOPIC, PARTITIONS = "replicated", 4

#: Duration of the load, and interval between the ends of two brokers, in seconds.
LOAD_S, KILL_INTERVAL_S = 180, 30


@pytest.fixture
def three_brokers() -> Iterator[DevCluster]:
    config = {
        "min.insync.replicas": 2,
        "zookeeper.session.timeout.ms": 2000,
        "replica.lag.time.max.ms": 2000,
        "controlled.shutdown.enable": "false",
    }
    with DevCluster(brokers=3, broker_config=config) as cluster:
        cluster.create_topic(TOPIC, PARTITIONS, replication=3)
        yield cluster


class Producers:
    """Threads that produce small batches to random partitions with ``acks=all``, until they are stopped."""

    def __init__(self, cluster: DevCluster, count: int) -> None:
        self.acknowledged = 0
        self._servers = cluster.bootstrap_servers
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._run, args=[number], daemon=True) for number in range(count)]
        for thread in self._threads:
            thread.start()

    def _run(self, seed: int) -> None:
        rng = random.Random(seed)
        producer = KafkaProducer(
            bootstrap_servers=self._servers, acks="all", enable_idempotence=False, linger_ms=1, max_block_ms=30_000
        )
        while not self._stopped.is_set():
            partition = rng.randrange(PARTITIONS)
            sent = [producer.send(TOPIC, b"%d" % number, partition=partition) for number in range(rng.randrange(1, 50))]
            for future in sent:
                try:
                    future.get(timeout=60)
                except KafkaError:
                    continue  # not acknowledged, because its leader was killed
                with self._lock:
                    self.acknowledged += 1
        producer.close()

    def stop(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join(90)


@pytest.fixture
def producers(three_brokers: DevCluster) -> Iterator[Producers]:
    load = Producers(three_brokers, 3)
    yield load
    load.stop()


@pytest.fixture
def members(three_brokers: DevCluster) -> Iterator[list[Member]]:
    """One member that reads all records, and one that reads committed ones, whose end offset may be lower."""
    small = {"fetch.message.max.bytes": 20_000, "fetch.wait.max.ms": 10, "auto.offset.reset": "smallest"}

    def make(level: str) -> Member:
        own = {"group.id": level, "isolation.level": level}
        return Member(ConsumerConfig.from_dict(three_brokers.consumer_properties | small | own), {TOPIC: 1})

    with started(make, lambda member: member.connector.shutdown()) as start:
        yield [start(level) for level in ("read_uncommitted", "read_committed")]


@pytest.mark.slow
@pytest.mark.timeout(LOAD_S + 300)
def test_replicated_load_has_no_corrupt_offsets(
    three_brokers: DevCluster, members: list[Member], producers: Producers
) -> None:
    cluster, killed = three_brokers, 0
    ends_at = time.monotonic() + LOAD_S
    while time.monotonic() + KILL_INTERVAL_S < ends_at:
        before = producers.acknowledged
        wait_for(lambda: producers.acknowledged >= before + 1000, 60, what="1000 records are acknowledged")
        time.sleep(KILL_INTERVAL_S / 2)  # load while all brokers are running
        broker = cluster.brokers[killed % 3]
        broker.kill()
        time.sleep(KILL_INTERVAL_S / 4)  # load while a broker is missing
        broker.start()
        wait_for(lambda: set(replicas_in_sync(cluster)) == {3}, 60, what="all replicas are in sync")
        killed += 1
    producers.stop()
    admin = cluster.new_admin()
    ends = admin.offsets(TOPIC, PARTITIONS)
    admin.close()
    for member in members:
        wait_until_equal(lambda member=member: member.count, sum(ends.values()), 60)  # type: ignore[misc]
        for partition in range(PARTITIONS):
            assert [m.offset for m in member.seen if m.partition == partition] == list(range(ends[partition]))
        member.leave()  # raises the error of its stream
    print(f"{producers.acknowledged} records acknowledged, {killed} brokers killed")


def replicas_in_sync(cluster: DevCluster) -> list[int]:
    """Return the number of in-sync replicas of each partition."""
    with zookeeper_client(cluster.zookeeper_connect) as zk:
        return list(in_sync(zk, TOPIC).values())
