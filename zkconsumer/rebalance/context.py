"""AssignmentContext: computes the group's assignment from the members' registrations and the topics' partitions.

Source: Kafka 1.1 kafka.consumer.AssignmentContext, TopicCount, ZkUtils.getConsumersPerTopic.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import ConfigurationError, RegistrationError, RetriableError
from zkconsumer.excerpt import excerpt
from zkconsumer.log import get_logger
from zkconsumer.message import TopicPartition
from zkconsumer.metadata.base import Cluster
from zkconsumer.rebalance.assignors import Assignment, assign, candidate_assignments, group_threads_by_topic
from zkconsumer.topic_filter import Blacklist, TopicFilter, Whitelist
from zkconsumer.zookeeper.registry import GroupPaths, Registration, consumer_of, is_valid_topic_name, parse_owner
from zkconsumer.zookeeper.session import ZooKeeperSession

#: Seconds for which a claim must keep failing before its cause is checked, and minimum seconds between two checks.
_EXAMINE_AFTER_S = 1.0
_EXAMINE_INTERVAL_S = 30.0


class _TopicSource(Protocol):
    """The part of ``Cluster`` that is required to compute an assignment."""

    def topics(self) -> list[str]: ...

    def partitions(self, topics: Sequence[str]) -> dict[str, list[int]]: ...


class _LastLookup:
    """Topics and partitions found by the last successful lookups."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.existing: dict[str, list[int]] = {}

    def topics(self) -> list[str]:
        return self.names

    def partitions(self, topics: Sequence[str]) -> dict[str, list[int]]:
        return {topic: self.existing[topic] for topic in topics if topic in self.existing}


