"""What the fault tests are made of: members that read, a load, foreign znodes, and what must hold in the end."""

from __future__ import annotations

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

from kazoo.client import KazooClient
from support import PATIENCE, Reader, wait_for

from zkconsumer import ConsumerConfig, KafkaStream, MessageAndMetadata, TopicPartition, create_consumer
from zkconsumer.devcluster import DevCluster
from zkconsumer.devcluster.servers import Broker
from zkconsumer.errors import ZkConsumerError
from zkconsumer.rebalance.member import GroupMember
from zkconsumer.zookeeper.registry import GroupPaths, Registration


class Member:
    """A member of a group whose streams are each read by a thread, until it leaves.

    Args:
        pause: seconds that the application takes for each message.
        forgives: errors after which the application reads on.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        topics: Mapping[str, int],
        *,
        pause: float = 0.0,
        forgives: tuple[type[ZkConsumerError], ...] = (),
    ) -> None:
        self.pause = pause
        self._forgives = forgives
        self.connector = create_consumer(config)
        streams = self.connector.create_message_streams(topics)
        self.readers = [Reader(self._read(stream)) for of_topic in streams.values() for stream in of_topic]

    def _read(self, stream: KafkaStream) -> Iterator[MessageAndMetadata]:
        while True:
            try:
                message = next(stream)
            except StopIteration:
                return
            except self._forgives:
                continue
            yield message
            if self.pause:
                time.sleep(self.pause)  # what a slow application does

    @property
    def core(self) -> GroupMember:
        """The part that keeps the membership."""
        assert self.connector._runtime is not None
        return self.connector._runtime.member

    @property
    def owned(self) -> list[int]:
        """Numbers of the partitions that are owned, of all topics."""
        return sorted(partition for _, partition in self.connector.assignment)

    @property
    def seen(self) -> list[MessageAndMetadata]:
        """The messages that were read so far."""
        return [message for reader in self.readers for message in list(reader.seen)]

    @property
    def count(self) -> int:
        """How many messages were read so far."""
        return sum(len(reader.seen) for reader in self.readers)

    def wait_for_more(self, count: int = 1, timeout: float = PATIENCE) -> None:
        """Wait until ``count`` further messages were read."""
        least = self.count + count
        wait_for(lambda: self.count >= least, timeout, what=f"{count} more messages")

    def leave(self) -> None:
        """Shut down; raises what a stream raised."""
        self.connector.shutdown()
        for reader in self.readers:
            reader.finish()


class ChildMember:
    """A member in a process of its own; what it printed before its end counts as read."""

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
        """What was read so far."""
        return list(self.read)

    @property
    def count(self) -> int:
        """How many messages were read so far."""
        return len(self.read)

    def signal(self, number: int) -> None:
        """Kill, freeze or resume the process."""
        self.process.send_signal(number)

    def close(self) -> None:
        """End the process by force, if it still runs."""
        self.process.kill()
        self.process.wait()
        self._thread.join(PATIENCE)
        self.process.stdout.close()


class TopicAndOffset(NamedTuple):
    """Where a message stood."""

    topic: str
    partition: int
    offset: int


class Peer:
    """Another member of the group, made of znodes alone; they vanish with ``close``."""

    def __init__(self, cluster: DevCluster, group: str, consumer_id: str = "peer") -> None:
        self.paths = GroupPaths(group)
        self.consumer_id = f"{group}_{consumer_id}"
        self.client = KazooClient(cluster.zookeeper_connect, timeout=30)
        self.client.start(timeout=PATIENCE)

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):
        self.close()

    def register(self, content: Mapping[str, int] | bytes) -> str:
        """Register for topics, or with any other content; returns the znode's path."""
        data = content if isinstance(content, bytes) else Registration(content).to_json()
        path = self.paths.registration(self.consumer_id)
        self.client.create(path, data, ephemeral=True, makepath=True)
        return path

    def own(self, topic: str, partition: int, *, thread_id: str | None = None) -> str:
        """Take a partition; returns the owner znode's path."""
        path = self.paths.owner(TopicPartition(topic, partition))
        self.client.create(path, (thread_id or f"{self.consumer_id}-0").encode(), ephemeral=True, makepath=True)
        return path

    def close(self) -> None:
        """End the session."""
        self.client.stop()
        self.client.close()


