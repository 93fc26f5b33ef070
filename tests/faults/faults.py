"""Helpers of the fault tests: members that read, foreign znodes, network faults, and final checks."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Protocol

from helpers.reading import Reader
from helpers.topics import end_offsets
from helpers.waiting import TIMEOUT_S, wait_for
from helpers.zookeeper import expire_session
from kazoo.client import KazooClient

from zkconsumer import ConsumerConfig, KafkaStream, MessageAndMetadata, TopicPartition, create_consumer
from zkconsumer.devcluster import DevCluster
from zkconsumer.devcluster.servers import BrokerServer
from zkconsumer.errors import ZkConsumerError
from zkconsumer.health import HealthListener
from zkconsumer.rebalance.member import GroupMember
from zkconsumer.zookeeper.registry import GroupPaths, Registration


class Member:
    """A group member; each of its streams is read by a thread until the member leaves.

    Args:
        pause: processing time of the application per message, in seconds.
        ignored_errors: errors after which the application continues to read.
        health_listener: see ``ZookeeperConsumerConnector.set_health_listener``.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        topics: Mapping[str, int],
        *,
        pause: float = 0.0,
        ignored_errors: tuple[type[ZkConsumerError], ...] = (),
        health_listener: HealthListener | None = None,
    ) -> None:
        self.pause = pause
        self._ignored_errors = ignored_errors
        self.connector = create_consumer(config)
        if health_listener is not None:
            self.connector.set_health_listener(health_listener)
        streams = self.connector.create_message_streams(topics)
        self.readers = [Reader(self._read(stream)) for of_topic in streams.values() for stream in of_topic]

    def _read(self, stream: KafkaStream) -> Iterator[MessageAndMetadata]:
        while True:
            try:
                message = next(stream)
            except StopIteration:
                return
            except self._ignored_errors:
                continue
            yield message
            if self.pause:
                time.sleep(self.pause)  # simulates a slow application

    @property
    def core(self) -> GroupMember:
        """The part that keeps the membership."""
        assert self.connector._runtime is not None
        return self.connector._runtime.member

    @property
    def owned(self) -> list[int]:
        """Return the numbers of the owned partitions of all topics."""
        return sorted(partition for _, partition in self.connector.assignment)

    @property
    def seen(self) -> list[MessageAndMetadata]:
        """Return the messages read so far."""
        return [message for reader in self.readers for message in list(reader.seen)]

    @property
    def count(self) -> int:
        """Return the number of messages read so far."""
        return sum(len(reader.seen) for reader in self.readers)

    def wait_for_more(self, count: int = 1, timeout: float = TIMEOUT_S) -> None:
        """Wait until ``count`` more messages have been read."""
        least = self.count + count
        wait_for(lambda: self.count >= least, timeout, what=f"{count} more messages")

    def leave(self) -> None:
        """Shut down; raise the error of a stream if there was one."""
        self.connector.shutdown()
        for reader in self.readers:
            reader.finish()


