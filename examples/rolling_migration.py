"""Migrate a consumer group from JVM members to zkconsumer and back, one member at a time, under load.

Two console consumers of Kafka 1.1.1 share a topic. Each of them is replaced by a zkconsumer member. The new members
commit their offsets to ZooKeeper, then to ZooKeeper and Kafka, then to Kafka, and then back in reverse order. Finally,
each of them is replaced by a console consumer. A steady load continues throughout. At the end, the program
counts lost and duplicate numbers. Its exit code is 1 if a number was lost.

Run it with ``python examples/rolling_migration.py``. It takes about a minute.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import cast

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
RECORDS_PER_SECOND, VALUE_SIZE = 2000, 16
PHASE_S = 4.0

STORAGES = {"kafka": "Kafka", "zookeeper": "ZooKeeper"}

STARTED = time.monotonic()


def log(text: str) -> None:
    """Print a line with the time elapsed since the program started."""
    print(f"[{time.monotonic() - STARTED:5.1f} s] {text}", flush=True)


class JvmConsumer:
    """A console consumer of Kafka 1.1.1 that writes its messages to a file."""

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
        """Return the numbers that this member read."""
        return [int(line) for line in self._output.read_bytes().split() if len(line) == VALUE_SIZE]

    def stop(self) -> None:
        """Stop the process, so that it leaves the group."""
        self._process.stop()


class PythonConsumer:
    """A zkconsumer member, with a thread that reads its stream."""

    def __init__(self, cluster: DevCluster, name: str) -> None:
        self.name = name
        self.consumer = create_consumer(ConsumerConfig.from_dict(properties(cluster, name)))
        self._stream = self.consumer.stream(TOPIC, value_decoder=int)
        self._numbers: list[int] = []
        self._thread = threading.Thread(target=self._read, name=f"reader-{name}")
        self._thread.start()

    def _read(self) -> None:
        try:
            for message in self._stream:
                if message.value is not None:
                    self._numbers.append(message.value)
        except ClosedError:
            pass

    def numbers(self) -> list[int]:
        """Return the numbers that this member read."""
        return list(self._numbers)

    def stop(self) -> None:
        """Leave the group, and stop the thread."""
        self.consumer.shutdown()
        self._thread.join()


def properties(cluster: DevCluster, name: str) -> dict[str, object]:
    """Return the properties of a member. JVM and Python members differ only in the consumer id."""
    return {
        "zookeeper.connect": cluster.zookeeper_connect,
        "group.id": GROUP,
        "consumer.id": name,
        "auto.offset.reset": "largest",
        "auto.commit.interval.ms": 1000,
        "rebalance.max.retries": 10,
    }


def wait_for(condition: Callable[[], object], what: str, timeout: float = 60) -> None:
    """Wait until ``condition()`` is true."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"timed out after {timeout:g} s waiting until {what}")
        time.sleep(0.05)


def partitions_by_member(zk: KazooClient) -> Counter[str]:
    """Return the number of partitions that each member owns."""
    parent = f"/consumers/{GROUP}/owners/{TOPIC}"
    if not zk.exists(parent):
        return Counter()
    try:
        numbers = cast(list[str], zk.get_children(parent))
        owners = [cast(tuple[bytes, object], zk.get(f"{parent}/{number}"))[0].decode() for number in numbers]
    except NoNodeError:  # a partition was released in the meantime
        return Counter()
    return Counter(owner.rpartition("-")[0].removeprefix(f"{GROUP}_") for owner in owners)


def all_owned(zk: KazooClient, members: int) -> bool:
    """Return whether all partitions are owned, by exactly ``members`` members."""
    owned = partitions_by_member(zk)
    return len(owned) == members and owned.total() == PARTITIONS


def migrate(
    cluster: DevCluster, zk: KazooClient, load: SteadyLoad, members: list[JvmConsumer | PythonConsumer]
) -> None:
    """Replace the JVM consumers, move the offsets to Kafka and back, and replace the Python consumers."""

    def replace(
        old: JvmConsumer | PythonConsumer | None, new: Callable[[], JvmConsumer | PythonConsumer], members_alive: int
    ) -> JvmConsumer | PythonConsumer:
        member = new()
        members.append(member)
        wait_for(lambda: member.name in partitions_by_member(zk), f"{member.name} owns a partition")
        if old is not None:
            old.stop()
        wait_for(lambda: all_owned(zk, members_alive), f"{members_alive} members own all partitions")
        log(f"{member.name} {f'replaced {old.name}' if old else 'joined'}: {dict(partitions_by_member(zk))}")
        time.sleep(PHASE_S)
        return member

    for number in range(PARTITIONS):  # committed offsets from which the JVM consumers start
        zk.create(f"/consumers/{GROUP}/offsets/{TOPIC}/{number}", b"0", makepath=True)
    jvm_1 = replace(None, lambda: JvmConsumer(cluster, "jvm-1"), 1)
    jvm_2 = replace(None, lambda: JvmConsumer(cluster, "jvm-2"), 2)
    python_1 = replace(jvm_1, lambda: PythonConsumer(cluster, "python-1"), 2)
    python_2 = replace(jvm_2, lambda: PythonConsumer(cluster, "python-2"), 2)
    for storage, dual in (("kafka", True), ("kafka", False), ("kafka", True), ("zookeeper", False)):
        for member in (python_1, python_2):
            assert isinstance(member, PythonConsumer)
            member.consumer.switch_offsets_storage(storage, dual_commit=dual)
        log(f"offsets are stored in {'ZooKeeper and Kafka' if dual else STORAGES[storage]}")
        time.sleep(PHASE_S)
    jvm_3 = replace(python_1, lambda: JvmConsumer(cluster, "jvm-3"), 2)
    jvm_4 = replace(python_2, lambda: JvmConsumer(cluster, "jvm-4"), 2)
    load.stop()
    wait_for(lambda: not missing(load, members), "all numbers are read")
    jvm_3.stop()
    jvm_4.stop()


def missing(load: SteadyLoad, members: list[JvmConsumer | PythonConsumer]) -> set[int]:
    """Return the numbers that no member read."""
    return set(range(load.written)) - {number for member in members for number in member.numbers()}


def main() -> int:
    """Run the migration, and return the exit code."""
    raise_on_sigterm()
    members: list[JvmConsumer | PythonConsumer] = []
    with DevCluster(brokers=2) as cluster:
        cluster.create_topic(TOPIC, PARTITIONS)
        partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        load = SteadyLoad(cluster.new_admin(), partitions, per_second=RECORDS_PER_SECOND, width=VALUE_SIZE)
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
        lost, duplicates = len(missing(load, members)), read.total() - len(read)
    log(f"{load.written:,} numbers produced, {lost:,} lost, {duplicates:,} duplicates")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
