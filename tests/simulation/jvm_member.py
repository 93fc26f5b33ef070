"""JvmMember: a member that behaves as Kafka's old JVM consumer: it claims partitions one by one, and has no lease.

Source: Kafka 1.1 ZookeeperConsumerConnector.syncedRebalance, reflectPartitionOwnershipDecision.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError
from kazoo.handlers import utils
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState

from zkconsumer.errors import ZkConsumerError
from zkconsumer.message import TopicPartition
from zkconsumer.rebalance.assignors import assign_range, group_threads_by_topic
from zkconsumer.zookeeper.registry import GroupPaths, Registration, parse_partitions, topic_path

from .brokers import Brokers
from .kernel import Process, kernel
from .plan import MemberPlan
from .records import Records
from .threads import start_thread

_ATTEMPTS, _BACKOFF_S, _COMMIT_INTERVAL_S, _SESSION_S = 4, 2.0, 1.0, 6.0
_ERRORS = (KazooException, KazooTimeoutError, ZkConsumerError)

utils.HAS_FNCTL = False  # simulated sockets have no file descriptors


class JvmMember:
    """A process with a JVM member; see ``Application`` for the methods."""

    def __init__(
        self, plan: MemberPlan, process: Process, hosts: str, paths: GroupPaths, records: Records, brokers: Brokers
    ) -> None:
        self.process = process
        self.has_left = False
        self._paths, self._records, self._brokers = paths, records, brokers
        self._id = f"{paths.group}_{plan.name}"
        self._registration = Registration.static(dict.fromkeys(plan.topics, 1))
        self._hosts = hosts
        self._positions: dict[TopicPartition, int] = {}
        self.is_leaving = False
        self._must_rebalance = self._is_registered = False
        records.add_jvm(process)

    def start(self) -> None:
        """Start the process."""
        start_thread(self.process, "main", self._run)

    def leave(self) -> None:
        """Let the program end."""
        self.is_leaving = True

    def _run(self) -> None:
        client = KazooClient(self._hosts, timeout=_SESSION_S)
        client.add_listener(self._on_state)
        while True:
            with contextlib.suppress(KazooTimeoutError):
                client.start(30)
                break
        while not self.is_leaving:
            try:
                self._step(client)
            except _ERRORS as error:
                self._records.note(f"{self.process} failed: {error!r}")
                self._must_rebalance = True
            kernel().sleep(_COMMIT_INTERVAL_S)
        client.stop()
        client.close()
        self.has_left = True

    def _on_state(self, state: str) -> None:
        if state == KazooState.LOST:
            self._is_registered = False
            self._positions.clear()
        self._must_rebalance = True

    def _on_change(self, _event: object) -> None:
        self._must_rebalance = True

    def _step(self, client: KazooClient) -> None:
        if not client.connected:
            return
        if not self._is_registered:
            client.create(
                self._paths.registration(self._id), self._registration.to_json(), ephemeral=True, makepath=True
            )
            self._is_registered = self._must_rebalance = True
        if self._must_rebalance:
            self._must_rebalance = False
            if not any(self._rebalance(client) for _ in range(_ATTEMPTS)):
                self._must_rebalance = True
        self._consume(client)

    def _rebalance(self, client: KazooClient) -> bool:
        self._commit(client)
        self._release(client, list(self._positions))
        members = {}
        for name in client.get_children(self._paths.ids, watch=self._on_change):
            with contextlib.suppress(NoNodeError):
                path = self._paths.registration(name)
                members[name] = _expand(Registration.from_json(path, client.get(path)[0]))
        topics = sorted(self._registration.subscription)
        partitions: dict[str, Sequence[int]] = {}
        for topic in topics:
            client.exists(topic_path(topic), watch=self._on_change)
            with contextlib.suppress(NoNodeError):
                partitions[topic] = parse_partitions(topic, client.get(topic_path(topic))[0])
        assignment = assign_range(partitions, group_threads_by_topic(members, topics))
        wanted = [partition for partition, thread in assignment.items() if thread == f"{self._id}-0"]
        claimed = []
        for partition in wanted:
            try:
                client.create(self._paths.owner(partition), f"{self._id}-0".encode(), ephemeral=True, makepath=True)
                claimed.append(partition)
            except NodeExistsError:
                self._release(client, claimed)
                kernel().sleep(_BACKOFF_S)
                return False
        for partition in claimed:
            offset = 0
            with contextlib.suppress(NoNodeError):
                offset = int(client.get(self._paths.offset(partition))[0] or b"0")
            self._positions[partition] = offset
        return True

    def _release(self, client: KazooClient, partitions: Sequence[TopicPartition]) -> None:
        for partition in partitions:
            self._positions.pop(partition, None)
            with contextlib.suppress(NoNodeError):
                client.delete(self._paths.owner(partition))

    def _consume(self, client: KazooClient) -> None:
        for partition, position in list(self._positions.items()):
            log = self._brokers.find(partition)
            for offset in range(position, log.end if log is not None else 0):
                assert log is not None
                self._records.deliver(self.process, partition, offset, log.identity[offset])
                self._positions[partition] = offset + 1
        self._commit(client)

    def _commit(self, client: KazooClient) -> None:
        for partition, position in list(self._positions.items()):
            path = self._paths.offset(partition)
            client.ensure_path(path)
            client.set(path, str(position).encode())


def _expand(registration: Registration) -> Registration:
    """Replace the filter of a stream of several topics by the topics."""
    names = "|".join(registration.subscription).split("|")
    return Registration.static(dict.fromkeys(names, 1))


__all__ = ["JvmMember"]
