"""Brokers: the topics, logs and committed offsets of simulated brokers, as they would be after replication."""

from __future__ import annotations

import json
import struct
import uuid
from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from zkconsumer.devcluster.load import batch
from zkconsumer.message import TopicPartition

from .ensemble import Ensemble
from .kernel import kernel
from .threads import EPOCH
from .znode_tree import Change, Op

#: Seconds until a broker knows of a change of leaders, topics or brokers, at most.
_MAX_STALE_S = 0.8


@dataclass
class Batch:
    """A batch in a log."""

    base: int
    count: int
    data: bytes


@dataclass
class Log:
    """A partition.

    Attributes:
        leader: broker id of the leader.
        epoch: leader epoch.
        start: log start offset.
        end: offset after the last record.
        identity: identity of the record at each offset.
        former_end: offset before which members may have read other records that were lost.
    """

    leader: int
    epoch: int = 0
    start: int = 0
    end: int = 0
    batches: list[Batch] = field(default_factory=list)
    identity: dict[int, str] = field(default_factory=dict)
    former_end: int = 0


@dataclass
class Topic:
    """A topic, until it is deleted."""

    name: str
    id: uuid.UUID
    logs: list[Log]


#: Leader and epoch of each partition, and id, by topic.
View = dict[str, tuple[uuid.UUID, list[tuple[int, int]]]]


class Broker:
    """A broker.

    Attributes:
        view: what it answers to Metadata requests.
        address: host and port.
    """

    def __init__(self, number: int, address: tuple[str, int]) -> None:
        self.number, self.address = number, address
        self.is_up = True
        self.version = 0
        self.view: View = {}
        self.peers: dict[int, tuple[str, int]] = {}
        self.on_append: Callable[[], object] = lambda: None
        self.stop: Callable[[], object] = lambda: None
        self.start: Callable[[], object] = lambda: None


