"""What ZooKeeper says of a group, read once; no decisions here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from zkconsumer.broker.cluster import Cluster
from zkconsumer.broker.log_offsets import LogOffsets
from zkconsumer.errors import ConfigurationError, RegistrationError, RetriableError, ZkConsumerError
from zkconsumer.message import TopicPartition
from zkconsumer.zookeeper.registry import GroupPaths, Registration, parse_offset
from zkconsumer.zookeeper.session import ZooKeeperSession
from zkconsumer.zookeeper.znodes import Node


@dataclass(slots=True)
class GroupState:
    """The members, owners and offsets of a group, as their znodes have them.

    ``offsets`` holds -1 for a znode that means "none", and lacks what cannot be read; that is in ``unreadable``, by
    path, as is a registration that is none. ``stored_at`` is in seconds since the epoch; ``registrations`` are as they
    were found.
    """

    group: str
    members: dict[str, Registration] = field(default_factory=dict)
    sessions: dict[str, int] = field(default_factory=dict)
    registrations: dict[str, bytes] = field(default_factory=dict)
    owners: dict[TopicPartition, str] = field(default_factory=dict)
    owner_sessions: dict[TopicPartition, int] = field(default_factory=dict)
    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    stored_at: dict[TopicPartition, float] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)

    @property
    def topics(self) -> list[str]:
        """Topics that have an owner or an offset."""
        return sorted({partition.topic for partition in (*self.owners, *self.offsets)})


def groups(session: ZooKeeperSession) -> list[str]:
    """Return the names of all groups."""
    return session.znodes.children("/consumers") or []


def exists(session: ZooKeeperSession, group: str) -> bool:
    """Whether there is such a group."""
    return session.znodes.exists(GroupPaths(group).root)


def check_exists(session: ZooKeeperSession, group: str) -> None:
    """Refuse a group that does not exist."""
    if not exists(session, group):
        raise ConfigurationError(f"there is no group {group!r} in ZooKeeper at {session.hosts!r}")


def read(session: ZooKeeperSession, group: str) -> GroupState:
    """Read a group."""
    paths, state = GroupPaths(group), GroupState(group)
    for consumer_id, node in _children(session, paths.ids):
        path = paths.registration(consumer_id)
        state.sessions[consumer_id] = node.owner_session
        state.registrations[consumer_id] = node.data
        try:
            state.members[consumer_id] = Registration.from_json(path, node.data)
        except RegistrationError as error:
            state.unreadable[path] = str(error)
    for partition, _, node in _partitions(session, f"{paths.root}/owners", state):
        state.owners[partition] = node.data.decode(errors="replace")
        state.owner_sessions[partition] = node.owner_session
    for partition, path, node in _partitions(session, f"{paths.root}/offsets", state):
        try:
            state.offsets[partition] = parse_offset(path, node.data)
            state.stored_at[partition] = node.modified
        except ZkConsumerError as error:
            state.unreadable[path] = str(error)
    return state


def _partitions(
    session: ZooKeeperSession, parent: str, state: GroupState
) -> Iterable[tuple[TopicPartition, str, Node]]:
    for topic in session.znodes.children(parent) or ():
        for name, node in _children(session, f"{parent}/{topic}"):
            path = f"{parent}/{topic}/{name}"
            if name.isdigit():
                yield TopicPartition(topic, int(name)), path, node
            else:
                state.unreadable[path] = f"{path}: a partition's number is expected, {name!r} is a name of Kafka 0.7"


def _children(session: ZooKeeperSession, parent: str) -> list[tuple[str, Node]]:
    names = session.znodes.children(parent) or []
    nodes = session.znodes.get_many([f"{parent}/{name}" for name in names])
    return [(name, node) for name, node in zip(names, nodes, strict=True) if node is not None]


def partitions_of(cluster: Cluster, topics: Iterable[str]) -> list[TopicPartition]:
    """Return all partitions of topics, sorted."""
    found = cluster.partitions(sorted(set(topics)))
    return [TopicPartition(topic, number) for topic, numbers in sorted(found.items()) for number in numbers]


def log_offsets(
    logs: LogOffsets, partitions: Iterable[TopicPartition], timestamp: int
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, str]]:
    """Return an offset of each partition's log, and why there is none, where a leader is missing or silent."""
    found: dict[TopicPartition, int] = {}
    failed: dict[TopicPartition, str] = {}
    for partition in partitions:
        try:
            found.update(logs.offsets([partition], timestamp))
        except RetriableError as error:
            failed[partition] = str(error)
    return found, failed


def offsets(
    state: GroupState,
    partitions: Sequence[TopicPartition],
    fetch_from_kafka: Callable[[Sequence[TopicPartition]], dict[TopicPartition, int]],
) -> tuple[dict[TopicPartition, int], list[str]]:
    """Return the offset of each partition: Kafka's, else that in ZooKeeper, else -1; and what was not to be had."""
    in_kafka, notes = _in_kafka(partitions, fetch_from_kafka)
    found = {}
    for partition in partitions:
        path = GroupPaths(state.group).offset(partition)
        if path in state.unreadable:
            notes.append(f"Could not fetch offset for {partition} due to {state.unreadable[path]}.")
            continue
        stored = in_kafka.get(partition, -1)
        found[partition] = stored if stored >= 0 else state.offsets.get(partition, -1)
    return found, notes


def furthest(
    state: GroupState,
    partitions: Sequence[TopicPartition],
    fetch_from_kafka: Callable[[Sequence[TopicPartition]], dict[TopicPartition, int]],
) -> tuple[dict[TopicPartition, int], list[str]]:
    """Return the later offset of those in Kafka and in ZooKeeper, where there is one; and what was not to be had.

    A group that has moved from one storage to the other leaves its old offsets behind.
    """
    in_kafka, notes = _in_kafka(partitions, fetch_from_kafka)
    both = {p: max(in_kafka.get(p, -1), state.offsets.get(p, -1)) for p in partitions}
    return {partition: offset for partition, offset in both.items() if offset >= 0}, notes


def _in_kafka(
    partitions: Sequence[TopicPartition],
    fetch_from_kafka: Callable[[Sequence[TopicPartition]], dict[TopicPartition, int]],
) -> tuple[dict[TopicPartition, int], list[str]]:
    try:
        return (fetch_from_kafka(partitions) if partitions else {}), []
    except ZkConsumerError as error:
        return {}, [f"Offsets in Kafka are left out: {error}"]
