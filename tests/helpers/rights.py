"""Rights that a test withdraws from all clients and gives back, and the combinations that tests cover."""

from __future__ import annotations

import enum
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, NamedTuple

from kafka.admin import ACL, ACLFilter, ACLOperation, ACLPermissionType, KafkaAdminClient, ResourcePattern, ResourceType
from kazoo.client import KazooClient
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl

from helpers.configurations import plaintext
from helpers.waiting import TIMEOUT_S, wait_for
from zkconsumer import TopicPartition
from zkconsumer.devcluster import DevCluster
from zkconsumer.devcluster.cluster import DEFAULT_KAFKA
from zkconsumer.offsets.coordinator import GroupCoordinator
from zkconsumer.zookeeper.registry import GroupPaths

#: Credentials of the owner of znodes whose rights are withdrawn.
_OWNER = ("owner", "secret")


class Right(enum.Enum):
    """A right of a consumer."""

    DESCRIBE = "describe"  # the topic
    READ = "read"  # the topic
    GROUP = "group"  # read and write the group's offsets


class Moment(enum.Enum):
    """When a right is withdrawn."""

    START = "start"
    RUN = "run"
    REBALANCE = "rebalance"
    REPLAY = "replay"


class Brokers(enum.Enum):
    """The mode of the brokers, and where clients find metadata."""

    ZOOKEEPER = "zookeeper"
    ZOOKEEPER_BOOTSTRAP = "zookeeper-bootstrap"
    KRAFT = "kraft"


class Case(NamedTuple):
    """A combination that a test covers; ``right`` is withdrawn at ``moment``."""

    client: str
    right: Right
    moment: Moment
    brokers: Brokers

    def __str__(self) -> str:
        return "-".join([self.client, self.right.value, self.moment.value, self.brokers.value])


def cases(clients: Mapping[str, Sequence[Moment]]) -> Iterator[Case]:
    """Yield each client, right and moment with both kinds of brokers.

    With brokers in ZooKeeper mode, ``bootstrap.servers`` is set in every second case, so that each pair of values
    occurs with and without it.

    Args:
        clients: the moments that a kind of client has.
    """
    for (a, client), (b, right), (c, moment) in itertools.product(
        enumerate(clients), enumerate(Right), enumerate(Moment)
    ):
        if moment in clients[client]:
            yield Case(client, right, moment, [Brokers.ZOOKEEPER, Brokers.ZOOKEEPER_BOOTSTRAP][(a + b + c) % 2])
            yield Case(client, right, moment, Brokers.KRAFT)


def authorizing_cluster(*, kraft: bool) -> DevCluster:
    """Return a cluster whose broker checks ACLs; clients have the rights that no ACL concerns."""
    name = (
        "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
        if kraft
        else "kafka.security.authorizer.AclAuthorizer"
    )
    config = {"authorizer.class.name": name, "allow.everyone.if.no.acl.found": "true"}
    return DevCluster(broker_config=config, kafka="4.4.0" if kraft else DEFAULT_KAFKA)


def allow_only(cluster: DevCluster, resource: ResourcePattern, operations: Iterable[ACLOperation]) -> None:
    """Grant all principals only these operations on a resource."""
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    try:
        rules = [ACL("User:*", "*", one, ACLPermissionType.ALLOW, resource) for one in operations]
        admin.create_acls(rules)
        any_rule = ACLFilter(None, None, ACLOperation.ANY, ACLPermissionType.ANY, resource)
        wait_for(lambda: len(admin.describe_acls(any_rule)[0]) >= len(rules), what="the broker applies the ACLs")
    finally:
        admin.close()


def find_committed(cluster: DevCluster, group: str, partition: TopicPartition) -> int:
    """Return the committed offset of a partition; -1 without one."""
    coordinator = GroupCoordinator(group, lambda: [broker.endpoint for broker in cluster.brokers], plaintext(10))
    try:
        return coordinator.fetch_offsets([partition])[partition]
    finally:
        coordinator.close()


def running_clusters() -> Iterator[Callable[[Brokers], DevCluster]]:
    """Yield a function that returns an authorizing cluster of a kind; a fixture stops those that were started."""
    with ExitStack() as stack:
        started: dict[bool, DevCluster] = {}

        def cluster(brokers: Brokers) -> DevCluster:
            kraft = brokers is Brokers.KRAFT
            if kraft not in started:
                started[kraft] = stack.enter_context(authorizing_cluster(kraft=kraft))
            return started[kraft]

        yield cluster


