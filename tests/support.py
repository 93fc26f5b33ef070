"""Helpers of several test modules: wait with deadlines, read streams, check that threads end."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, TypeVar, cast

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from zkconsumer import (
    ConsumerConfig,
    KafkaStream,
    MessageAndMetadata,
    TopicPartition,
    ZookeeperConsumerConnector,
    create_consumer,
)
from zkconsumer.broker.connect import Connecting
from zkconsumer.broker.security import PLAINTEXT
from zkconsumer.devcluster import Admin, DevCluster, ExistingCluster
from zkconsumer.devcluster.load import SteadyLoad, batch
from zkconsumer.devcluster.process import free_port
from zkconsumer.devcluster.servers import ZooKeeperServer
from zkconsumer.errors import ZkConsumerError
from zkconsumer.fetcher.fetch_settings import FetchSettings
from zkconsumer.rebalance.handler import AssignedPartition
from zkconsumer.rebalance.mailbox import Mailbox
from zkconsumer.rebalance.session_watch import SessionWatch
from zkconsumer.spark.offset import BatchOffset, Ranges

T = TypeVar("T")

#: Default timeout in seconds, for conditions that are reached immediately on an idle machine.
TIMEOUT_S = 20.0


def wait_for(condition: Callable[[], T | Literal[False] | None], timeout: float = TIMEOUT_S, *, what: str = "") -> T:
    """Call ``condition`` until its result is true, and return the result.

    Raises:
        AssertionError: the result was not true within ``timeout`` seconds. The message contains the last result.
    """
    deadline = time.monotonic() + timeout
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout:g} s: {what or 'the condition'}; last result {answer!r}")
        time.sleep(0.01)


def run_module(module: str, *arguments: str, timeout: float) -> subprocess.CompletedProcess[str]:
    """Run a module of ``tests`` in a process of its own, and return its output after exit code 0."""
    command = [sys.executable, "-m", module, *arguments]
    tests = Path(__file__).parent
    done = subprocess.run(command, cwd=tests, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return done


def wait_until_equal(actual: Callable[[], object], expected: object, timeout: float = TIMEOUT_S) -> None:
    """Call ``actual`` until its result equals ``expected``; fail with both values after ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    while (found := actual()) != expected:
        if time.monotonic() > deadline:
            assert found == expected, f"not within {timeout:g} s"
        time.sleep(0.01)


def take(stream: Iterable[T], count: int) -> list[T]:
    """Return the next ``count`` items of a stream; its consumer should have a ``consumer.timeout.ms``."""
    items = list(islice(stream, count))
    assert len(items) == count, f"the stream ended after {len(items)} of {count}"
    return items


def values(messages: Iterable[MessageAndMetadata]) -> list[Any]:
    """Return the values of messages."""
    return [message.value for message in messages]


def numbers(first: int, end: int) -> list[bytes]:
    """Return the numbers from ``first`` to ``end`` (exclusive) as text."""
    return [b"%d" % number for number in range(first, end)]


def produce(admin: Admin, topic: str, partition: int, content: Iterable[bytes], *, codec: str = "none") -> int:
    """Append one batch with these values and return the offset of the first."""
    return admin.produce(TopicPartition(topic, partition), batch(list(content), codec=codec))


class Reader(threading.Thread):
    """A thread that reads a stream to its end or to the first error, like an application.

    ``seen`` grows while the thread runs. ``error`` is the exception that ended it, None for a normal end.
    """

    def __init__(self, stream: KafkaStream | Iterator[Any]) -> None:
        super().__init__(name="test-reader", daemon=True)
        self.seen: list[Any] = []
        self.error: BaseException | None = None
        self._stream = stream
        self.start()

    def run(self) -> None:
        try:
            for item in self._stream:
                self.seen.append(item)
        except BaseException as error:
            self.error = error

    @property
    def values(self) -> list[bytes]:
        """Return the values that were read so far."""
        return values(list(self.seen))

    def finish(self, timeout: float = TIMEOUT_S) -> None:
        """Wait for the end of the stream; raise the error that ended it."""
        self.join(timeout)
        assert not self.is_alive(), f"the stream did not end; {len(self.seen)} items were read"
        if self.error is not None:
            raise self.error


def in_thread(function: Callable[[], Any]) -> InThread:
    """Start ``function`` in another thread and return the thread."""
    return InThread(function)


class InThread(threading.Thread):
    """A thread that calls a function and keeps its result."""

    def __init__(self, function: Callable[[], Any]) -> None:
        super().__init__(name="test-call", daemon=True)
        self._function = function
        self._result: Any = None
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._result = self._function()
        except BaseException as error:
            self._error = error

    def result(self, timeout: float = TIMEOUT_S) -> Any:
        """Wait for the call; return its result or raise its exception."""
        self.join(timeout)
        assert not self.is_alive(), "the call has not returned"
        if self._error is not None:
            raise self._error
        return self._result


