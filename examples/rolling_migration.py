"""A JVM group is replaced member by member, its offsets move to Kafka, and all of it goes back again, under load.

Two console consumers of Kafka 1.1.1 share a topic. Each is replaced by a member of ours; these keep the offsets in
ZooKeeper, then in both places, then in Kafka alone, and back; at last the JVMs return. A load writes numbers all the
time. In the end the lost and the doubled ones are counted; a lost one fails it.

Run it with ``python examples/rolling_migration.py``; it takes about a minute.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from zkconsumer import ConsumerConfig, TopicPartition, create_consumer
from zkconsumer.devcluster import DevCluster
from zkconsumer.devcluster.cluster import raise_on_sigterm
from zkconsumer.devcluster.load import SteadyLoad
from zkconsumer.devcluster.process import ServerProcess
from zkconsumer.devcluster.servers import java_command, kafka_jars, write_properties
from zkconsumer.errors import ClosedError

TOPIC, GROUP, PARTITIONS = "orders", "migrating", 8
PER_SECOND, WIDTH = 2000, 16
PHASE = 4.0

STARTED = time.monotonic()


def say(text: str) -> None:
    """Print a line with the time since the start."""
    print(f"[{time.monotonic() - STARTED:5.1f} s] {text}", flush=True)


class Jvm:
    """A console consumer of Kafka 1.1.1, whose output goes to a file."""

    def __init__(self, cluster: DevCluster, name: str) -> None:
        self.name = name
        self._output = cluster.folder / f"{name}.values"
        settings = write_properties(cluster.folder / f"{name}.properties", properties(cluster, name))
        arguments = ["--zookeeper", cluster.zookeeper_connect, "--topic", TOPIC, "--consumer.config", str(settings)]
        command = java_command(
            "128m", kafka_jars("1.1.1"), "kafka.tools.ConsoleConsumer", *arguments, log=cluster.folder / f"{name}.log"
        )
        into_file = ["/bin/sh", "-c", 'out=$1; shift; exec "$@" >"$out"', "sh", str(self._output)]
        self._process = ServerProcess(name, [*into_file, *command], cluster.folder, lambda: True)
        self._process.start()

    def numbers(self) -> list[int]:
        """Return what it has read."""
        return [int(line) for line in self._output.read_bytes().split() if len(line) == WIDTH]

    def stop(self) -> None:
        """Have it leave in peace."""
        self._process.stop()


class Ours:
    """A consumer of this library, read by a thread."""

    def __init__(self, cluster: DevCluster, name: str) -> None:
        self.name = name
        self.consumer = create_consumer(ConsumerConfig.from_dict(properties(cluster, name)))
        [self._stream] = self.consumer.create_message_streams({TOPIC: 1})[TOPIC]
        self._numbers: list[int] = []
        self._thread = threading.Thread(target=self._read, name=f"reader-{name}")
        self._thread.start()

    def _read(self) -> None:
        try:
            for message in self._stream:
                self._numbers.append(int(message.value))
        except ClosedError:
            pass

    def numbers(self) -> list[int]:
        """Return what it has read."""
        return list(self._numbers)

    def stop(self) -> None:
        """Have it leave in peace."""
        self.consumer.shutdown()
        self._thread.join()


def properties(cluster: DevCluster, name: str) -> dict[str, object]:
    """Return the one properties file that all members use."""
    return {
        "zookeeper.connect": cluster.zookeeper_connect,
        "group.id": GROUP,
        "consumer.id": name,
        "auto.offset.reset": "largest",
        "auto.commit.interval.ms": 1000,
        "rebalance.max.retries": 10,
    }


def wait_for(condition: Callable[[], object], what: str, timeout: float = 60) -> None:
    """Wait until a condition is true."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {timeout:g} s: {what}")
        time.sleep(0.05)


def shares(zk: KazooClient) -> Counter[str]:
    """Return how many partitions each member owns."""
    parent = f"/consumers/{GROUP}/owners/{TOPIC}"
    if not zk.exists(parent):
        return Counter()
    try:
        owners = [zk.get(f"{parent}/{number}")[0].decode() for number in zk.get_children(parent)]
    except NoNodeError:  # it changes hands just now
        return Counter()
    return Counter(owner.rpartition("-")[0].removeprefix(f"{GROUP}_") for owner in owners)


def migrate(cluster: DevCluster, zk: KazooClient, load: SteadyLoad, members: list[Jvm | Ours]) -> None:
    """Go there and back again."""

    def replace(old: Jvm | Ours | None, new: Callable[[], Jvm | Ours], alive: int) -> Jvm | Ours:
        member = new()
        members.append(member)
        wait_for(lambda: member.name in shares(zk), f"{member.name} owns something")
        if old is not None:
            old.stop()
        wait_for(lambda: len(shares(zk)) == alive and shares(zk).total() == PARTITIONS, "all is owned")
        say(f"{member.name} has {f'taken the place of {old.name}' if old else 'joined'}: {dict(shares(zk))}")
        time.sleep(PHASE)
        return member

    for number in range(PARTITIONS):  # where a JVM would have left off
        zk.create(f"/consumers/{GROUP}/offsets/{TOPIC}/{number}", b"0", makepath=True)
    first = replace(None, lambda: Jvm(cluster, "jvm-1"), 1)
    second = replace(None, lambda: Jvm(cluster, "jvm-2"), 2)
    ours_1 = replace(first, lambda: Ours(cluster, "ours-1"), 2)
    ours_2 = replace(second, lambda: Ours(cluster, "ours-2"), 2)
    for storage, dual in (("kafka", True), ("kafka", False), ("kafka", True), ("zookeeper", False)):
        for member in (ours_1, ours_2):
            assert isinstance(member, Ours)
            member.consumer.switch_offsets_storage(storage, dual_commit=dual)
        say(f"offsets are kept in {'both' if dual else storage}")
        time.sleep(PHASE)
    back_1 = replace(ours_1, lambda: Jvm(cluster, "jvm-3"), 2)
    back_2 = replace(ours_2, lambda: Jvm(cluster, "jvm-4"), 2)
    load.stop()
    wait_for(lambda: not missing(load, members), "all is read")
    back_1.stop()
    back_2.stop()


def missing(load: SteadyLoad, members: list[Jvm | Ours]) -> set[int]:
    """Return the numbers that nobody has read."""
    return set(range(load.written)) - {number for member in members for number in member.numbers()}


def main() -> int:
    """Run it; returns the exit code."""
    raise_on_sigterm()
    members: list[Jvm | Ours] = []
    with DevCluster(brokers=2) as cluster:
        cluster.create_topic(TOPIC, PARTITIONS)
        partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        load = SteadyLoad(cluster.new_admin(), partitions, per_second=PER_SECOND, width=WIDTH)
        zk = KazooClient(cluster.zookeeper_connect)
        zk.start(timeout=10)
        try:
            migrate(cluster, zk, load, members)
        finally:
            for member in members:
                member.stop()
            zk.stop()
            zk.close()
        read = Counter(number for member in members for number in member.numbers())
        lost, doubled = len(missing(load, members)), read.total() - len(read)
    say(f"{load.written:,} numbers written, {lost:,} lost, {doubled:,} read again")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
