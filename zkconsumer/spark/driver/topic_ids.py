"""Tells topics that were deleted, and those that were created anew under the same name.

In ZooKeeper a topic's znode has the id of the transaction that created it; brokers from 2.8 on give each topic an id.
Offsets say nothing of it: those of the first topic may well be in the log of the second.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from zkconsumer.broker.cluster import Cluster, ZooKeeperCluster
from zkconsumer.broker.log_offsets import LogOffsets

#: Seconds that a topic has to be missing: brokers that have just started may not know it yet.
_GRACE = 5.0

#: Seconds between two questions to brokers, which do not tell by themselves.
_INTERVAL = 5.0


class Changes(NamedTuple):
    """The topics that are gone since the last look, and those that are others now, with the ids before and now.

    ``back`` are those of the latter that had been told as gone before.
    """

    gone: set[str]
    anew: dict[str, tuple[str, str]]
    back: set[str]


class TopicIds:
    """Remembers the ids of a query's topics, also of those that are gone: they may come back, as the same or another.

    Args:
        known: those of the checkpoint.
        gone: topics that the checkpoint knows as gone.
        changes: a number that differs whenever the group has looked at its topics again.
    """

    def __init__(
        self,
        cluster: Cluster,
        logs: LogOffsets,
        known: Mapping[str, str],
        gone: Iterable[str],
        changes: Callable[[], int],
    ) -> None:
        self._in_zookeeper = cluster if isinstance(cluster, ZooKeeperCluster) else None
        self._logs = logs
        self._known = dict(known)
        self._changes = changes
        self._looked: tuple[int, float, frozenset[str]] | None = None
        self._missing_since: dict[str, float] = {}
        #: Topics that do not exist (any more), once that is certain.
        self.gone: set[str] = set(gone)

    @property
    def known(self) -> dict[str, str]:
        """The ids by topic, as far as there are any."""
        return {topic: known for topic, known in self._known.items() if known}

    @property
    def has_looked(self) -> bool:
        """Whether anybody has been asked yet."""
        return self._looked is not None

    @property
    def is_uncertain(self) -> bool:
        """Whether a topic is missing that may be there."""
        return bool(self._missing_since.keys() & self._known.keys() - self.gone)

    def look(self, topics: Iterable[str]) -> Changes:
        """Return what has changed of some topics since the last look, and remember them as they are now.

        Raises:
            RetriableError: ZooKeeper or the brokers do not answer.
        """
        wanted, now, changes = frozenset(topics), time.monotonic(), self._changes()
        if not self._is_due(wanted, changes, now):
            return Changes(set(), {}, set())
        names = sorted(wanted)
        found = self._in_zookeeper.topic_ids(names) if self._in_zookeeper else self._logs.topic_ids(names)
        self._looked = changes, now, wanted
        self._missing_since = {topic: self._missing_since.get(topic, now) for topic in wanted - found.keys()}
        missing = {topic: since for topic, since in self._missing_since.items() if topic in self._known}
        told = self.gone
        self.gone = {topic for topic, since in missing.items() if topic in told or now - since > _GRACE}
        before = {topic: self._known[topic] for topic in found.keys() & self._known.keys()}
        anew = {t: (old, found[t]) for t, old in before.items() if not is_same_topic(old, found[t])}
        self._known.update({topic: known for topic, known in found.items() if known or topic not in self._known})
        return Changes(self.gone - told, anew, told & anew.keys())

    def _is_due(self, wanted: frozenset[str], changes: int, now: float) -> bool:
        if not wanted:
            return False
        if self._looked is None or self._looked[0] != changes or not wanted <= self._looked[2]:
            return True
        interval = _INTERVAL if self._in_zookeeper is None else _GRACE / 10 if self._missing_since else None
        return interval is not None and now - self._looked[1] > interval


def is_same_topic(before: str, now: str) -> bool:
    """Whether two ids can be those of one topic.

    An id has one or both of ``zk-<czxid>`` and ``id-<topic id of the brokers>``, with a comma between them. A query
    that connects through ZooKeeper before a restart and through ``bootstrap.servers`` after it finds other parts, so
    only the parts that both ids have are compared. Without a common part the topic counts as the same.
    """
    parts, others = _parts(before), _parts(now)
    return all(parts[kind] == others[kind] for kind in parts.keys() & others.keys())


def _parts(known: str) -> dict[str, str]:
    return {part.partition("-")[0]: part for part in known.split(",") if part}
