"""Cluster metadata from Metadata requests to the brokers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from zkconsumer.broker.connect import Connecting
from zkconsumer.broker.known_brokers import KnownBrokers
from zkconsumer.broker.leaders import LeaderLookup
from zkconsumer.broker.topics import Topic, TopicLookup, TopicStatus
from zkconsumer.config.types import split_list
from zkconsumer.errors import ConfigurationError
from zkconsumer.health import Problem
from zkconsumer.log import get_logger
from zkconsumer.message import Endpoint
from zkconsumer.metadata.base import FoundTopics

#: States of topics that exist or may exist.
_MAY_EXIST = (TopicStatus.EXISTS, TopicStatus.DENIED, TopicStatus.UNAVAILABLE)


class BootstrapCluster:
    """Metadata from the brokers, for KRaft clusters and Spark tasks.

    The thread rules are those of ``Cluster``; ``look_up_topic_ids`` uses its own connection. The connection to the last
    broker that responded is kept open. A topic keeps its last known partitions until it is considered deleted (see
    ``TopicLookup``), even if the client is no longer authorized to describe it.

    Args:
        servers: bootstrap servers.
        connecting: connection settings; the timeout limits a whole lookup, across all brokers.
        poll_interval_s: metadata polling interval in seconds.
        known: brokers named by the last Metadata response, if other clients of the cluster share them.
    """

    def __init__(
        self,
        servers: Sequence[Endpoint],
        connecting: Connecting,
        *,
        poll_interval_s: float | None = 30.0,
        known: KnownBrokers | None = None,
    ) -> None:
        self.poll_interval_s = poll_interval_s
        self.topic_ids: Mapping[str, str] = {}
        self.problems: Mapping[str, Problem] = {}
        self._servers = list(servers)
        self._known = known or KnownBrokers()
        self._leaders = LeaderLookup(connecting, self._known)
        self._topics = TopicLookup(self._leaders, self.brokers)
        self._id_leaders = LeaderLookup(connecting, self._known)
        self._id_topics = TopicLookup(self._id_leaders, self.brokers)
        self._log = get_logger("zkconsumer.cluster")

    def brokers(self) -> list[Endpoint]:
        """Return the brokers named by the last Metadata response, followed by the bootstrap servers."""
        return self._known.before(self._servers)

    def topics(self) -> list[str]:
        """Return the sorted names of all topics."""
        return sorted(topic.name for topic in self._select_existing(self._topics.list_topics()))

    def partitions(self, topics: Sequence[str]) -> dict[str, list[int]]:
        """Return the sorted partitions of each existing topic."""
        found = self._topics.look_up(topics)
        existing = self._select_existing(found)
        known = {topic.name for topic in existing}
        for topic in found.values():
            if topic.name not in known and topic.status in (TopicStatus.DENIED, TopicStatus.UNAVAILABLE):
                raise topic.error()
        self.topic_ids = {topic.name: topic.topic_id for topic in existing}
        return {topic.name: list(topic.partitions) for topic in existing}

    def look_up_topic_ids(self, topics: Sequence[str]) -> FoundTopics:
        """Look up topic ids over a separate connection. May be called by one thread other than the cluster's thread."""
        found = self._id_topics.look_up(topics).values()
        return FoundTopics(
            {topic.name: topic.topic_id for topic in found if topic.status in _MAY_EXIST},
            {topic.name for topic in found if topic.status is TopicStatus.DELETED},
        )

    def _select_existing(self, found: Mapping[str, Topic]) -> list[Topic]:
        """Return existing topics; use the last known status of ``DENIED``, ``UNAVAILABLE`` and ``MISSING`` topics."""
        kept = {
            topic.name: known
            for topic in found.values()
            if topic.status not in (TopicStatus.EXISTS, TopicStatus.DELETED)
            and (known := self._topics.last_known(topic.name)) is not None
        }
        problems = {name: problem for name, problem in self.problems.items() if name not in found}
        for name in sorted(kept):
            problems[name] = Problem.again(self.problems.get(name), "leader_not_found", found[name].error())
            if name not in self.problems:
                self._log.warning("topic_metadata_unavailable", topic=name, error=problems[name].message)
        self.problems = problems
        return [kept.get(topic.name, topic) for topic in found.values() if topic.partitions or topic.name in kept]

    def close(self) -> None:
        """Close the connections."""
        self._leaders.close()
        self._id_leaders.close()


def parse_bootstrap(servers: str) -> list[Endpoint]:
    """Parse comma-separated ``host:port`` pairs.

    Raises:
        ConfigurationError: an address is not ``host:port``, its port is out of range, or there is no address.
    """
    try:
        endpoints = [Endpoint.parse(part) for part in split_list(servers) if part]
    except ValueError as error:
        raise ConfigurationError(f"bootstrap.servers = {servers!r}: {error}") from error
    if not endpoints:
        raise ConfigurationError(f"bootstrap.servers must contain at least one host:port, got {servers!r}")
    return endpoints