class Rights:
    """Withdraws rights to a topic and a group; ``with`` gives them back at the end.

    The offsets are in Kafka if the brokers are in KRaft mode, else in ZooKeeper. Batch reads support only the latter.
    """

    def __init__(self, cluster: DevCluster, case: Case, topic: str, group: str) -> None:
        self._group = group
        self._brokers = [broker.endpoint for broker in cluster.brokers]
        self._topic_resource = ResourcePattern(ResourceType.TOPIC, topic)
        self._group_resource = ResourcePattern(ResourceType.GROUP, group)
        self._case = case
        self._is_in_kafka = case.brokers is Brokers.KRAFT and case.client != "batch"
        self._admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
        self._zk = KazooClient(cluster.zookeeper_connect, auth_data=[("digest", ":".join(_OWNER))], timeout=30)
        self._zk.start(timeout=TIMEOUT_S)
        self._withdrawn: Right | None = None
        # As soon as a resource has an ACL, only rights that ACLs grant are allowed.
        self._admin.create_acls(
            [
                ACL("User:*", "*", ACLOperation.ALL, ACLPermissionType.ALLOW, resource)
                for resource in (self._topic_resource, self._group_resource)
            ]
        )

    def __enter__(self) -> Rights:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.restore()
        self._admin.close()
        self._zk.stop()
        self._zk.close()

    @property
    def settings(self) -> dict[str, str]:
        """Properties of a consumer: where it finds metadata, and where it stores its offsets."""
        settings = {}
        if self._case.brokers is not Brokers.ZOOKEEPER:
            settings["bootstrap.servers"] = ",".join(map(str, self._brokers))
        if self._is_in_kafka:
            settings |= {"offsets.storage": "kafka", "dual.commit.enabled": "false"}
        return settings

    def withdraw(self, right: Right) -> None:
        """Withdraw a right, and wait until it is denied."""
        assert self._withdrawn is None
        self._withdrawn = right
        if right is Right.GROUP and not self._is_in_kafka:
            self._set_acls([make_digest_acl(*_OWNER, all=True)])
        else:
            self._admin.create_acls([self._denial(right)])
            wait_for(lambda: self._is_denied(right), what="the broker denies the right")

    def restore(self) -> None:
        """Give the right back that was withdrawn, if any."""
        right = self._withdrawn
        if right is Right.GROUP and not self._is_in_kafka:
            self._set_acls(OPEN_ACL_UNSAFE)
        elif right is not None:
            self._admin.delete_acls([_filter_of(self._denial(right))])
            wait_for(lambda: not self._is_denied(right), what="the broker grants the right")
        self._withdrawn = None

    @property
    def is_withdrawn(self) -> bool:
        """Whether a right is missing now."""
        return self._withdrawn is not None

    def committed(self) -> dict[int, int]:
        """Return the committed offsets of both partitions, -1 for none; requires the right to a group in Kafka."""
        partitions = [TopicPartition(self._topic_resource.resource_name, number) for number in range(2)]
        if self._is_in_kafka:
            coordinator = GroupCoordinator(self._group, lambda: self._brokers, plaintext(10))
            try:
                return {p.partition: offset for p, offset in coordinator.fetch_offsets(partitions).items()}
            finally:
                coordinator.close()
        offsets = {}
        for partition in partitions:
            path = GroupPaths(self._group).offset(partition)
            offsets[partition.partition] = int(self._zk.get(path)[0]) if self._zk.exists(path) else -1
        return offsets

    def _is_denied(self, right: Right) -> bool:
        found, _error = self._admin.describe_acls(_filter_of(self._denial(right)))
        return bool(found)

    def _denial(self, right: Right) -> ACL:
        operation = {Right.DESCRIBE: ACLOperation.DESCRIBE, Right.READ: ACLOperation.READ}.get(right, ACLOperation.ALL)
        resource = self._group_resource if right is Right.GROUP else self._topic_resource
        return ACL("User:*", "*", operation, ACLPermissionType.DENY, resource)

    def _set_acls(self, acls: Sequence[Any]) -> None:
        root = f"/consumers/{self._group}/offsets"
        self._zk.ensure_path(root)
        for path in [root, *self._descendants(root)]:
            self._zk.set_acls(path, acls)

    def _descendants(self, path: str) -> Iterator[str]:
        for child in self._zk.get_children(path):
            yield f"{path}/{child}"
            yield from self._descendants(f"{path}/{child}")


def _filter_of(acl: ACL) -> ACLFilter:
    return ACLFilter(acl.principal, acl.host, acl.operation, acl.permission_type, acl.resource_pattern)
