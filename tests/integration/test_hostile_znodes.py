"""Tests of the tools and of a member with random znodes of brokers, topics and other members."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fuzz import znodes
from helpers.aliases import Cluster, Run
from helpers.producing import numbers, produce
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException

from zkconsumer import ConsumerConfig, TopicPartition, Whitelist, create_consumer
from zkconsumer.errors import ConsumerTimeoutError

#: Seconds for one tool. Each of the few filters may use 1 s of CPU time, and brokers may not exist.
MAX_TOOL_SECONDS = 60

SEEDS = [pytest.param(seed, marks=[] if seed < 2 else pytest.mark.slow) for seed in range(30)]


@pytest.fixture
def chroot(zk: KazooClient, unique: Callable[[str], str]) -> Iterator[str]:
    """Return a chroot with copies of the znodes of the brokers."""
    root = f"/{unique('chroot')}"
    for node in zk.get_children("/brokers/ids"):
        zk.create(f"{root}/brokers/ids/{node}", zk.get(f"/brokers/ids/{node}")[0], makepath=True)
    zk.ensure_path(f"{root}/brokers/topics")
    yield root
    zk.delete(root, recursive=True)


def fill(zk: KazooClient, root: str, group: str, topic: str, rng: random.Random) -> None:
    """Create random znodes of other brokers, topics and members below a chroot."""

    def create(path: str, data: bytes) -> None:
        try:
            zk.create(f"{root}{path}", data, makepath=True)
        except (KazooException, ValueError):
            pass  # ZooKeeper rejects the path

    names = [name for name in [*znodes.TOPICS, *znodes.TEXTS, topic] if name.isprintable() and name]
    for number in range(3):
        create(f"/brokers/ids/{rng.choice([str(90 + number), 'x', '01', '²'])}", znodes.broker(rng))
        create(f"/brokers/topics/{rng.choice(names[:-1])}", znodes.topic(rng))
        create(f"/consumers/{group}/ids/{group}_{rng.choice(names)}", znodes.registration(rng))
    for _ in range(5):
        partition = f"{rng.choice([topic, topic, rng.choice(names)])}/{rng.choice(['0', '1', '9', '²', '0-0', '01'])}"
        create(f"/consumers/{group}/owners/{partition}", znodes.owner(rng))
        create(f"/consumers/{group}/offsets/{partition}", znodes.number(rng))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", SEEDS)
def test_tools_report_random_znodes(
    seed: int,
    zkconsumer_cluster: Cluster,
    topic: Callable[..., str],
    group: str,
    zk: KazooClient,
    chroot: str,
    run: Run,
    tmp_path: Path,
) -> None:
    name = topic(2)
    zk.create(f"{chroot}/brokers/topics/{name}", zk.get(f"/brokers/topics/{name}")[0])
    fill(zk, chroot, group, name, random.Random(seed))
    at = f"{zkconsumer_cluster.zookeeper_connect}{chroot}"
    at_group = ("--zookeeper", at, "--group", group)
    for tool in [
        ("doctor", *at_group),
        ("doctor", *at_group, "--json"),
        ("offset-checker", *at_group, "--retry.backoff.ms", 100),
        ("consumer-groups", *at_group, "--describe"),
        ("verify-rebalance", "--zookeeper.connect", at, "--group", group),
        ("watch", *at_group, "--count", 1),
        ("export-offsets", "--zkconnect", at, "--group", group, "--output-file", tmp_path / "offsets"),
        ("consumer-groups", "--zookeeper", at, "--delete", "--group", group),
    ]:
        started = time.monotonic()
        code, out, errors = run(*tool)
        assert code in (0, 1, 3), tool
        assert all(line.isprintable() for line in (out + errors).split("\n")), tool
        assert len(out + errors) < 500_000, tool
        assert time.monotonic() - started < MAX_TOOL_SECONDS, tool


def test_remedy_for_malformed_topic_keeps_records(
    zkconsumer_cluster: Cluster, group: str, zk: KazooClient, chroot: str, run: Run
) -> None:
    zk.create(f"{chroot}/brokers/topics/orders", b"{")
    zk.create(f"{chroot}/consumers/{group}/offsets/orders/0", b"5", makepath=True)
    at = f"{zkconsumer_cluster.zookeeper_connect}{chroot}"

    _, out, _ = run("doctor", "--zookeeper", at, "--group", group)

    [place, remedy] = out[out.index("topic orders:") :].splitlines()[:2]
    assert "/brokers/topics/orders" in place
    assert "restore the partition list in this znode" in remedy
    assert "do not delete the topic" in remedy


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", SEEDS)
def test_member_keeps_partitions_beside_random_znodes(
    seed: int,
    zkconsumer_cluster: Cluster,
    config: Callable[..., ConsumerConfig],
    topic: Callable[..., str],
    group: str,
    zk: KazooClient,
    chroot: str,
) -> None:
    name = topic(2)
    zk.create(f"{chroot}/brokers/topics/{name}", zk.get(f"/brokers/topics/{name}")[0])
    at = f"{zkconsumer_cluster.zookeeper_connect}{chroot}"
    with create_consumer(config(zookeeper_connect=at, rebalance_backoff_ms=200)) as consumer:
        [stream] = consumer.create_message_streams_by_filter(Whitelist(f"{name}|orders.*|.*-.*"))
        for number in range(3):
            fill(zk, chroot, group, name, random.Random(f"{seed}-{number}"))
            produce(zkconsumer_cluster.admin, name, 0, numbers(number, number + 1))
            try:
                message = next(message for message in stream if message.topic == name)
            except ConsumerTimeoutError:
                assert TopicPartition(name, 0) not in consumer.assignment
                return  # a random registration was valid for a moment, and was assigned the partition
            assert int(message.value or b"") == number
            if TopicPartition(name, 1) not in consumer.assignment:
                return
        assert {TopicPartition(name, 0), TopicPartition(name, 1)} <= consumer.assignment.keys()
