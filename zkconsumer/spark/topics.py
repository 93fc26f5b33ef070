"""Tells topics that were deleted, and those that were created anew under the same name.

In ZooKeeper a topic's znode has the id of the transaction that created it; brokers from 2.8 on give each topic an id.
Offsets say nothing of it: those of the first topic may well be in the log of the second.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from zkconsumer.cluster import Cluster, LogOffsets, ZooKeeperCluster

#: Seconds that a topic has to be missing: brokers that have just started may not know it yet.
_GRACE = 5.0

#: Seconds between two questions to brokers, which do not tell by themselves.
_INTERVAL = 5.0


class Changes(NamedTuple):
    """The topics that are gone, and those that are others now, with the ids before and now."""

    gone: set[str]
    anew: dict[str, tuple[str, str]]


class TopicIds:
    """Remembers the ids of a query's topics.

    Args:
        known: those of the checkpoint.
        changes: a number that differs whenever the group has looked at its topics again.
    """

    def __init__(
        self, cluster: Cluster, logs: LogOffsets, known: Mapping[str, str], changes: Callable[[], int]
    ) -> None:
        self._in_zookeeper = cluster if isinstance(cluster, ZooKeeperCluster) else None
        self._logs = logs
        self._known = dict(known)
        self._changes = changes
        self._looked: tuple[int, float, frozenset[str]] | None = None
        self._missing_since: dict[str, float] = {}

    @property
    def known(self) -> dict[str, str]:
        """The ids by topic, as far as there are any."""
        return {topic: known for topic, known in self._known.items() if known}

    def look(self, topics: Iterable[str], *, at_once: bool = False) -> Changes:
        """Return what has changed of some topics since the last look, and remember them as they are now.

        Args:
            at_once: without the grace for topics that are missing.

        Raises:
            RetriableError: ZooKeeper or the brokers do not answer.
        """
        wanted, now = frozenset(topics), time.monotonic()
        if not self._is_due(wanted, now):
            return Changes(set(), {})
        self._looked = (self._changes(), now, wanted)
        names = sorted(wanted)
        found = self._in_zookeeper.topic_ids(names) if self._in_zookeeper else self._logs.topic_ids(names)
        missing = wanted - found.keys()
        self._missing_since = {topic: self._missing_since.get(topic, now) for topic in missing}
        gone = {t for t, since in self._missing_since.items() if t in self._known and (at_once or now - since > _GRACE)}
        before = {topic: self._known[topic] for topic in found.keys() & self._known.keys()}
        # Where a cluster has left ZooKeeper the two kinds of ids say nothing of each other.
        anew = {t: (old, found[t]) for t, old in before.items() if old != found[t] and old[:3] == found[t][:3]}
        self._known.update(found)
        for topic in gone:
            del self._known[topic]
        return Changes(gone, anew)

    def _is_due(self, wanted: frozenset[str], now: float) -> bool:
        if not wanted:
            return False
        if self._looked is None or self._looked[0] != self._changes() or not wanted <= self._looked[2]:
            return True
        return (self._in_zookeeper is None or bool(self._missing_since)) and now - self._looked[1] > _INTERVAL
