"""Detects topics that were deleted, and topics that were deleted and created again under the same name.

ZooKeeper stores the id of the transaction that created a topic's znode, and brokers from 2.8 on assign an id to each
topic. Offsets alone do not distinguish the two topics, because the new log may contain the same offsets.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import NamedTuple

from zkconsumer.metadata.base import Cluster
from zkconsumer.metadata.topic_id import is_same_topic

#: Seconds after which a missing topic counts as deleted. Brokers that have just started may not list it yet.
_GRACE = 5.0

#: Seconds between two requests to brokers, which do not notify clients of changes.
_INTERVAL = 5.0


class TopicChanges(NamedTuple):
    """Changes since the last check.

    Attributes:
        deleted: topics that were deleted.
        recreated: topics that were deleted and created again, with the previous and the present id.
        reported: topics of ``recreated`` whose deletion was reported by an earlier check.
    """

    deleted: set[str]
    recreated: dict[str, tuple[str, str]]
    reported: set[str]


class TopicIds:
    """Ids of the topics of a query. Ids of deleted topics are kept, to detect that a topic is re-created.

    Args:
        ids: ids by topic in the checkpoint.
        deleted: deleted topics in the checkpoint.
        discoveries: returns a counter that increases when the member has listed topics and partitions.
    """

    def __init__(
        self,
        cluster: Cluster,
        ids: Mapping[str, str],
        deleted: Iterable[str],
        discoveries: Callable[[], int],
    ) -> None:
        self._deleted: dict[str, None] = dict.fromkeys(deleted)
        self._cluster = cluster
        self._ids = dict(ids)
        self._discoveries = discoveries
        #: Number of discoveries, time and topics of the last check.
        self._checked: tuple[int, float, frozenset[str]] | None = None
        self._missing_since: dict[str, float] = {}

    @property
    def ids(self) -> dict[str, str]:
        """The ids by topic; topics without an id are absent."""
        return {topic: topic_id for topic, topic_id in self._ids.items() if topic_id}

    @property
    def deleted(self) -> Set[str]:
        """Topics that have been missing for longer than the grace period, in the order of their deletion."""
        return self._deleted.keys()

    @property
    def is_checked(self) -> bool:
        """Whether topics have been checked since the query started."""
        return self._checked is not None

    @property
    def is_uncertain(self) -> bool:
        """Whether a topic is missing, but does not count as deleted yet."""
        return bool(self._missing_since.keys() & self._ids.keys() - self._deleted.keys())

    def replaced(self, ids: Mapping[str, str]) -> set[str]:
        """Return the topics that were deleted, or re-created since they had these ids."""
        now = self.ids
        return {*self._deleted} | {
            topic
            for topic, old in ids.items()
            if topic not in self._ids or not is_same_topic(old, now.get(topic, old))  # not in: it was forgotten
        }

    def check(self, topics: Iterable[str]) -> TopicChanges:
        """Look up the ids of topics and return what has changed since the last check.

        Raises:
            RetriableError: ZooKeeper or the brokers do not answer.
        """
        wanted, now, discoveries = frozenset(topics), time.monotonic(), self._discoveries()
        looked_up = self._due(wanted, discoveries, now)
        if not looked_up:
            return TopicChanges(set(), {}, set())
        found, confirmed = self._look_up(sorted(looked_up))
        found = {**{topic: self._ids[topic] for topic in (wanted - looked_up) & self._ids.keys()}, **found}
        self._checked = discoveries, now, wanted
        self._missing_since = {topic: self._missing_since.get(topic, now) for topic in wanted - found.keys()}
        missing = {topic: since for topic, since in self._missing_since.items() if topic in self._ids}
        reported = {*self._deleted}
        lasting = [
            topic
            for topic, since in sorted(missing.items())
            if topic in reported or (topic in confirmed and now - since > _GRACE)
        ]
        self._deleted = dict.fromkeys([*(topic for topic in self._deleted if topic in missing), *lasting])
        before = {topic: self._ids[topic] for topic in found.keys() & self._ids.keys()}
        recreated = {t: (old, found[t]) for t, old in before.items() if not is_same_topic(old, found[t])}
        self._ids.update({topic: new for topic, new in found.items() if new or topic not in self._ids})
        return TopicChanges({*self._deleted} - reported, recreated, reported & recreated.keys())

    def _look_up(self, names: Sequence[str]) -> tuple[dict[str, str], set[str]]:
        """Return the ids of topics that may exist, and the topics that do not exist for certain."""
        found = self._cluster.look_up_topic_ids(names)
        return {topic: topic_id or self._ids.get(topic, "") for topic, topic_id in found.ids.items()}, found.deleted

    def forget(self, topic: str) -> None:
        """Forget a deleted topic. If it is created again, it counts as a new topic."""
        self._deleted.pop(topic, None)
        self._ids.pop(topic, None)
        self._missing_since.pop(topic, None)

    def _due(self, wanted: frozenset[str], discoveries: int, now: float) -> Set[str]:
        """Return the topics to look up now: all, the missing ones, or none."""
        if not wanted or self._checked is None or self._checked[0] != discoveries or not wanted <= self._checked[2]:
            return wanted
        passed = now - self._checked[1]
        if self._cluster.poll_interval_s is not None:
            return wanted if passed > _INTERVAL else frozenset()
        missing = wanted & self._missing_since.keys()
        return missing if passed > (_GRACE / 10 if self.is_uncertain else _INTERVAL) else frozenset()
