"""AssignmentContext: what the members of a group ask for, and what each of them shall own.

Source: Kafka 1.1 kafka.consumer.AssignmentContext, TopicCount, ZkUtils.getConsumersPerTopic.
"""

from __future__ import annotations

from collections.abc import Mapping

from zkconsumer.broker.cluster import Cluster
from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import ConfigurationError, RegistrationError, RetriableError
from zkconsumer.log import get_logger
from zkconsumer.message import TopicPartition
from zkconsumer.rebalance.assignors import WAYS, Assignment, assign, threads_by_topic
from zkconsumer.rebalance.topic_filter import TopicFilter, filter_of
from zkconsumer.zookeeper.registry import GroupPaths, Registration, is_valid_topic_name
from zkconsumer.zookeeper.session import ZooKeeperSession


class AssignmentContext:
    """Reads the group's registrations and the topics' partitions; whatever the result depends on is watched.

    Used by the member's thread.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        consumer_id: str,
        registration: Registration,
        session: ZooKeeperSession,
        cluster: Cluster,
    ) -> None:
        self._strategy = config.partition_assignment_strategy
        self._order = config.roundrobin_order
        self._exclude_internal = config.exclude_internal_topics
        self._consumer_id = consumer_id
        self._registration = registration
        self._own_filter = filter_of(registration) if registration.is_filter else None
        self._session = session
        self._cluster = cluster
        self._paths = GroupPaths(config.group_id)
        self._log = get_logger("zkconsumer.rebalance", group=config.group_id, consumer=consumer_id)
        self._told_missing: list[str] = []

    def assignment(self) -> Assignment:
        """Return who shall own what: of this member's topics with ``range``, else of the whole group's.

        Raises:
            RegistrationError: another member's registration cannot be read, or its filter not be evaluated.
            AssignmentError: see ``assign_roundrobin``.
        """
        threads, partitions = self._read()
        return assign(self._strategy, self._order, partitions, threads)

    def mine(self, assignment: Assignment) -> Assignment:
        """Return the part of an assignment that is this member's."""
        prefix = f"{self._consumer_id}-"
        return {p: t for p, t in assignment.items() if t.startswith(prefix) and t[len(prefix) :].isdigit()}

    def contradiction(self) -> str | None:
        """Say which other order of dealing the owner znodes of the other members follow, if they do.

        The strategy stands in no registration, so only what members own tells it. Looked for when one of them does
        not release what this member shall own.
        """
        threads, partitions = self._read()
        ours = assign(self._strategy, self._order, partitions, threads)
        owners = self._foreign_owners(partitions)
        if not owners or all(ours.get(p) == thread for p, thread in owners.items()):
            return None
        for strategy, order in WAYS:
            if order == "0.8.2":
                continue  # deals as 0.10.2, where it deals at all
            theirs = assign(strategy, order, partitions, threads)
            if all(theirs.get(p) == thread for p, thread in owners.items()):
                return (
                    f"the other members own what partition.assignment.strategy={_way(strategy, order)} gives them, "
                    f"this one has {_way(self._strategy, self._order)}; all members of a group have to deal alike"
                )
        return None

    def _foreign_owners(self, partitions: Mapping[str, list[int]]) -> Assignment:
        wanted = [TopicPartition(topic, number) for topic, numbers in partitions.items() for number in numbers]
        nodes = self._session.znodes.get_many([self._paths.owner(partition) for partition in wanted])
        owners = {p: node.data.decode(errors="replace") for p, node in zip(wanted, nodes, strict=True) if node}
        return {p: thread for p, thread in owners.items() if thread.rpartition("-")[0] != self._consumer_id}

    def _read(self) -> tuple[dict[str, list[str]], dict[str, list[int]]]:
        """Return the thread ids that read each topic, and the topics' partitions."""
        members = self._read_members()
        whole_group = self._strategy == "roundrobin"  # deals over the topics of all
        existing: list[str] = []
        if self._own_filter or (whole_group and any(member.is_filter for member in members.values())):
            existing = self._cluster.topics()
        named = {topic for member in members.values() if not member.is_filter for topic in member.subscription}
        named = {topic for topic in named if is_valid_topic_name(topic)}  # others have no partitions
        if whole_group:
            topics = sorted(named.union(existing))
        elif self._own_filter:
            topics = [topic for topic in existing if self._allows(self._own_filter, topic)]
        else:
            topics = sorted(self._registration.subscription)
        static = {name: self._static(name, member, topics) for name, member in members.items()}
        threads = {topic: ids for topic, ids in threads_by_topic(static, topics).items() if ids}
        partitions = self._cluster.partitions(sorted(threads))
        self._tell_missing(sorted(set(self._registration.subscription) - partitions.keys()))
        return threads, partitions

    def _tell_missing(self, topics: list[str]) -> None:
        if self._own_filter or topics == self._told_missing:
            return
        self._told_missing = topics
        if topics:
            remedy = "it is consumed as soon as it exists"
            if not self._cluster.brokers():
                remedy = "no broker is registered in ZooKeeper; where Kafka runs without it, set bootstrap.servers"
            self._log.warning("topic_missing", topics=topics, remedy=remedy)

    def _read_members(self) -> dict[str, Registration]:
        ids = self._session.znodes.children(self._paths.ids, watch=True) or []
        members = {}
        paths = [self._paths.registration(consumer_id) for consumer_id in ids]
        for consumer_id, path, node in zip(ids, paths, self._session.znodes.get_many(paths), strict=True):
            if node is None:
                continue  # it left meanwhile; the watch on its parent has fired
            try:
                members[consumer_id] = Registration.from_json(path, node.data)
            except RegistrationError:
                self._session.znodes.get(path, watch=True)  # a new content is a new chance
                raise
        if self._consumer_id not in members:
            path = self._paths.registration(self._consumer_id)
            raise RetriableError(f"{path} was deleted by somebody; it is made again")
        return members

    def _static(self, consumer_id: str, registration: Registration, topics: list[str]) -> Registration:
        """Return what a registration, which may be a filter's, means for some topics."""
        if not registration.is_filter:
            return registration
        [(regex, streams)] = registration.subscription.items()
        try:
            theirs = filter_of(registration)
        except ConfigurationError as error:
            path = self._paths.registration(consumer_id)
            self._session.znodes.get(path, watch=True)
            raise RegistrationError(
                f"{path}: {error}; nothing new is claimed while that member is in the group. Have it name its "
                f"topics plainly instead of {regex!r}"
            ) from error
        return Registration({topic: streams for topic in topics if self._allows(theirs, topic)})

    def _allows(self, topics: TopicFilter, topic: str) -> bool:
        return topics.is_topic_allowed(topic, self._exclude_internal)


def _way(strategy: str, order: str) -> str:
    return f"{strategy} with roundrobin.order={order}" if strategy == "roundrobin" else strategy
