"""``python -m bench.rebalance``: how long a group is without some of its records when a member joins or dies.

Ours against the JVM's console consumer 1.1.1, each a group of processes of its own with the same settings, in turn.
What is timed ends when each partition has delivered a record through the member that the range assignor gives it. A
join begins with the registration of the newcomer, a death with the end of its session, when its registration goes.
Writes ``bench/results/rebalance.rst``.
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

from bench import report
from tests.interop.jvm import WIDTH, ChildConsumer, Maker, jvm_consumer, our_consumer
from zkconsumer import ConsumerConfig, KafkaStream, TopicPartition, create_consumer
from zkconsumer.broker.cluster import parse_bootstrap
from zkconsumer.devcluster import DevCluster
from zkconsumer.devcluster.admin import Admin
from zkconsumer.devcluster.load import batch, numbered_batch
from zkconsumer.errors import ClosedError
from zkconsumer.rebalance.assignors import assign_range

SESSION_MS = 4000
TOPIC = "rebalance"
#: The first entry of an index can cost a broker 50 ms of page faults, during which it takes no record.
NO_INDEX = {"index.interval.bytes": 1 << 30}
KINDS: dict[str, Maker] = {"zkconsumer": our_consumer, "JVM 1.1.1": jvm_consumer}


class Load:
    """Writes a number into each partition, over and over: 5,000 a second, as far as 200 times a second allow."""

    def __init__(self, cluster: DevCluster, topic: str, partitions: int) -> None:
        self.written = 0
        self._topic, self._partitions = topic, partitions
        self._admin = cluster.new_admin()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self._thread.start()

    def partition_of(self, number: int) -> int:
        """Return where a number was written."""
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
        """Write no more."""
        self._stop.set()
        self._thread.join()


@dataclass
class Group:
    """Members of one kind that read one topic."""

    cluster: DevCluster
    zk: KazooClient
    kind: str
    partitions: int
    folder: Path
    name: str = field(default_factory=lambda: f"g-{uuid.uuid4().hex[:8]}")
    members: list[ChildConsumer] = field(default_factory=list)
    started: int = 0

    def start(self, topic: str) -> ChildConsumer:
        """Start one more member, and return when it is registered."""
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
        """Return where a member is registered."""
        return f"/consumers/{self.name}/ids/{self.name}_{member.name.rpartition('-')[2]}"

    def wait_until_all_deliver(self, load: Load) -> float:
        """Return the seconds until each partition has delivered something through its owner from now on."""
        by_thread = {f"{self.name}_{member.name.rpartition('-')[2]}-0": member for member in self.members}
        assignment = assign_range({TOPIC: list(range(self.partitions))}, {TOPIC: list(by_thread)})
        owners = {partition.partition: by_thread[thread] for partition, thread in assignment.items()}
        for member in self.members:
            member.new_numbers()
        begun = time.monotonic()

        def all_have() -> bool:
            for member in self.members:
                for partition in {load.partition_of(number) for number in member.new_numbers()}:
                    if owners.get(partition) is member:
                        del owners[partition]
            return not owners

        wait_for(all_have, f"all partitions of {self.kind} deliver", 180)
        return time.monotonic() - begun


def wait_for(condition: Callable[[], object], what: str, timeout: float = 120) -> None:
    """Wait until a condition is true."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {timeout:g} s: {what}")
        time.sleep(0.005)


def measure(cluster: DevCluster, zk: KazooClient, kind: str, partitions: int, members: int, rounds: int) -> list[float]:
    """Return the medians of a join and of a death, in seconds."""
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
                gone = group.path(newcomer)
                wait_for(lambda path=gone: not zk.exists(path), "its session has ended")
                group.members.remove(newcomer)
                deaths.append(group.wait_until_all_deliver(load))
        finally:
            load.stop()
            for member in group.members:
                member.kill()
    return [median(joins), median(deaths)]


@dataclass
class Gaps:
    """Gaps between records of a partition that stays, in milliseconds.

    Attributes:
        p99: of all while nothing happens.
        quiet: the largest one of each second in which nothing happens.
        loud: the largest one of each second in which a member joins or leaves.
    """

    p99: float
    quiet: list[float]
    loud: list[float]

    def __str__(self) -> str:
        """What the table's footnote says."""
        return (
            "Gaps between the records of a partition that stays where it is, at about 1,000 records/s: "
            f"{self.p99:.0f} ms at the 99th percentile. The largest one of a second is {median(self.quiet):.0f} ms "
            f"({max(self.quiet):.0f} ms at worst) while nothing happens, and {median(self.loud):.0f} ms "
            f"({max(self.loud):.0f} ms at worst) while a member joins or leaves; medians of {len(self.quiet)} and "
            f"{len(self.loud)} seconds."
        )