class AssignmentContext:
    """Computes the group's assignment from the registrations and the topics' partitions.

    Sets watches that report new and departed members and, unless the partitions are requested from brokers, changes to
    topics and partitions. Used by the member thread.
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
        self._own_filter = create_filter(registration) if registration.is_filter else None
        self._session = session
        self._cluster = cluster
        self._last_lookup = _LastLookup()
        self._paths = GroupPaths(config.group_id)
        self._log = get_logger("zkconsumer.rebalance", group=config.group_id, consumer_id=consumer_id)
        self._reported_missing: list[str] = []
        #: Owner znode that blocked the last claim, and ``time.monotonic()`` after which the conflict is checked.
        self._conflict_path = ""
        self._examine_at = 0.0
        self._mismatch: str | None = None

    def compute_assignments(self) -> Iterator[Assignment]:
        """Yield the group's assignment.

        With ``roundrobin``, it includes all topics of the group; with the other strategies, only this member's topics.

        If the partitions are requested from brokers, and some are known from an earlier request, an assignment of the
        known partitions is yielded first. The partitions that it revokes can be released even if no broker responds. It
        must not be used to claim partitions.

        Raises:
            RegistrationError: another member's registration cannot be parsed, or its filter cannot be evaluated.
            AssignmentError: see ``assign_roundrobin``.
            RetriableError: the partitions could not be looked up, or this member's registration was deleted.
        """
        if self._known is not self._cluster:
            yield self._assign(self._known)
        yield self._assign(self._cluster)

    @property
    def _known(self) -> _TopicSource:
        """The last known topics if topics are requested from brokers and any are known, otherwise the current ones."""
        has_known = self._last_lookup.existing and self._cluster.poll_interval_s is not None
        return self._last_lookup if has_known else self._cluster

    def _assign(self, cluster: _TopicSource) -> Assignment:
        threads, partitions = self._read_group(cluster)
        return assign(self._strategy, self._order, partitions, threads)

    def select_own(self, assignment: Assignment) -> Assignment:
        """Return this member's part of an assignment."""
        prefix = f"{self._consumer_id}-"
        return {p: t for p, t in assignment.items() if t.startswith(prefix) and t[len(prefix) :].isdigit()}

    def find_strategy_mismatch(self, path: str) -> str | None:
        """Return a description of the strategy mismatch if other members assign partitions differently, otherwise None.

        Called when another member does not release a partition that is assigned to this member. That is normal during a
        rebalance, and the check reads all registrations and owner znodes. Therefore, the check is done only if the same
        claim keeps failing, and then at long intervals; in between, the last result is returned.

        See docs/decisions/04-detect-assignment-order.rst.

        Args:
            path: path of the partition's owner znode.
        """
        now = time.monotonic()
        if path != self._conflict_path:
            self._conflict_path, self._examine_at, self._mismatch = path, now + _EXAMINE_AFTER_S, None
        if now >= self._examine_at:
            self._examine_at = now + _EXAMINE_INTERVAL_S
            self._mismatch = self._infer_mismatch()
        return self._mismatch

    def _infer_mismatch(self) -> str | None:
        """Return a description of the mismatch that the owner znodes show, or None if they show none.

        Registrations do not contain the members' strategies.
        """
        threads, partitions = self._read_group(self._known)  # the metadata on which the failed claim was based
        expected = assign(self._strategy, self._order, partitions, threads)
        owners = self._read_foreign_owners(partitions)
        if not owners or all(expected.get(p) == thread for p, thread in owners.items()):
            return None
        for strategy, order, candidate in candidate_assignments(partitions, threads):
            if owners.items() <= candidate.items():
                return (
                    "the other consumers assign partitions with "
                    f"partition.assignment.strategy={_describe(strategy, order)}, but this consumer uses "
                    f"{_describe(self._strategy, self._order)}; every member of a group must use the same strategy"
                )
        bare = sorted(set(owners.values()) & self._read_registrations().keys())
        if bare:
            return (
                f"consumer {excerpt(bare[0])} is another kind of client: its owner znodes contain its consumer id "
                "without a thread number. It may assign partitions differently, so some partitions may never be "
                "released or consumed; use only JVM consumers and zkconsumer in the group"
            )
        return None

    def _read_foreign_owners(self, partitions: Mapping[str, list[int]]) -> Assignment:
        wanted = [TopicPartition(topic, number) for topic, numbers in partitions.items() for number in numbers]
        nodes = self._session.znodes.get_many([self._paths.owner(partition) for partition in wanted])
        owners = {p: parse_owner(node.data) for p, node in zip(wanted, nodes, strict=True) if node}
        return {p: thread for p, thread in owners.items() if consumer_of(thread) != self._consumer_id}

    def _read_group(self, cluster: _TopicSource) -> tuple[dict[str, list[str]], dict[str, list[int]]]:
        """Return the subscribed thread ids and the partitions of each topic."""
        members = self._read_registrations()
        whole_group = self._strategy == "roundrobin"  # round-robin depends on the topics of all members
        existing: list[str] = []
        if self._own_filter or (whole_group and any(member.is_filter for member in members.values())):
            existing = cluster.topics()
        named = {topic for member in members.values() if not member.is_filter for topic in member.subscription}
        named = {topic for topic in named if is_valid_topic_name(topic)}  # JVM members may register invalid names
        own = sorted(self._registration.subscription)
        if self._own_filter:
            own = self._own_filter.select(existing, self._exclude_internal)
        topics = sorted(named.union(existing)) if whole_group else own
        resolved = {name: self._resolve_filter(name, member, topics) for name, member in members.items()}
        threads = {topic: ids for topic, ids in group_threads_by_topic(resolved, topics).items() if ids}
        partitions = cluster.partitions(sorted(threads))
        if cluster is self._cluster:
            self._last_lookup.names, self._last_lookup.existing = existing, partitions
            self._report_missing(sorted(set(self._registration.subscription) - partitions.keys()))
        return threads, partitions

    def _report_missing(self, topics: list[str]) -> None:
        """Log the subscribed topics that do not exist, unless the same topics were logged by the last call."""
        if self._own_filter or topics == self._reported_missing:
            return
        self._reported_missing = topics
        if topics:
            remedy = "create the topics; each is consumed once it exists"
            if not self._cluster.brokers():
                remedy = (
                    "no broker is registered in ZooKeeper; set bootstrap.servers if the cluster does not use ZooKeeper"
                )
            self._log.warning("topics_missing", topics=topics, remedy=remedy)

    def _read_registrations(self) -> dict[str, Registration]:
        ids = self._session.znodes.children(self._paths.ids, watch=True) or []
        members = {}
        paths = [self._paths.registration(consumer_id) for consumer_id in ids]
        for consumer_id, path, node in zip(ids, paths, self._session.znodes.get_many(paths), strict=True):
            if node is None:
                continue  # deleted after the children were read, so the watch on the parent has fired
            try:
                members[consumer_id] = Registration.from_json(path, node.data)
            except RegistrationError:
                self._session.znodes.get(path, watch=True)  # the watch triggers a retry when the znode changes
                raise
        if self._consumer_id not in members:
            path = self._paths.registration(self._consumer_id)
            raise RetriableError(f"znode {path} was deleted externally; re-creating it")
        return members

    def _resolve_filter(self, consumer_id: str, registration: Registration, topics: list[str]) -> Registration:
        """Return the registration; a topic filter is replaced with the ``topics`` that it selects."""
        path = self._paths.registration(consumer_id)
        try:
            return resolve_filter(path, registration, topics, self._exclude_internal)
        except RegistrationError:
            self._session.znodes.get(path, watch=True)  # the watch triggers a retry when the znode changes
            raise


def resolve_filter(
    path: str, registration: Registration, topics: Sequence[str], exclude_internal: bool = True
) -> Registration:
    """Return ``registration``; a topic filter is replaced with the ``topics`` that it selects.

    Args:
        path: path of the registration znode, used in the error message.
        registration: registration of any member.
        topics: existing topics.
        exclude_internal: whether filters exclude ``INTERNAL_TOPICS``.

    Raises:
        RegistrationError: the filter cannot be evaluated.
    """
    if not registration.is_filter:
        return registration
    [streams] = registration.subscription.values()
    try:
        return Registration(dict.fromkeys(create_filter(registration).select(topics, exclude_internal), streams))
    except ConfigurationError as error:
        raise RegistrationError(
            f"{path}: {error}. No partitions are claimed while this registration exists; configure its consumer with a "
            "list of topics instead of the filter"
        ) from error


def create_filter(registration: Registration) -> TopicFilter:
    """Create the topic filter for a registration whose ``is_filter`` is true."""
    [text] = registration.subscription
    return Whitelist(text) if registration.pattern == "white_list" else Blacklist(text)


def _describe(strategy: str, order: str) -> str:
    return f"{strategy} with roundrobin.order={order}" if strategy == "roundrobin" else strategy