class Cable:
    """Passes bytes to a port of this machine and back, until it is cut: then nothing passes, nothing closes.

    ``on_request`` is shown what goes to the port before it gets there, ``garble`` changes what comes back.
    """

    def __init__(self, port: int) -> None:
        self.on_request: Callable[[bytes], object] = lambda _data: None
        self.garble: Callable[[bytes], bytes] = lambda data: data
        self._target = port
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

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):
        self._whole.set()
        for sock in (self._listener, *self._sockets):
            _shut(sock)
        for thread in list(self._threads):
            thread.join(PATIENCE)

    def cut(self) -> None:
        """Let nothing pass any more."""
        self._whole.clear()

    def mend(self) -> None:
        """Let everything pass again, also what was held back."""
        self._whole.set()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self._target))
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
                if source in self._far:
                    data = self.garble(data)
                else:
                    self.on_request(data)
                target.sendall(data)
        except OSError:
            pass
        _shut(source)
        _shut(target)


def _shut(sock: socket.socket) -> None:
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    sock.close()


def expire(cluster: DevCluster, member: Member) -> int:
    """End a member's ZooKeeper session from outside, as ZooKeeper does with silent members; returns its id."""
    session = member.core.session
    identity = session._client.client_id
    twin = KazooClient(cluster.zookeeper_connect, client_id=identity, timeout=30)
    twin.start(timeout=PATIENCE)
    twin.stop()
    twin.close()
    return int(identity[0])


def kill(broker: Broker, zk: KazooClient) -> None:
    """Kill a broker and have ZooKeeper forget it now, not only when its session is over."""
    broker.kill()
    if json.loads(zk.get("/controller")[0])["brokerid"] == broker.node:
        zk.delete("/controller")
    zk.delete(f"/brokers/ids/{broker.node}")


def end_offsets(cluster: DevCluster, topic: str, partitions: int) -> dict[int, int]:
    """Return the end of each partition's log, from whoever leads it now."""

    def ask() -> dict[int, int]:
        with cluster.new_admin() as admin:
            try:
                admin.wait_for_leaders(topic, partitions)
                return admin.offsets(topic, partitions)
            except ZkConsumerError:
                return {}

    return wait_for(ask, what="all partitions tell their end")


class Position(Protocol):
    """A message, or where one stood."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...


class Reading(Protocol):
    """A member of whichever kind."""

    @property
    def seen(self) -> Sequence[Position]: ...
    @property
    def count(self) -> int: ...


def wait_until_all_is_read(
    cluster: DevCluster, topic: str, partitions: int, members: Collection[Reading], timeout: float = PATIENCE
) -> int:
    """Wait until the members together have read each record of the topic; returns how many were read twice."""
    ends = end_offsets(cluster, topic, partitions)

    def missing() -> dict[int, list[int]]:
        if sum(member.count for member in members) < sum(ends.values()):
            return {-1: [sum(member.count for member in members), sum(ends.values())]}
        read = offsets_of(message for member in members for message in member.seen if message.topic == topic)
        lacks = {p: sorted(set(range(end)) - read.get(p, Counter()).keys())[:5] for p, end in ends.items()}
        return {p: offsets for p, offsets in lacks.items() if offsets}

    wait_for(lambda: not missing(), timeout, what=f"all of {ends} is read")
    read = offsets_of(message for member in members for message in member.seen if message.topic == topic)
    return sum(counter.total() - len(counter) for counter in read.values())


def offsets_of(messages: Iterable[Position]) -> dict[int, Counter[int]]:
    """Count how often each offset of each partition was read."""
    found: dict[int, Counter[int]] = {}
    for message in messages:
        found.setdefault(message.partition, Counter())[message.offset] += 1
    return found


def seconds(action: Callable[[], object]) -> float:
    """Return how long a call takes."""
    started = time.monotonic()
    action()
    return time.monotonic() - started


def texts(offsets: Mapping[int, int]) -> dict[int, str]:
    """Return offsets as ``support.stored`` tells them."""
    return {partition: str(offset) for partition, offset in offsets.items()}