class Load(SteadyLoad):
    """A producer that writes to all partitions of a topic at a steady rate."""

    def __init__(self, cluster: DevCluster | ExistingCluster, topic: str, partitions: int, **options: Any) -> None:
        super().__init__(
            cluster.new_admin(), [TopicPartition(topic, number) for number in range(partitions)], **options
        )

    def wait_for_more(self, count: int = 1, timeout: float = TIMEOUT_S) -> int:
        """Wait until ``count`` more numbers have been written; return the first number that has not."""
        least = self.written + count
        wait_for(lambda: self.written >= least, timeout, what=f"{count} more numbers have been written")
        return self.written


class Clock:
    """A monotonic clock that only a test moves forward."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def plaintext(timeout_s: float = 30.0, client_id: str = "test") -> Connecting:
    """Return the settings of connections without encryption and authentication."""
    return Connecting(client_id, timeout_s, PLAINTEXT)


def consumer_config(cluster: DevCluster | ExistingCluster, **settings: object) -> ConsumerConfig:
    """Return the configuration of a member that reads from the beginning; ``settings`` are properties."""
    defaults: dict[str, object] = {
        **cluster.consumer_properties,
        "auto.offset.reset": "smallest",
        "consumer.timeout.ms": 20_000,  # ends tests that wait for a record that never arrives
    }
    return ConsumerConfig.from_dict(defaults | properties(settings), strict=True)


@contextlib.contextmanager
def consumers(config: Callable[..., ConsumerConfig]) -> Iterator[Callable[..., ZookeeperConsumerConnector]]:
    """Yield a function that creates members with the result of ``config``; shut them down at the end of the block."""
    created: list[ZookeeperConsumerConnector] = []

    def make(**settings: object) -> ZookeeperConsumerConnector:
        created.append(create_consumer(config(**settings)))
        return created[-1]

    try:
        yield make
    finally:
        for connector in created:
            in_thread(connector.shutdown).result(30)  # pytest-timeout does not apply after a failed test


def end_offsets(cluster: DevCluster | ExistingCluster, topic: str, partitions: int) -> dict[int, int]:
    """Return the end offset of each partition from its current leader."""

    def ask() -> dict[int, int]:
        with cluster.new_admin() as admin:
            try:
                admin.wait_for_leaders(topic, partitions)
                return admin.offsets(topic, partitions)
            except ZkConsumerError:
                return {}

    return wait_for(ask, what="all partitions return their end offset")


class IdleHandler:
    """A PartitionHandler that owns partitions and reads nothing.

    Args:
        release_timeout_s: seconds for which revoked partitions are kept, as by a Spark query that does not finish its
            batch; 0 to release them at once.
    """

    def __init__(self, release_timeout_s: float = 0.0) -> None:
        self.release_timeout_s = release_timeout_s

    def on_partitions_assigned(self, partitions: Mapping[TopicPartition, AssignedPartition]) -> None:
        pass

    def on_partitions_revoked(
        self, partitions: Set[TopicPartition], final: bool
    ) -> Mapping[TopicPartition, int] | None:
        return {} if final or not self.release_timeout_s else None

    def on_partitions_lost(self) -> None:
        pass

    def on_lease_expired(self) -> None:
        pass

    def consumed_offsets(self) -> Mapping[TopicPartition, int]:
        return {}

    def fail(self, error: ZkConsumerError) -> None:
        raise error


def unregistered_watch() -> SessionWatch:
    """Return the watch of a member that is not registered; its mailbox is open."""
    mailbox = Mailbox("the consumer has been shut down")
    mailbox.open()
    membership = SimpleNamespace(group="g", consumer_id="g_c", is_registered=False, assignment={})
    return SessionWatch(cast("Any", SimpleNamespace()), cast("Any", membership), mailbox)


def remaining_threads(before: Collection[threading.Thread], timeout: float = 5.0) -> list[str]:
    """Return the name and stack of each thread that is not in ``before`` and is alive after ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    while True:
        left = [thread for thread in threading.enumerate() if thread not in before]
        if not left or time.monotonic() > deadline:
            frames = sys._current_frames()
            stacks = [(thread.name, traceback.format_stack(frames.get(thread.ident or 0))) for thread in left]
            return [f"{name}:\n{''.join(stack)}" for name, stack in sorted(stacks)]
        time.sleep(0.01)


#: Options of a ZooKeeper client that reconnects after restarts of ZooKeeper. If it connects shortly before ZooKeeper
#: serves requests (see ``start_zookeeper``), it receives no response, and ``stop`` waits for up to the session timeout.
RECONNECTING: dict[str, Any] = {"timeout": 10, "connection_retry": {"max_tries": -1, "delay": 0.1, "backoff": 1}}


