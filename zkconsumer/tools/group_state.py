"""State of a consumer group in ZooKeeper, and its offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from zkconsumer.broker.log_offsets import LogOffsets
from zkconsumer.errors import RegistrationError, RetriableError, ZkConsumerError
from zkconsumer.excerpt import excerpt
from zkconsumer.message import TopicPartition
from zkconsumer.metadata.base import Cluster
from zkconsumer.offsets.coordinator import GroupCoordinator
from zkconsumer.tools.common import ToolError, retrying
from zkconsumer.tools.output import count
from zkconsumer.zookeeper.registry import (
    GroupPaths,
    Registration,
    consumer_of,
    parse_offset,
    parse_owner,
    parse_partition_number,
)
from zkconsumer.zookeeper.session import ZooKeeperSession
from zkconsumer.zookeeper.znodes import Znode

#: Maximum number of characters kept from an owner znode; longer content is truncated. Thread ids are much shorter.
_MAX_OWNER_LENGTH = 1000


@dataclass(slots=True)
class GroupState:
    """Members, owners and offsets of a group, as read from its znodes.

    Attributes:
        group: name of the group.
        members: registration by consumer id, except for malformed registrations.
        sessions: ZooKeeper session id by consumer id, even if the registration is malformed.
        application: process of the running ``StreamsApp`` that uses the group for its offsets; empty if there is none.
        registrations: content of the registration znode by consumer id, even if it is malformed.
        owners: thread id of the owner by partition.
        owner_sessions: ZooKeeper session id of the owner znode by partition.
        offsets: committed offset by partition; -1 if the znode is empty or the offset is negative.
        negative_offsets: content of each offset znode that contains a negative integer, by partition. These offsets are
            ignored.
        stored_at: commit time by partition, in seconds since the epoch.
        unreadable: error message by znode path, for malformed znodes.
        written_at: time of the last write to each znode, by znode path, in seconds since the epoch.
    """

    group: str
    members: dict[str, Registration] = field(default_factory=dict)
    sessions: dict[str, int] = field(default_factory=dict)
    application: str = ""
    registrations: dict[str, bytes] = field(default_factory=dict)
    owners: dict[TopicPartition, str] = field(default_factory=dict)
    owner_sessions: dict[TopicPartition, int] = field(default_factory=dict)
    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    negative_offsets: dict[TopicPartition, str] = field(default_factory=dict)
    stored_at: dict[TopicPartition, float] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)
    written_at: dict[str, float] = field(default_factory=dict)

    def find_consumer(self, owner: str) -> str:
        """Return the consumer id for the content of an owner znode; see ``parse_owner``."""
        return owner if owner in self.sessions else consumer_of(owner)

    def find_reader(self, partition: TopicPartition) -> str:
        """Return the thread or ``StreamsApp`` that consumes a partition; empty if there is none."""
        return self.owners.get(partition, "") or _describe_application(self.application)

    @property
    def members_text(self) -> str:
        """The number of live members, and the running ``StreamsApp``, as text."""
        members = count(len(self.sessions), "member")
        return f"{members}, StreamsApp in {self.application}" if self.application else members

    @property
    def users(self) -> list[str]:
        """Consumer ids of the live members, and a description of the running ``StreamsApp`` if there is one."""
        return _describe_users(self.sessions, self.application)

    @property
    def topics(self) -> list[str]:
        """Sorted names of the topics with an owned partition or a committed offset."""
        return sorted({partition.topic for partition in (*self.owners, *self.offsets)})


def groups(session: ZooKeeperSession) -> list[str]:
    """Return the names of all groups."""
    return session.znodes.children("/consumers") or []


def exists(session: ZooKeeperSession, group: str) -> bool:
    """Return whether the group exists."""
    return session.znodes.exists(GroupPaths(group).root)


def list_users(session: ZooKeeperSession, group: str) -> list[str]:
    """Return ``GroupState.users`` without reading the other znodes of the group."""
    paths = GroupPaths(group)
    return _describe_users(session.znodes.children(paths.ids) or (), _read_application(session, paths))


def _read_application(session: ZooKeeperSession, paths: GroupPaths) -> str:
    node = session.znodes.get(paths.application)
    if node is None or not node.owner_session:  # a persistent znode belongs to no running application
        return ""
    return node.data.decode(errors="replace")


def _describe_application(process: str) -> str:
    return f"the StreamsApp in {process}" if process else ""


def _describe_users(consumer_ids: Iterable[str], application: str) -> list[str]:
    return list(filter(None, [*sorted(consumer_ids), _describe_application(application)]))


def check_exists(session: ZooKeeperSession, group: str) -> None:
    """Raise ``ToolError`` if the group does not exist."""
    if not exists(session, group):
        raise ToolError(f"group {group!r} does not exist in ZooKeeper at {session.hosts!r}")


def read(session: ZooKeeperSession, group: str) -> GroupState:
    """Read the znodes of a group."""
    paths, state = GroupPaths(group), GroupState(group)
    state.application = _read_application(session, paths)
    for consumer_id, node in _children(session, paths.ids):
        path = paths.registration(consumer_id)
        state.written_at[path] = node.modified
        state.sessions[consumer_id] = node.owner_session
        state.registrations[consumer_id] = node.data
        try:
            state.members[consumer_id] = Registration.from_json(path, node.data)
        except RegistrationError as error:
            state.unreadable[path] = str(error)
    for partition, _, node in _partitions(session, f"{paths.root}/owners", state):
        state.owners[partition] = parse_owner(node.data)[:_MAX_OWNER_LENGTH]
        state.owner_sessions[partition] = node.owner_session
    for partition, path, node in _partitions(session, f"{paths.root}/offsets", state):
        try:
            state.offsets[partition] = parse_offset(path, node.data)
            state.stored_at[partition] = node.modified
        except ZkConsumerError as error:
            state.unreadable[path] = str(error)
            continue
        if node.data and state.offsets[partition] < 0:
            state.negative_offsets[partition] = node.data.decode().strip()
    return state


def _partitions(
    session: ZooKeeperSession, parent: str, state: GroupState
) -> Iterable[tuple[TopicPartition, str, Znode]]:
    for topic in session.znodes.children(parent) or ():
        for name, node in _children(session, f"{parent}/{topic}"):
            path = f"{parent}/{topic}/{name}"
            state.written_at[path] = node.modified
            number = parse_partition_number(name)
            if number is not None:
                yield TopicPartition(topic, number), path, node
            else:
                state.unreadable[path] = f"{path}: the name must be a partition number, got {excerpt(name)}"


def _children(session: ZooKeeperSession, parent: str) -> list[tuple[str, Znode]]:
    names = session.znodes.children(parent) or []
    nodes = session.znodes.get_many([f"{parent}/{name}" for name in names])
    return [(name, node) for name, node in zip(names, nodes, strict=True) if node is not None]


def list_partitions(cluster: Cluster, topics: Iterable[str]) -> list[TopicPartition]:
    """Return the sorted partitions of ``topics``, ignoring topics that do not exist."""
    numbers_by_topic = cluster.partitions(sorted(set(topics)))
    return [TopicPartition(topic, number) for topic, numbers in sorted(numbers_by_topic.items()) for number in numbers]


def log_offsets(
    logs: LogOffsets, partitions: Iterable[TopicPartition], timestamp: int
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, str]]:
    """Query log offsets with one request per leader. An unavailable leader affects only its own partitions.

    Args:
        logs: client for the queries.
        partitions: partitions to query.
        timestamp: ``EARLIEST``, ``LATEST`` or milliseconds since the epoch.

    Returns:
        The offset of each partition whose query succeeded, and an error message for each of the other partitions.
    """
    requested = list(partitions)
    try:
        offsets, errors = logs.look_up(requested, timestamp)
    except RetriableError as error:  # the leaders could not be looked up
        return {}, dict.fromkeys(requested, str(error))
    return offsets, {partition: str(error) for partition, error in sorted(errors.items())}


def in_kafka(
    coordinator: GroupCoordinator, partitions: Sequence[TopicPartition], *, backoff_s: float | None = 0.5
) -> tuple[dict[TopicPartition, int], list[str]]:
    """Return the offsets committed to Kafka for the partitions, and a note if they could not be fetched.

    Args:
        backoff_s: seconds between two attempts, see ``common.retrying``; None for a single attempt.
    """
    fetch = coordinator.fetch_offsets if backoff_s is None else retrying(backoff_s).wraps(coordinator.fetch_offsets)
    try:
        return (fetch(partitions) if partitions else {}), []
    except ZkConsumerError as error:
        return {}, [f"Could not fetch offsets from Kafka: {error}"]


def offsets(
    state: GroupState, partitions: Sequence[TopicPartition], kafka: Mapping[TopicPartition, int]
) -> tuple[dict[TopicPartition, int], list[str]]:
    """Return the committed offset of each partition: from Kafka if there is one, otherwise from ZooKeeper.

    Returns:
        The offset of each partition, -1 if there is none; and a note for each partition that is omitted because its
        offset znode is malformed.
    """
    committed, notes = {}, []
    for partition in partitions:
        path = GroupPaths(state.group).offset(partition)
        if path in state.unreadable:
            notes.append(f"Could not fetch offset for {partition} due to {state.unreadable[path]}.")
            continue
        offset = kafka.get(partition, -1)
        committed[partition] = offset if offset >= 0 else state.offsets.get(partition, -1)
    return committed, notes


def furthest(
    state: GroupState, partitions: Sequence[TopicPartition], kafka: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return the higher of the committed offsets in Kafka and ZooKeeper, for each partition with a committed offset.

    If ``offsets.storage`` was changed, the previous storage contains outdated offsets.
    """
    highest = {p: max(kafka.get(p, -1), state.offsets.get(p, -1)) for p in partitions}
    return {partition: offset for partition, offset in highest.items() if offset >= 0}


def differing_offsets(state: GroupState, kafka: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int, int]]:
    """Return both committed offsets of each partition that has different offsets in Kafka and ZooKeeper."""
    both = {p: (offset, state.offsets.get(p, -1)) for p, offset in sorted(kafka.items())}
    return {p: pair for p, pair in both.items() if min(pair) >= 0 and pair[0] != pair[1]}


def describe_differing(differing: Mapping[TopicPartition, tuple[int, int]]) -> str:
    """Return a message about offsets that differ between Kafka and ZooKeeper."""
    partition, (kafka, zookeeper) = next(iter(differing.items()))
    return (
        f"the committed offsets in Kafka and in ZooKeeper differ for {count(len(differing), 'partition')} "
        f"({partition}: {kafka} in Kafka, {zookeeper} in ZooKeeper)"
    )
