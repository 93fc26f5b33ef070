"""Looks up the ids of a query's topics, to detect topics that were deleted, or re-created under the same name.

ZooKeeper stores the id of the transaction that created a topic's znode, and Kafka 2.8 and later assigns an id to each
topic. Offsets do not distinguish a re-created topic from the deleted one, because both can contain the same offsets.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Set
from typing import NamedTuple

from zkconsumer.metadata.base import Cluster
from zkconsumer.spark.planning.topic_states import GRACE_S, TopicChanges, TopicState, TopicStates

#: Minimum seconds between two requests to brokers, which do not notify clients of changes.
_INTERVAL_S = 5.0

#: Minimum seconds between two ZooKeeper lookups of a topic that is missing, but not considered deleted yet.
_MISSING_INTERVAL_S = GRACE_S / 10


class _Check(NamedTuple):
    """The last check for deleted and re-created topics.

    Attributes:
        discoveries: number of times that the member had listed topics before the check.
        time: time of the check (``time.monotonic``).
        topics: the checked topics.
    """

    discoveries: int
    time: float
    topics: frozenset[str]


class TopicIds:
    """Looks up the topics of a query, and records their states. Used by Spark's thread.

    Args:
        states: states of the topics according to the checkpoint.
        discoveries: function that returns how many times the member has listed topics and partitions.
    """

    def __init__(self, cluster: Cluster, states: TopicStates, discoveries: Callable[[], int]) -> None:
        self.states = states
        self._cluster = cluster
        self._discoveries = discoveries
        self._last: _Check | None = None

    @property
    def is_checked(self) -> bool:
        """Whether topics have been checked since the query started."""
        return self._last is not None

    @property
    def is_uncertain(self) -> bool:
        """Whether a topic is missing, but not considered deleted yet."""
        return bool(self.states.in_state(TopicState.MISSING))

    def check(self, topics: Iterable[str]) -> TopicChanges:
        """Look up the ids of ``topics``, and return the changes since the last check.

        Raises:
            RetriableError: ZooKeeper or the brokers did not respond.
        """
        wanted, now, discoveries = frozenset(topics), time.monotonic(), self._discoveries()
        looked_up = self._find_due(wanted, discoveries, now)
        if not looked_up:
            return TopicChanges(set(), {}, set())
        found = self._cluster.look_up_topic_ids(sorted(looked_up))
        absent = {topic: topic in found.deleted for topic in looked_up - found.ids.keys()}
        self._last = _Check(discoveries, now, wanted)
        return self.states.update(wanted, found.ids, absent, now)

    def _find_due(self, wanted: frozenset[str], discoveries: int, now: float) -> Set[str]:
        """Return the topics that are due for a lookup: all topics, only those that were not found, or none."""
        last = self._last
        if not wanted or last is None or last.discoveries != discoveries or not wanted <= last.topics:
            return wanted
        passed = now - last.time
        if self._cluster.poll_interval_s is not None:
            return wanted if passed > _INTERVAL_S else frozenset()
        absent = wanted - self.states.in_state(TopicState.KNOWN)
        return absent if passed > (_MISSING_INTERVAL_S if self.is_uncertain else _INTERVAL_S) else frozenset()
