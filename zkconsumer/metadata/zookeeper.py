"""Cluster metadata from ``/brokers`` in ZooKeeper.

Source: Kafka 1.1 ZkUtils.getCluster, ZkUtils.getPartitionsForTopics.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping, Sequence

from zkconsumer.errors import ZkConsumerError, ZooKeeperUnavailableError
from zkconsumer.excerpt import excerpt
from zkconsumer.health import Problem
from zkconsumer.log import get_logger
from zkconsumer.message import Endpoint
from zkconsumer.metadata.base import FoundTopics
from zkconsumer.zookeeper import registry
from zkconsumer.zookeeper.session import ZooKeeperSession
from zkconsumer.zookeeper.znodes import Znode


class ZooKeeperCluster:
    """Metadata from ``/brokers`` in ZooKeeper, for Kafka versions before 4.0.

    Args:
        session: ZooKeeper session.
        protocol: value of ``security.protocol``, which selects each broker's listener.
    """

    poll_interval_s = None

    def __init__(self, session: ZooKeeperSession, protocol: str) -> None:
        self._znodes = session.znodes
        self._protocol = protocol
        self.topic_ids: Mapping[str, str] = {}
        self.problems: Mapping[str, Problem] = {}
        self._last_brokers: list[Endpoint] = []  # replaced as a whole
        self._lock = threading.Lock()
        #: Last logged error for each kind of skipped znode; guarded by the lock.
        self._reported: dict[str, str] = {}
        self._log = get_logger("zkconsumer.cluster")

    def brokers(self) -> list[Endpoint]:
        """Return the endpoint of each registered broker, in random order.

        Brokers with an unusable registration are skipped. If ZooKeeper is unavailable, the last result is returned.

        Raises:
            ZooKeeperUnavailableError: ZooKeeper is unavailable, and there is no previous result.
            ZkConsumerError: all brokers have unusable registrations.
        """
        try:
            ids = self._znodes.children(registry.BROKER_IDS) or []
            nodes = self._znodes.get_many([f"{registry.BROKER_IDS}/{broker_id}" for broker_id in ids])
        except ZooKeeperUnavailableError:
            if not self._last_brokers:
                raise
            return self._last_brokers
        brokers: list[Endpoint] = []
        errors: list[ZkConsumerError] = []
        for broker_id, node in zip(ids, nodes, strict=True):
            if node is None:
                continue
            try:
                brokers.append(registry.parse_broker(broker_id, node.data, self._protocol))
            except ZkConsumerError as error:
                errors.append(error)
        if self._is_new("brokers", reasons := "; ".join(map(str, errors))):
            self._log.warning("brokers_skipped", error=reasons)
        if errors and not brokers:
            raise errors[0]
        random.shuffle(brokers)
        self._last_brokers = brokers
        return brokers

    def topics(self) -> list[str]:
        """Return the names of all topics, and set a watch on their parent znode. Invalid topic names are skipped."""
        topics = self._znodes.children(registry.BROKER_TOPICS, watch=True)
        if topics is None:
            self._znodes.ensure(registry.BROKER_TOPICS)
            topics = self._znodes.children(registry.BROKER_TOPICS, watch=True)
        invalid = [name for name in topics or () if not registry.is_valid_topic_name(name)]
        examples = ", ".join(map(excerpt, invalid[:3]))
        if self._is_new("topics", error := f"{len(invalid)} invalid names, such as {examples}" if invalid else ""):
            self._log.warning("topic_names_invalid", path=registry.BROKER_TOPICS, error=error)
        return [name for name in topics or () if registry.is_valid_topic_name(name)]

    def _is_new(self, skipped: str, error: str) -> bool:
        """Return whether ``error`` is not empty, and differs from the last error for the same kind of znode."""
        with self._lock:
            is_new = bool(error) and error != self._reported.get(skipped)
            self._reported[skipped] = error
        return is_new

    def partitions(self, topics: Sequence[str]) -> dict[str, list[int]]:
        """Return the sorted partitions of each existing topic, and watch the znodes of all ``topics``."""
        paths = [registry.topic_path(topic) for topic in topics]
        partitions, ids = {}, {}
        for topic, path, node in zip(topics, paths, self._znodes.get_many(paths, watch=True), strict=True):
            # exists() sets a watch that fires when the topic is created. The topic may be created after get().
            while node is None and self._znodes.exists(path, watch=True):
                node = self._znodes.get(path, watch=True)
            if node is not None:
                partitions[topic] = registry.parse_partitions(topic, node.data)
                try:
                    ids[topic] = _read_id(topic, node)
                except ZkConsumerError:  # a malformed topic id must not prevent the rebalance; use only the zxid
                    ids[topic] = f"zk-{node.created_zxid}"
        self.topic_ids = ids
        return partitions

    def look_up_topic_ids(self, topics: Sequence[str]) -> FoundTopics:
        """Look up topic ids, which contain ``zk-`` and ``id-`` parts as of Kafka 2.8. May be called from any thread."""
        nodes = self._znodes.get_many([registry.topic_path(topic) for topic in topics])
        ids = {topic: _read_id(topic, node) for topic, node in zip(topics, nodes, strict=True) if node is not None}
        return FoundTopics(ids, {*topics} - ids.keys())

    def close(self) -> None:
        """Do nothing: the ZooKeeper session is closed by its owner."""


def _read_id(topic: str, node: Znode) -> str:
    topic_id = registry.parse_topic_id(topic, node.data)
    return f"zk-{node.created_zxid}" + (f",id-{topic_id}" if topic_id else "")
