"""AssignmentContext: computes the group's assignment from the registrations and the topics' partitions.

Source: Kafka 1.1 kafka.consumer.AssignmentContext, TopicCount, ZkUtils.getConsumersPerTopic.
"""

from __future__ import annotations

from collections.abc import Mapping

from zkconsumer.broker.cluster import Cluster
from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import ConfigurationError, RegistrationError, RetriableError
from zkconsumer.log import get_logger
from zkconsumer.message import TopicPartition
from zkconsumer.rebalance.assignors import STRATEGIES, Assignment, assign, threads_by_topic
from zkconsumer.rebalance.topic_filter import TopicFilter, filter_of
from zkconsumer.zookeeper.registry import GroupPaths, Registration, is_valid_topic_name
from zkconsumer.zookeeper.session import ZooKeeperSession


class AssignmentContext:
    """Reads the group's registrations and the topics' partitions, and sets a watch on everything it reads.

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
        self._log = get_logger("zkconsumer.rebalance", group=config.group_id, consumer_id=consumer_id)
        self._reported_missing: list[str] = []

    def assignment(self) -> Assignment:
        """Return the assignment: of this member's topics with ``range``, else of all topics of the group.

        Raises:
            RegistrationError: another member's registration cannot be parsed, or its filter cannot be evaluated.
            AssignmentError: see ``assign_roundrobin``.
        """
        threads, partitions = self._read_group()
        return assign(self._strategy, self._order, partitions, threads)

    def own_part(self, assignment: Assignment) -> Assignment:
        """Return the part of an assignment that belongs to this member."""
        prefix = f"{self._consumer_id}-"
        return {p: t for p, t in assignment.items() if t.startswith(prefix) and t[len(prefix) :].isdigit()}

    def find_strategy_mismatch(self) -> str | None:
        """Return a description if the other members use another assignment strategy, else None.

        Registrations do not contain the strategy, so it is inferred from the owner znodes. Called when another member
        does not release a partition that is assigned to this one.
        """
        threads, partitions = self._read_group()
        expected = assign(self._strategy, self._order, partitions, threads)
        owners = self._read_foreign_owners(partitions)
        if not owners or all(expected.get(p) == thread for p, thread in owners.items()):
            return None
        for strategy, order in STRATEGIES:
            if order == "0.8.2":
                continue  # the same assignment as 0.10.2, unless it raises an error
            candidate = assign(strategy, order, partitions, threads)
            if all(candidate.get(p) == thread for p, thread in owners.items()):
                return (
                    "the partitions of the other consumers are assigned by "
                    f"partition.assignment.strategy={_describe(strategy, order)}, but this consumer uses "
                    f"{_describe(self._strategy, self._order)}; every member of a group must use the same strategy"
                )
        return None

    def _read_foreign_owners(self, partitions: Mapping[str, list[int]]) -> Assignment:
        wanted = [TopicPartition(topic, number) for topic, numbers in partitions.items() for number in numbers]
        nodes = self._session.znodes.get_many([self._paths.owner(partition) for partition in wanted])
        owners = {p: node.data.decode(errors="replace") for p, node in zip(wanted, nodes, strict=True) if node}
        return {p: thread for p, thread in owners.items() if thread.rpartition("-")[0] != self._consumer_id}

    def _read_group(self) -> tuple[dict[str, list[str]], dict[str, list[int]]]:
        """Return the thread ids that subscribe to each topic, and the partitions of each topic."""
        members = self._read_registrations()
        whole_group = self._strategy == "roundrobin"  # its result depends on the topics of all members
        existing: list[str] = []
        if self._own_filter or (whole_group and any(member.is_filter for member in members.values())):
            existing = self._cluster.topics()
        named = {topic for member in members.values() if not member.is_filter for topic in member.subscription}
        named = {topic for topic in named if is_valid_topic_name(topic)}  # a JVM member accepts invalid names
        if whole_group:
            topics = sorted(named.union(existing))
        elif self._own_filter:
            topics = [topic for topic in existing if self._is_allowed(self._own_filter, topic)]
        else:
            topics = sorted(self._registration.subscription)
        resolved = {name: self._resolve_filter(name, member, topics) for name, member in members.items()}
        threads = {topic: ids for topic, ids in threads_by_topic(resolved, topics).items() if ids}
        partitions = self._cluster.partitions(sorted(threads))
        self._report_missing(sorted(set(self._registration.subscription) - partitions.keys()))
        return threads, partitions

    def _report_missing(self, topics: list[str]) -> None:
        """Log the topics of the subscription that do not exist; log them again only if they change."""
        if self._own_filter or topics == self._reported_missing:
            return
        self._reported_missing = topics
        if topics:
            remedy = "create the topic; it is consumed as soon as it exists"
            if not self._cluster.brokers():
                remedy = (
                    "no broker is registered in ZooKeeper; set bootstrap.servers if the cluster does not use ZooKeeper"
                )
            self._log.warning("topic_missing", topics=topics, remedy=remedy)

    def _read_registrations(self) -> dict[str, Registration]:
        ids = self._session.znodes.children(self._paths.ids, watch=True) or []
        members = {}
        paths = [self._paths.registration(consumer_id) for consumer_id in ids]
        for consumer_id, path, node in zip(ids, paths, self._session.znodes.get_many(paths), strict=True):
            if node is None:
                continue  # deleted since the children were read; the watch on the parent has fired
            try:
                members[consumer_id] = Registration.from_json(path, node.data)
            except RegistrationError:
                self._session.znodes.get(path, watch=True)  # retry when the content changes
                raise
        if self._consumer_id not in members:
            path = self._paths.registration(self._consumer_id)
            raise RetriableError(f"znode {path} was deleted externally; re-creating it")
        return members

    def _resolve_filter(self, consumer_id: str, registration: Registration, topics: list[str]) -> Registration:
        """Return the registration with its topic filter, if it has one, replaced by those of ``topics`` that match."""
        if not registration.is_filter:
            return registration
        [(regex, streams)] = registration.subscription.items()
        try:
            topic_filter = filter_of(registration)
        except ConfigurationError as error:
            path = self._paths.registration(consumer_id)
            self._session.znodes.get(path, watch=True)  # retry when the content changes
            raise RegistrationError(
                f"{path}: {error}. No partitions are claimed while that consumer is in the group; configure it with a "
                f"list of topics instead of the filter {regex!r}"
            ) from error
        return Registration({topic: streams for topic in topics if self._is_allowed(topic_filter, topic)})

    def _is_allowed(self, topic_filter: TopicFilter, topic: str) -> bool:
        return topic_filter.is_topic_allowed(topic, self._exclude_internal)


def _describe(strategy: str, order: str) -> str:
    return f"{strategy} with roundrobin.order={order}" if strategy == "roundrobin" else strategy
