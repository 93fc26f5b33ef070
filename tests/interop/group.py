"""The znodes of a group."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from zkconsumer import TopicPartition
from zkconsumer.rebalance.assignors import assign_range, group_threads_by_topic
from zkconsumer.zookeeper.registry import GroupPaths, Registration, parse_partitions, topic_path


class Node(NamedTuple):
    """A znode: its content, and the session that owns it (0 if it is not ephemeral)."""

    data: bytes
    session: int


class Group:
    """Reads the znodes of a group that reads one topic."""

    def __init__(self, zk: KazooClient, name: str, topic: str) -> None:
        self.name = name
        self.topic = topic
        self.paths = GroupPaths(name)
        self._zk = zk

    def __repr__(self) -> str:
        members = {name: f"{node.session:#x}" for name, node in self.registrations().items()}
        return f"members {members}, owners {self.shares()}, offsets {self.stored()}"

    def consumer_id(self, configured: str) -> str:
        """Return the consumer id of the member with the property ``consumer.id``."""
        return f"{self.name}_{configured}"

    def registrations(self) -> dict[str, Node]:
        """Return the registration of each member."""
        return self._children(self.paths.ids)

    def owners(self) -> dict[int, Node]:
        """Return the owner znode of each partition that has one."""
        return {int(name): node for name, node in self._children(self.paths.owners(self.topic)).items()}

    def stored(self) -> dict[int, int]:
        """Return the committed offset of each partition that has one."""
        parent = self.paths.offset(TopicPartition(self.topic, 0)).rpartition("/")[0]
        return {int(name): int(node.data) for name, node in self._children(parent).items()}

    def predicted(self, registrations: dict[str, Node]) -> dict[int, str]:
        """Return the thread id to which the range assignor assigns each partition."""
        path = topic_path(self.topic)
        partitions = {self.topic: parse_partitions(self.topic, self._zk.get(path)[0])}
        members = {name: Registration.from_json(name, node.data) for name, node in registrations.items()}
        assignment = assign_range(partitions, group_threads_by_topic(members, [self.topic]))
        return {partition.partition: thread for partition, thread in assignment.items()}

    def is_balanced(self, consumer_ids: Collection[str]) -> bool:
        """Whether these are all members, and own their assigned partitions in their current sessions."""
        registrations = self.registrations()
        if registrations.keys() != set(consumer_ids):
            return False
        wanted = {
            partition: Node(thread.encode(), registrations[thread.rpartition("-")[0]].session)
            for partition, thread in self.predicted(registrations).items()
        }
        return self.owners() == wanted

    def shares(self) -> dict[str, list[int]]:
        """Return the partitions that each member owns."""
        found: dict[str, list[int]] = {}
        for partition, node in sorted(self.owners().items()):
            found.setdefault(node.data.decode().rpartition("-")[0], []).append(partition)
        return found

    def _children(self, path: str) -> dict[str, Node]:
        found = {}
        try:
            for name in self._zk.get_children(path):
                try:
                    data, stat = self._zk.get(f"{path}/{name}")
                except NoNodeError:
                    continue
                found[name] = Node(data or b"", stat.ephemeralOwner)
        except NoNodeError:
            pass
        return found