def gaps(cluster: DevCluster, rounds: int = 10) -> Gaps:
    """Look at one of two partitions, each of about 1,000 records/s, while another member joins and leaves.

    Who writes and who joins are processes that run already, so that no interpreter is being started on the cores that
    are measured.
    """
    topic = cluster.create_topic(f"{TOPIC}-gaps", 2, config=NO_INDEX)
    properties = {
        "zookeeper.connect": cluster.zookeeper_connect,
        "group.id": f"{TOPIC}-gaps",
        "auto.offset.reset": "largest",
    }
    context = multiprocessing.get_context("spawn")
    stop, (orders, taken) = context.Event(), context.Pipe()
    others = [
        context.Process(target=_write, args=(cluster.bootstrap_servers, topic, stop), name="load"),
        context.Process(target=_come_and_go, args=(properties, topic, taken), name="neighbour"),
    ]
    for other in others:
        other.start()
    seen: list[float] = []
    with create_consumer(ConsumerConfig.from_dict({**properties, "consumer.id": "a"})) as stays:
        [stream] = stays.create_message_streams({topic: 1})[topic]
        reader = threading.Thread(target=_read, args=(stream, seen), name="reader")
        reader.start()
        orders.recv()  # it is there
        wait_for(lambda: seen, "something is written")
        time.sleep(2)  # what is done for the first time takes longer
        quiet, loud = [], []
        for number in range(rounds):
            begun = len(seen)
            time.sleep(1)
            quiet.append(_between(seen[begun:]))
            for order, owned in ((f"b{number}", 1), ("leave", 2)):
                begun = len(seen)
                orders.send(order)
                wait_for(lambda owned=owned: len(stays.assignment) == owned, f"{order}: {owned} partitions are owned")
                time.sleep(1)
                loud.append(_between(seen[begun:]))
    orders.send("")
    stop.set()
    for thread in (reader, *others):
        thread.join()
    between = sorted(itertools.chain.from_iterable(quiet))
    return Gaps(between[int(0.99 * len(between))], [max(gaps) for gaps in quiet], [max(gaps) for gaps in loud])


def _between(times: list[float]) -> list[float]:
    return [(b - a) * 1000 for a, b in itertools.pairwise(times)]


def _write(bootstrap: str, topic: str, stop: Any) -> None:
    number = 0
    with Admin(parse_bootstrap(bootstrap)) as admin:
        while not stop.wait(0.01):
            records = numbered_batch(number, 10, size=WIDTH)
            admin.produce_all({TopicPartition(topic, partition): records for partition in range(2)})
            number += 10


def _come_and_go(properties: dict[str, str], topic: str, orders: Any) -> None:
    """Join and leave when told so."""
    orders.send("ready")
    while name := orders.recv():
        with create_consumer(ConsumerConfig.from_dict({**properties, "consumer.id": name})) as consumer:
            [stream] = consumer.create_message_streams({topic: 1})[topic]
            threading.Thread(target=_read, args=(stream, []), name="reader", daemon=True).start()
            orders.recv()


def _read(stream: KafkaStream, seen: list[float]) -> None:
    try:
        seen.extend(time.monotonic() for message in stream if message.partition == 0)
    except ClosedError:
        pass


def main() -> None:
    """Measure, print, and write the table."""
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
                    found = {}
                    for kind in KINDS:
                        found[kind] = measure(cluster, zk, kind, partitions, members, options.rounds)
                        print(f"{members} members, {partitions} partitions, {kind}: {found[kind]}", file=sys.stderr)
                    ours, theirs = (found[kind] for kind in KINDS)
                    for what, index in (("join", 0), ("death", 1)):
                        ratio = f"{ours[index] / theirs[index]:.2f}" if theirs[index] else ""
                        cells = [f"{ours[index]:.2f}", f"{theirs[index]:.2f}", ratio]
                        rows.append((what, str(members), str(partitions), *cells))
            stays = gaps(cluster)
        finally:
            zk.stop()
            zk.close()
    table = report.grid(("event", "members", "partitions", "zkconsumer, s", "JVM 1.1.1, s", "ratio"), rows)
    text = f"{table}\n\n{stays}\n"
    print(text)
    (Path(__file__).parent / "results" / "rebalance.rst").write_text(text)


if __name__ == "__main__":
    main()