@contextlib.contextmanager
def zookeeper_client(connect: str, **options: Any) -> Iterator[KazooClient]:
    """Connect to ZooKeeper, and end the session at the end of the block."""
    client = KazooClient(connect, **options)
    client.start(timeout=TIMEOUT_S)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def expire_session(connect: str, session: tuple[int, bytes]) -> int:
    """End the ZooKeeper session with an id and its password, and return the id."""
    with zookeeper_client(connect, client_id=session, timeout=30):
        return session[0]


def owners(zk: KazooClient, group: str, topic: str) -> dict[int, str]:
    """Return the content of the owner znode (a thread id) of each partition that has one."""
    return _numbered(zk, f"/consumers/{group}/owners/{topic}")


def stored(zk: KazooClient, group: str, topic: str) -> dict[int, str]:
    """Return the content of the offset znode of each partition that has one."""
    return _numbered(zk, f"/consumers/{group}/offsets/{topic}")


def members(zk: KazooClient, group: str) -> list[str]:
    """Return the registered consumer ids."""
    path = f"/consumers/{group}/ids"
    return sorted(zk.get_children(path)) if zk.exists(path) else []


def _numbered(zk: KazooClient, path: str) -> dict[int, str]:
    found = {}
    try:
        for name in zk.get_children(path):
            try:
                found[int(name)] = zk.get(f"{path}/{name}")[0].decode()
            except NoNodeError:
                continue
    except NoNodeError:
        pass
    return dict(sorted(found.items()))


def set_offsets(zk: KazooClient, group: str, topic: str, offsets: dict[int, int]) -> None:
    """Write offset znodes of a group."""
    for partition, offset in offsets.items():
        path = f"/consumers/{group}/offsets/{topic}/{partition}"
        zk.ensure_path(path)
        zk.set(path, b"%d" % offset)


def recreate_topic(cluster: DevCluster | ExistingCluster, zk: KazooClient, topic: str, partitions: int = 1) -> None:
    """Delete a topic of a cluster with ZooKeeper, and create it again when it has been deleted."""
    cluster.admin.delete_topic(topic)
    paths = f"/brokers/topics/{topic}", f"/admin/delete_topics/{topic}"
    wait_for(lambda: not any(zk.exists(path) for path in paths), what=f"topic {topic} is deleted")
    cluster.admin.create_topic(topic, partitions)


def registered(zk: KazooClient, group: str, member: str, topics: dict[str, int], pattern: str = "static") -> None:
    """Register a group member that consists of its znode."""
    content = json.dumps({"version": 1, "subscription": topics, "pattern": pattern, "timestamp": "1"})
    zk.create(f"/consumers/{group}/ids/{group}_{member}", content.encode(), ephemeral=True, makepath=True)


def by_partition(items: Iterable[MessageAndMetadata]) -> dict[int, list[int]]:
    """Return the offsets of each partition in the order in which they were read."""
    found: dict[int, list[int]] = {}
    for item in items:
        found.setdefault(item.partition, []).append(item.offset)
    return found


def properties(settings: Mapping[str, object]) -> dict[str, object]:
    """Return settings with the names of properties: ``group_id`` becomes ``group.id``."""
    return {name.replace("_", "."): value for name, value in settings.items()}


def fetch_settings(**settings: object) -> FetchSettings:
    """Return the settings of fetcher threads; ``settings`` are properties."""
    required: dict[str, object] = {"group.id": "test", "zookeeper.connect": "none"}
    return FetchSettings.from_config(ConsumerConfig.from_dict(required | properties(settings), strict=True))


def start_zookeeper(cluster: DevCluster) -> None:
    """Start the stopped ZooKeeper while the brokers are paused.

    ZooKeeper accepts connections shortly before it serves requests. A client that connects in between may get no
    response until its session timeout has elapsed. Brokers would consider their session expired and need most of a
    minute to recover.
    """
    if cluster.zookeeper.is_running:
        return
    alive = [broker for broker in cluster.brokers if broker.is_running]
    for broker in alive:
        broker.pause()
    try:
        cluster.zookeeper.start()
    finally:
        for broker in alive:
            broker.resume()


@contextlib.contextmanager
def zookeeper_that_only_reads(folder: Path) -> Iterator[str]:
    """Run one server of an ensemble of two without the other server; yield its address."""
    (folder / "zookeeper-data").mkdir()
    (folder / "zookeeper-data" / "myid").write_text("1")
    ensemble: dict[str, object] = {"initLimit": 5, "syncLimit": 5}
    for number in (1, 2):
        ensemble[f"server.{number}"] = f"127.0.0.1:{free_port()}:{free_port()}"
    server = ZooKeeperServer(folder, ["-Dreadonlymode.enabled=true"], ensemble)
    server.start()
    try:
        yield server.connect
    finally:
        server.kill()


def offset_json(ranges: Ranges, *, generation: int = 1, **attributes: Any) -> dict[str, Any]:
    """Return the JSON object of a batch's offset; see ``BatchOffset`` for further attributes."""
    return BatchOffset(ranges=ranges, generation=generation, **attributes).to_json()
