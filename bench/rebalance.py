"""``python -m bench.rebalance``: how long a group is without some of its records when a member joins or dies.

Ours against the JVM's console consumer 1.1.1, each a group of processes of its own with the same settings, in turn.
What is timed ends when each partition has delivered a record through the member that the range assignor gives it. A
join begins with the registration of the newcomer, a death with the end of its session, when its registration goes.
Writes ``bench/results/rebalance.rst``.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from kazoo.client import KazooClient

from bench import report
from tests.interop.jvm import WIDTH, ChildConsumer, Maker, jvm_consumer, our_consumer
from zkconsumer import ConsumerConfig, KafkaStream, TopicPartition, create_consumer
from zkconsumer.devcluster import DevCluster
from zkconsumer.devcluster.load import batch, numbered_batch
from zkconsumer.errors import ClosedError
from zkconsumer.rebalance.assignors import assign_range

SESSION_MS = 4000
TOPIC = "rebalance"
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
    # An index's first entry costs a broker up to 50 ms of page faults: all writing would stop for half a minute.
    topic = cluster.create_topic(
        f"{TOPIC}-{uuid.uuid4().hex[:8]}", partitions, config={"index.interval.bytes": 1 << 30}
    )
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
    return [statistics.median(joins), statistics.median(deaths)]


def gaps(cluster: DevCluster, seconds: float = 10.0) -> tuple[float, float, float]:
    """Return gaps between records of a partition, in seconds: p99 and the largest without a join, the largest with one.

    About 1,000 records/s in each of two partitions; the one that stays is looked at.
    """
    topic = cluster.create_topic(f"{TOPIC}-gaps", 2)
    stop = threading.Event()

    def write() -> None:
        admin, number = cluster.new_admin(), 0
        while not stop.wait(0.01):
            for partition in range(2):
                admin.produce(TopicPartition(topic, partition), numbered_batch(number, 10, size=WIDTH))
            number += 10
        admin.close()

    writer = threading.Thread(target=write, name="load")
    properties = {
        "zookeeper.connect": cluster.zookeeper_connect,
        "group.id": f"{TOPIC}-gaps",
        "auto.offset.reset": "largest",
    }
    seen: list[float] = []

    def read(stream: KafkaStream) -> None:
        try:
            seen.extend(time.monotonic() for message in stream if message.partition == 0)
        except ClosedError:
            pass

    writer.start()
    with create_consumer(ConsumerConfig.from_dict({**properties, "consumer.id": "a"})) as stays:
        [stream] = stays.create_message_streams({topic: 1})[topic]
        reader = threading.Thread(target=read, args=(stream,), name="reader")
        reader.start()
        time.sleep(seconds)
        quiet = list(seen)
        with tempfile.TemporaryDirectory() as folder:
            for number in range(5):  # in processes of their own, as they would be
                name = f"b{number}"
                comes = our_consumer(name, Path(folder), {**properties, "consumer.id": name}, topic)
                comes.start()
                wait_for(lambda: len(stays.assignment) == 1, "it has joined")
                time.sleep(1)
                comes.stop()
                wait_for(lambda: len(stays.assignment) == 2, "it has left")
        loud = seen[len(quiet) :]
        stop.set()
        writer.join()
    reader.join()
    between = sorted(b - a for a, b in itertools.pairwise(quiet))
    return between[int(0.99 * len(between))], between[-1], max(b - a for a, b in itertools.pairwise(loud))


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
            p99, quiet, loud = gaps(cluster)
        finally:
            zk.stop()
            zk.close()
    table = report.grid(("event", "members", "partitions", "zkconsumer, s", "JVM 1.1.1, s", "ratio"), rows)
    text = (
        f"{table}\n\nGaps between the records of a partition that stays, at about 1,000 records/s: "
        f"{p99 * 1000:.0f} ms at the 99th percentile and {quiet * 1000:.0f} ms at most without a join, "
        f"{loud * 1000:.0f} ms at most while five members join and leave.\n"
    )
    print(text)
    (Path(__file__).parent / "results" / "rebalance.rst").write_text(text)


if __name__ == "__main__":
    main()