class ChildMember:
    """A member in a separate process; the messages that it printed before its end count as read."""

    def __init__(self, properties: Mapping[str, object], topic: str) -> None:
        self.topic = topic
        self.read: list[TopicAndOffset] = []
        command = [sys.executable, str(Path(__file__).with_name("child_member.py")), topic, json.dumps(properties)]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        self._thread = threading.Thread(target=self._listen, name="test-child", daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            partition, offset = map(int, line.split())
            self.read.append(TopicAndOffset(self.topic, partition, offset))

    @property
    def seen(self) -> list[TopicAndOffset]:
        """Return topic, partition and offset of the messages read so far."""
        return list(self.read)

    @property
    def count(self) -> int:
        """Return the number of messages read so far."""
        return len(self.read)

    def signal(self, number: int) -> None:
        """Send a signal to the process, to kill, suspend or resume it."""
        self.process.send_signal(number)

    def close(self) -> None:
        """Kill the process if it is running."""
        self.process.kill()
        self.process.wait()
        self._thread.join(TIMEOUT_S)
        assert self.process.stdout is not None
        self.process.stdout.close()


class TopicAndOffset(NamedTuple):
    """The position of a message."""

    topic: str
    partition: int
    offset: int


class Peer:
    """Another group member that consists of ephemeral znodes only; ``close`` deletes them."""

    def __init__(self, cluster: DevCluster, group: str, consumer_id: str = "peer") -> None:
        self.paths = GroupPaths(group)
        self.consumer_id = f"{group}_{consumer_id}"
        self.client = KazooClient(cluster.zookeeper_connect, timeout=30)
        self.client.start(timeout=TIMEOUT_S)

    def __enter__(self) -> Peer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def register(self, content: Mapping[str, int] | bytes) -> str:
        """Register with a subscription, or with any content; return the path of the znode."""
        data = content if isinstance(content, bytes) else Registration(content).to_json()
        path = self.paths.registration(self.consumer_id)
        self.client.create(path, data, ephemeral=True, makepath=True)
        return path

    def own(self, topic: str, partition: int, *, thread_id: str | None = None) -> str:
        """Claim a partition; return the path of its owner znode."""
        path = self.paths.owner(TopicPartition(topic, partition))
        self.client.create(path, (thread_id or f"{self.consumer_id}-0").encode(), ephemeral=True, makepath=True)
        return path

    def close(self) -> None:
        """Close the session."""
        self.client.stop()
        self.client.close()


class Cable:
    """A proxy for the local port ``target``. While it is cut, it forwards nothing and keeps connections open.

    ``on_request`` is called with data from clients before it is forwarded; ``garble`` changes data for clients. They
    are forwarded with ``bytes_per_s`` unless it is 0. ``delay_s`` delays data in both directions.
    """

    def __init__(self, port: int) -> None:
        self.on_request: Callable[[bytes], object] = lambda _data: None
        self.garble: Callable[[bytes], bytes] = lambda data: data
        self.bytes_per_s = 0
        self.delay_s = 0.0
        self.target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._whole = threading.Event()
        self._whole.set()
        self._sockets: list[socket.socket] = []
        self._far: set[socket.socket] = set()
        self._threads = [threading.Thread(target=self._accept, name="test-cable", daemon=True)]
        self._threads[0].start()

    def __enter__(self) -> Cable:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._whole.set()
        for sock in (self._listener, *self._sockets):
            _shut(sock)
        for thread in list(self._threads):
            thread.join(TIMEOUT_S)

    def cut(self) -> None:
        """Stop forwarding; hold back data."""
        self._whole.clear()

    def mend(self) -> None:
        """Resume forwarding, including data that was held back."""
        self._whole.set()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                _shut(near)
                continue
            self._sockets += near, far
            self._far.add(far)
            for source, target in ((near, far), (far, near)):
                pump = threading.Thread(target=self._pump, args=(source, target), name="test-cable", daemon=True)
                self._threads.append(pump)
                pump.start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                self._whole.wait()
                time.sleep(self.delay_s)  # simulates the latency of the link
                if source in self._far:
                    data = self.garble(data)
                    if self.bytes_per_s:
                        self._send_slowly(data, target)
                        continue
                else:
                    self.on_request(data)
                target.sendall(data)
        except OSError:
            pass
        _shut(source)
        _shut(target)

    def _send_slowly(self, data: bytes, target: socket.socket) -> None:
        while data and (rate := self.bytes_per_s):
            size = max(1, min(1024, rate // 2))
            target.sendall(data[:size])
            data = data[size:]
            time.sleep(size / rate)  # simulates the bandwidth of the link
        target.sendall(data)


@contextlib.contextmanager
def full_backlog() -> Iterator[int]:
    """A local port whose kernel ignores further connections, because nothing accepts those that wait."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port: int = listener.getsockname()[1]
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(("127.0.0.1", port))
        yield port


def _shut(sock: socket.socket) -> None:
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    sock.close()


def expire(cluster: DevCluster, member: Member) -> int:
    """Expire the ZooKeeper session of a member and return the id of the session."""
    session = member.core.session
    identity = wait_for(lambda: session._client.client_id, what="the member has a session")
    return expire_session(cluster.zookeeper_connect, identity)


def kill(broker: BrokerServer, zk: KazooClient) -> None:
    """Kill a broker and delete its znode immediately, without waiting for its session to expire."""
    broker.kill()
    if json.loads(zk.get("/controller")[0])["brokerid"] == broker.node:
        zk.delete("/controller")
    zk.delete(f"/brokers/ids/{broker.node}")


@contextlib.contextmanager
def settings(broker: BrokerServer, folder: Path, *lines: str) -> Iterator[None]:
    """Restart a broker with additional properties, and without them at the end."""
    file = folder / f"broker-{broker.node}.properties"
    before = file.read_text()
    file.write_text("\n".join([before, *lines, ""]))
    broker.restart()
    try:
        yield
    finally:
        file.write_text(before)
        broker.restart()


class Position(Protocol):
    """A message, or the position of one."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...


class Reading(Protocol):
    """A member of any kind."""

    @property
    def seen(self) -> Sequence[Position]: ...
    @property
    def count(self) -> int: ...


def wait_until_all_is_read(
    cluster: DevCluster, topic: str, partitions: int, members: Collection[Reading], timeout: float = TIMEOUT_S
) -> int:
    """Wait until the members together have read all records of the topic; return the number of repeated reads."""
    ends = end_offsets(cluster, topic, partitions)

    def missing() -> dict[int, list[int]]:
        if sum(member.count for member in members) < sum(ends.values()):
            return {-1: [sum(member.count for member in members), sum(ends.values())]}
        read = offsets_of(message for member in members for message in member.seen if message.topic == topic)
        lacks = {p: sorted(set(range(end)) - read.get(p, Counter()).keys())[:5] for p, end in ends.items()}
        return {p: offsets for p, offsets in lacks.items() if offsets}

    wait_for(lambda: not missing(), timeout, what=f"all records below {ends} are read")
    read = offsets_of(message for member in members for message in member.seen if message.topic == topic)
    return sum(counter.total() - len(counter) for counter in read.values())


def offsets_of(messages: Iterable[Position]) -> dict[int, Counter[int]]:
    """Return how often each offset of each partition was read."""
    found: dict[int, Counter[int]] = {}
    for message in messages:
        found.setdefault(message.partition, Counter())[message.offset] += 1
    return found


def seconds(action: Callable[[], object]) -> float:
    """Return the duration of a call in seconds."""
    started = time.monotonic()
    action()
    return time.monotonic() - started


def texts(offsets: Mapping[int, int]) -> dict[int, str]:
    """Return the offsets as text, as ``znodes.stored`` does."""
    return {partition: str(offset) for partition, offset in offsets.items()}
