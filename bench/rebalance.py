"""``python -m bench.rebalance``: time without records after a member joins or is killed.

Compares zkconsumer with the console consumer of Kafka 1.1.1. Each group consists of processes of one kind with the same
settings, and the groups run one after the other. A measurement starts when the new member is registered, or when the
session of the killed member expires. It ends when each partition has delivered a record to the member that the range
assignor selects for it. The results are written to ``bench/results/rebalance.rst``.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from kazoo.client import KazooClient

from bench.child_processes import stopping_children
from bench.grid import grid
from tests.interop.jvm import WIDTH, ChildConsumer, Maker, jvm_consumer, our_consumer
from zkconsumer import ConsumerConfig, KafkaStream, TopicPartition, ZookeeperConsumerConnector, create_consumer
from zkconsumer.devcluster import DevCluster
from zkconsumer.devcluster.admin import Admin
from zkconsumer.devcluster.load import batch, numbered_batch
from zkconsumer.errors import ClosedError
from zkconsumer.metadata.bootstrap import parse_bootstrap
from zkconsumer.rebalance.assignors import assign_range

SESSION_MS = 4000
TOPIC = "rebalance"
#: Topic settings that prevent index entries, because a page fault on the first write to an index can block a broker
#: for 50 ms.
NO_INDEX = {"index.interval.bytes": 1 << 30}
KINDS: dict[str, Maker] = {"zkconsumer": our_consumer, "JVM 1.1.1": jvm_consumer}


class Load:
    """Produces consecutive numbers, round-robin over the partitions: 5,000/s, but at most 200/s per partition."""

    def __init__(self, cluster: DevCluster, topic: str, partitions: int) -> None:
        self.written = 0
        self._topic, self._partitions = topic, partitions
        self._admin = cluster.new_admin()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self._thread.start()

    def partition_of(self, number: int) -> int:
        """Return the partition to which a number is produced."""
        return number % self._partitions

    def _run(self) -> None:
        while not self._stop.wait(max(0.005, self._partitions / 5000)):
            numbers = range(self.written, self.written + self._partitions)
            partitions = (TopicPartition(self._topic, self.partition_of(number)) for number in numbers)
            batches = (batch([b"%0*d" % (WIDTH, number)]) for number in numbers)
            self._admin.produce_all(dict(zip(partitions, batches, strict=True)))
            self.written = numbers.stop
        self._admin.close()

    def stop(self) -> None:
        """Stop producing."""
        self._stop.set()
        self._thread.join()


@dataclass
class Group:
    """A consumer group whose members are of one kind, and read one topic."""

    cluster: DevCluster
    zk: KazooClient
    kind: str
    partitions: int
    folder: Path
    name: str = field(default_factory=lambda: f"g-{uuid.uuid4().hex[:8]}")
    members: list[ChildConsumer] = field(default_factory=list)
    started: int = 0

    def start(self, topic: str) -> ChildConsumer:
        """Start another member, and wait until it is registered."""
        number = self.started
        self.started += 1
        settings = {
            "zookeeper.connect": self.cluster.zookeeper_connect,
            "group.id": self.name,
            "consumer.id": f"c{number}",
            "auto.offset.reset": "largest",
            "zookeeper.session.timeout.ms": SESSION_MS,
            "zookeeper.connection.timeout.ms": 60_000,
            "rebalance.max.retries": 50,
        }
        member = KINDS[self.kind](f"{self.name}-c{number}", self.folder, settings, topic)
        self.members.append(member)
        member.start()
        wait_for(lambda: self.zk.exists(self.path(member)), f"{self.kind} {number} is registered")
        return member

    def path(self, member: ChildConsumer) -> str:
        """Return the path of a member's registration znode."""
        return f"/consumers/{self.name}/ids/{self.name}_{member.name.rpartition('-')[2]}"

    def wait_until_all_deliver(self, load: Load) -> float:
        """Wait until each partition has delivered a new record to its owner; return the elapsed seconds."""
        by_thread = {f"{self.name}_{member.name.rpartition('-')[2]}-0": member for member in self.members}
        assignment = assign_range({TOPIC: list(range(self.partitions))}, {TOPIC: list(by_thread)})
        owners = {partition.partition: by_thread[thread] for partition, thread in assignment.items()}
        for member in self.members:
            member.new_numbers()
        started = time.monotonic()

        def all_have_delivered() -> bool:
            for member in self.members:
                for partition in {load.partition_of(number) for number in member.new_numbers()}:
                    if owners.get(partition) is member:
                        del owners[partition]
            return not owners

        wait_for(all_have_delivered, f"all partitions of {self.kind} deliver", 180)
        return time.monotonic() - started