class Brokers:
    """All brokers.

    Args:
        ensemble: ensemble in which the brokers are registered; None in KRaft mode.

    Attributes:
        offsets: committed offsets by group and partition.
        counts: number of requests by type.
        on_commit: called with the client id and the offsets of each accepted OffsetCommit request.
    """

    def __init__(self, ensemble: Ensemble | None) -> None:
        self.topics: dict[str, Topic] = {}
        self.brokers: dict[int, Broker] = {}
        self.offsets: dict[tuple[str, str, int], tuple[int, str]] = {}
        self.counts: Counter[str] = Counter()
        self.coordinator = 0
        self.on_commit: Callable[[str, TopicPartition, int], object] = lambda *_: None
        self._ensemble = ensemble
        self._serials = self._version = 0

    # ---- brokers ----

    def add(self, broker: Broker) -> None:
        """Start a broker for the first time."""
        self.brokers[broker.number] = broker
        broker.view, broker.peers = self._describe()
        self._register(broker)
        self._spread()

    def up(self) -> list[Broker]:
        """Return the running brokers."""
        return [broker for broker in self.brokers.values() if broker.is_up]

    def stop(self, broker: Broker) -> None:
        """Stop a broker; its partitions move to others."""
        broker.is_up = False
        broker.stop()
        if self._ensemble is not None:
            path = f"/brokers/ids/{broker.number}"
            if path in self._ensemble.tree.nodes:
                self._ensemble.write(Change(Op.DELETE, path))
        others = self.up()
        for topic in self.topics.values():
            for log in topic.logs:
                if log.leader == broker.number and others:
                    self._elect(log, kernel().random.choice(others))
        if self.coordinator == broker.number and others:
            self.coordinator = kernel().random.choice(others).number
        self._spread()

    def start(self, broker: Broker) -> None:
        """Start a stopped broker."""
        broker.is_up = True
        broker.start()
        self._register(broker)
        self._spread()

    def move(self) -> None:
        """Move some partitions, and the coordinator, to other brokers."""
        random, up = kernel().random, self.up()
        for topic in self.topics.values():
            for log in topic.logs:
                if random.random() < 0.5:
                    self._elect(log, random.choice(up))
        self.coordinator = random.choice(up).number
        self._spread()

    def _elect(self, log: Log, broker: Broker) -> None:
        log.leader, log.epoch = broker.number, log.epoch + 1

    def _register(self, broker: Broker) -> None:
        if self._ensemble is not None:
            host, port = broker.address
            content = {
                "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
                "endpoints": [f"PLAINTEXT://{host}:{port}"],
                "jmx_port": -1,
                "host": host,
                "port": port,
                "version": 5,
                "timestamp": str(int((EPOCH + kernel().now) * 1_000)),
            }
            self._ensemble.put(f"/brokers/ids/{broker.number}", json.dumps(content).encode())

    def _describe(self) -> tuple[View, dict[int, tuple[str, int]]]:
        view: View = {
            name: (topic.id, [(log.leader, log.epoch) for log in topic.logs]) for name, topic in self.topics.items()
        }
        return view, {broker.number: broker.address for broker in self.up()}

    def _spread(self) -> None:
        """Let each broker learn the present state some time later."""
        view, peers = self._describe()
        self._version += 1
        version = self._version

        def learn(broker: Broker) -> None:
            if broker.version < version:
                broker.version, broker.view, broker.peers = version, view, peers

        for broker in self.brokers.values():
            delay = kernel().random.uniform(0.001, _MAX_STALE_S)
            kernel().call_later(delay, lambda broker=broker: learn(broker))  # type: ignore[misc]

    # ---- topics ----

    def create(self, name: str, partitions: int) -> Topic:
        """Create a topic."""
        random = kernel().random
        identity = uuid.UUID(bytes=random.randbytes(16), version=4)
        topic = self.topics[name] = Topic(name, identity, [self._new_log() for _ in range(partitions)])
        self._write_topic(topic)
        self._spread()
        return topic

    def widen(self, topic: Topic) -> None:
        """Add a partition to a topic."""
        topic.logs.append(self._new_log())
        self._write_topic(topic)
        self._spread()

    def delete(self, name: str) -> None:
        """Delete a topic with its records; committed offsets in Kafka are deleted, too."""
        del self.topics[name]
        self.offsets = {key: value for key, value in self.offsets.items() if key[1] != name}
        if self._ensemble is not None:
            self._ensemble.write(Change(Op.DELETE, f"/brokers/topics/{name}"))
        self._spread()

    def find(self, partition: TopicPartition) -> Log | None:
        """Return a partition's log; None if it does not exist."""
        topic = self.topics.get(partition.topic)
        if topic is None or not 0 <= partition.partition < len(topic.logs):
            return None
        return topic.logs[partition.partition]

    def append(self, partition: TopicPartition, count: int) -> list[str]:
        """Append records, and return the identities of those that every consumer must read."""
        log = self.find(partition)
        assert log is not None
        names = [f"r{self._serials + number}" for number in range(count)]
        self._serials += count
        now_ms = int((EPOCH + kernel().now) * 1_000)
        data = batch([name.encode() for name in names], timestamp_ms=now_ms)
        log.batches.append(Batch(log.end, count, struct.pack(">q", log.end) + data[8:]))
        required = [name for number, name in enumerate(names) if log.end + number >= log.former_end]
        log.identity |= {log.end + number: name for number, name in enumerate(names)}
        log.end += count
        for broker in self.brokers.values():
            broker.on_append()
        return required

    def truncate(self, partition: TopicPartition) -> list[str]:
        """Lose the last batch of a partition, as after an unclean election; return the lost identities."""
        log = self.find(partition)
        if log is None or not log.batches:
            return []
        lost = log.batches.pop()
        log.former_end = max(log.former_end, log.end)
        log.end, log.epoch = lost.base, log.epoch + 1
        return [log.identity.pop(lost.base + number) for number in range(lost.count)]

    def _new_log(self) -> Log:
        return Log(kernel().random.choice(self.up()).number)

    def _write_topic(self, topic: Topic) -> None:
        if self._ensemble is not None:
            content = {
                "partitions": {str(number): [log.leader] for number, log in enumerate(topic.logs)},
                "topic_id": urlsafe_b64encode(topic.id.bytes).decode().rstrip("="),
                "adding_replicas": {},
                "removing_replicas": {},
                "version": 3,
            }
            self._ensemble.put(f"/brokers/topics/{topic.name}", json.dumps(content).encode())


__all__ = ["Broker", "Brokers", "Log", "Topic"]