def wait_for(condition: Callable[[], object], what: str, timeout: float = 120) -> None:
    """Wait until ``condition()`` is true."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"timed out after {timeout:g} s waiting until {what}")
        time.sleep(0.005)


def measure(cluster: DevCluster, zk: KazooClient, kind: str, partitions: int, members: int, rounds: int) -> list[float]:
    """Return the median times without records after a join and after a kill, in seconds."""
    joins, deaths = [], []
    topic = cluster.create_topic(f"{TOPIC}-{uuid.uuid4().hex[:8]}", partitions, config=NO_INDEX)
    load = Load(cluster, topic, partitions)
    with tempfile.TemporaryDirectory() as folder:
        group = Group(cluster, zk, kind, partitions, Path(folder))
        try:
            for _ in range(members - 1):
                group.start(topic)
            group.wait_until_all_deliver(load)
            for _ in range(rounds):
                newcomer = group.start(topic)
                joins.append(group.wait_until_all_deliver(load))
                group.wait_until_all_deliver(load)
                newcomer.kill()
                path = group.path(newcomer)
                wait_for(lambda path=path: not zk.exists(path), "the session of the killed member has expired")
                group.members.remove(newcomer)
                deaths.append(group.wait_until_all_deliver(load))
        finally:
            load.stop()
            for member in group.members:
                member.kill()
    return [median(joins), median(deaths)]


@dataclass
class Gaps:
    """Gaps between the records of a partition that stays assigned to its member, in milliseconds.

    Attributes:
        p99: 99th percentile without a rebalance.
        steady: largest gap in each second without a rebalance.
        rebalancing: largest gap during each join or leave, including the following second.
    """

    p99: float
    steady: list[float]
    rebalancing: list[float]

    def __str__(self) -> str:
        """Return the note that follows the results table."""
        return (
            "Gaps between the records of a partition that stays assigned, at about 1,000 records/s: "
            f"{self.p99:.0f} ms at the 99th percentile. The largest gap of a second is {median(self.steady):.0f} ms "
            f"(maximum {max(self.steady):.0f} ms) without a rebalance, and {median(self.rebalancing):.0f} ms "
            f"(maximum {max(self.rebalancing):.0f} ms) while a member joins or leaves; medians of {len(self.steady)} "
            f"and {len(self.rebalancing)} seconds."
        )


def gaps(cluster: DevCluster, rounds: int = 10) -> Gaps:
    """Measure record gaps in one of two partitions, at about 1,000 records/s, while another member joins and leaves.

    The producer and the other member run in processes that are started beforehand, because interpreter startup would
    compete with the measured member for CPU time.
    """
    topic = cluster.create_topic(f"{TOPIC}-gaps", 2, config=NO_INDEX)
    properties = {
        "zookeeper.connect": cluster.zookeeper_connect,
        "group.id": f"{TOPIC}-gaps",
        "auto.offset.reset": "largest",
    }
    context = multiprocessing.get_context("spawn")
    stop, (commands, received) = context.Event(), context.Pipe()
    processes = [
        context.Process(target=_write, args=(cluster.bootstrap_servers, topic, stop), name="load"),
        context.Process(target=_join_and_leave, args=(properties, topic, received), name="other-member"),
    ]
    for process in processes:
        process.start()
    times: list[float] = []
    with create_consumer(ConsumerConfig.from_dict({**properties, "consumer.id": "a"})) as consumer:
        [stream] = consumer.create_message_streams({topic: 1})[topic]
        reader = threading.Thread(target=_read, args=(stream, times), name="reader")
        reader.start()
        commands.recv()  # the other process is ready
        wait_for(lambda: times, "the first record arrives")
        time.sleep(2)  # warm up
        steady, rebalancing = _measure_gaps(consumer, commands, times, rounds)
    commands.send("")
    stop.set()
    for thread in (reader, *processes):
        thread.join()
    ordered = sorted(itertools.chain.from_iterable(steady))
    return Gaps(ordered[int(0.99 * len(ordered))], [max(gaps) for gaps in steady], [max(gaps) for gaps in rebalancing])


def _measure_gaps(
    consumer: ZookeeperConsumerConnector, commands: Any, times: list[float], rounds: int
) -> tuple[list[list[float]], list[list[float]]]:
    """Return the times between consecutive records, in milliseconds.

    The first result has one list per one-second interval without a rebalance. The other has one list per join or leave,
    which covers the rebalance and the following second.
    """
    steady, rebalancing = [], []
    for number in range(rounds):
        first = len(times)
        time.sleep(1)
        steady.append(_gaps_between(times[first:]))
        for command, owned in ((f"b{number}", 1), ("leave", 2)):
            first = len(times)
            commands.send(command)
            wait_for(lambda owned=owned: len(consumer.assignment) == owned, f"{command}: {owned} partitions are owned")
            time.sleep(1)
            rebalancing.append(_gaps_between(times[first:]))
    return steady, rebalancing


def _gaps_between(times: list[float]) -> list[float]:
    return [(b - a) * 1000 for a, b in itertools.pairwise(times)]


def _write(bootstrap: str, topic: str, stop: Any) -> None:
    number = 0
    with Admin(parse_bootstrap(bootstrap)) as admin:
        while not stop.wait(0.01):
            records = numbered_batch(number, 10, size=WIDTH)
            admin.produce_all({TopicPartition(topic, partition): records for partition in range(2)})
            number += 10


def _join_and_leave(properties: dict[str, str], topic: str, commands: Any) -> None:
    """Join the group with each ``consumer.id`` received, and leave on the next command; exit on an empty id."""
    commands.send("ready")
    while name := commands.recv():
        with create_consumer(ConsumerConfig.from_dict({**properties, "consumer.id": name})) as consumer:
            [stream] = consumer.create_message_streams({topic: 1})[topic]
            threading.Thread(target=_read, args=(stream, []), name="reader", daemon=True).start()
            commands.recv()


def _read(stream: KafkaStream, times: list[float]) -> None:
    try:
        times.extend(time.monotonic() for message in stream if message.partition == 0)
    except ClosedError:
        pass


def main() -> None:
    """Run the benchmark, and print and write the results."""
    parser = argparse.ArgumentParser(prog="python -m bench.rebalance", description=__doc__)
    parser.add_argument("--partitions", type=int, nargs="+", default=[8, 64, 512])
    parser.add_argument("--members", type=int, nargs="+", default=[2, 8, 32])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    rows: list[tuple[str, ...]] = []
    with DevCluster(brokers=2) as cluster:
        zk = KazooClient(cluster.zookeeper_connect)
        zk.start(timeout=10)
        try:
            for members in options.members:
                for partitions in options.partitions:
                    results = {}
                    for kind in KINDS:
                        results[kind] = measure(cluster, zk, kind, partitions, members, options.rounds)
                        print(f"{members} members, {partitions} partitions, {kind}: {results[kind]}", file=sys.stderr)
                    times, peer_times = (results[kind] for kind in KINDS)
                    for event, index in (("join", 0), ("kill", 1)):
                        ratio = f"{times[index] / peer_times[index]:.2f}" if peer_times[index] else ""
                        cells = [f"{times[index]:.2f}", f"{peer_times[index]:.2f}", ratio]
                        rows.append((event, str(members), str(partitions), *cells))
            note = gaps(cluster)
        finally:
            zk.stop()
            zk.close()
    table = grid(("event", "members", "partitions", "zkconsumer, s", "JVM 1.1.1, s", "ratio"), rows)
    text = f"{table}\n\n{note}\n"
    print(text)
    (Path(__file__).parent / "results" / "rebalance.rst").write_text(text)


if __name__ == "__main__":
    with stopping_children():
        main()
