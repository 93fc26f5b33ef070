"""State of each topic that a query reads: whether it exists, and its id.

States and transitions:

==========  ==========  ==========  ==========  ==========
event       unknown     known       missing     deleted
==========  ==========  ==========  ==========  ==========
find        known       known       known       known
miss        unknown     missing     missing     deleted
confirm     -           -           deleted     -
ignore      unknown     known       known       known
==========  ==========  ==========  ==========  ==========

A dash marks an event that cannot happen in that state. ``TRANSITIONS`` contains the same table.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from zkconsumer.metadata.topic_id import is_same_topic

#: Seconds after which a missing topic is considered deleted. Brokers that have just started may not list all
#: topics yet.
GRACE_S = 5.0


class TopicState(enum.Enum):
    """Whether a topic of the query exists."""

    #: The topic has not been found yet.
    UNKNOWN = "unknown"
    #: The topic existed at the last lookup.
    KNOWN = "known"
    #: The topic was not found, but is not considered deleted yet.
    MISSING = "missing"
    #: The topic was deleted. Its id is kept, to detect when it is re-created.
    DELETED = "deleted"


class TopicEvent(enum.Enum):
    """Event that changes the state of a topic."""

    #: A lookup found the topic.
    FIND = "find"
    #: A lookup did not find the topic.
    MISS = "miss"
    #: The topic was missing for longer than the grace period, and its absence is certain.
    CONFIRM = "confirm"
    #: The query no longer reads the topic.
    IGNORE = "ignore"


_U, _K, _M, _D = TopicState.UNKNOWN, TopicState.KNOWN, TopicState.MISSING, TopicState.DELETED

#: Next state by event and current state. If a state is missing, the event cannot happen in it.
TRANSITIONS: dict[TopicEvent, dict[TopicState, TopicState]] = {
    TopicEvent.FIND: {_U: _K, _K: _K, _M: _K, _D: _K},
    TopicEvent.MISS: {_U: _U, _K: _M, _M: _M, _D: _D},
    TopicEvent.CONFIRM: {_M: _D},
    TopicEvent.IGNORE: {_U: _U, _K: _K, _M: _K, _D: _K},
}


@dataclass(slots=True)
class TopicRecord:
    """State of one topic.

    Attributes:
        state: state of the topic; see the table in the module docstring.
        topic_id: last known topic id; empty if none is known.
        missing_since: time (``time.monotonic``) of the first lookup that did not find the topic; set in MISSING.
        deletion: sequence number of the deletion among all deleted topics; set in DELETED.
    """

    state: TopicState = TopicState.UNKNOWN
    topic_id: str = ""
    missing_since: float = 0.0
    deletion: int = 0

    def apply(self, event: TopicEvent) -> None:
        """Change the state according to ``event``."""
        following = TRANSITIONS[event].get(self.state)
        if following is None:
            raise RuntimeError(f"event {event.value!r} is not valid for a topic in state {self.state.value!r}")
        self.state = following


class TopicChanges(NamedTuple):
    """Changes since the last check.

    Attributes:
        deleted: topics that were deleted.
        recreated: topics that were deleted and re-created, with the previous and the current topic id.
        reported: topics in ``recreated`` whose deletion was reported by an earlier check.
    """

    deleted: set[str]
    recreated: dict[str, tuple[str, str]]
    reported: set[str]


class TopicStates:
    """Holds a ``TopicRecord`` for each topic. Does no I/O.

    Args:
        ids: topic ids in the checkpoint, by topic name.
        deleted: deleted topics in the checkpoint, in order of deletion.
    """

    def __init__(self, ids: Mapping[str, str], deleted: Iterable[str]) -> None:
        self._records = {topic: TopicRecord(TopicState.KNOWN, topic_id) for topic, topic_id in ids.items()}
        self._deletions = 0
        for topic in deleted:
            self._deletions += 1
            record = self._records.setdefault(topic, TopicRecord())
            record.state, record.deletion = TopicState.DELETED, self._deletions

    def in_state(self, state: TopicState) -> set[str]:
        """Return the topics in ``state``."""
        return {topic for topic, record in self._records.items() if record.state is state}

    @property
    def deleted(self) -> list[str]:
        """The deleted topics, in order of deletion."""
        return sorted(self.in_state(TopicState.DELETED), key=lambda topic: self._records[topic].deletion)

    @property
    def ids(self) -> dict[str, str]:
        """The topic ids by topic name; topics without an id are omitted."""
        return {topic: record.topic_id for topic, record in self._records.items() if record.topic_id}

    def find_replaced(self, ids: Mapping[str, str]) -> set[str]:
        """Return the deleted topics, and the topics that no longer have the given ids because they were re-created."""
        known, unknown = self.ids, self.in_state(TopicState.UNKNOWN)
        forgotten = {topic for topic in ids if topic not in self._records or topic in unknown}
        recreated = {topic for topic, old in ids.items() if not is_same_topic(old, known.get(topic, old))}
        return self.in_state(TopicState.DELETED) | forgotten | recreated

    def update(
        self, wanted: Collection[str], found: Mapping[str, str], absent: Mapping[str, bool], now: float
    ) -> TopicChanges:
        """Record the result of a lookup, and return the changes.

        Args:
            wanted: topics that the query reads.
            found: ids of the topics that were found; an id is empty if the topic has none.
            absent: topics that were not found, mapped to whether their absence is certain.
            now: time (``time.monotonic``) of the lookup.
        """
        changes = TopicChanges(set(), {}, set())
        for topic in self._records.keys() - set(wanted):
            self._records[topic].apply(TopicEvent.IGNORE)
        for topic, topic_id in found.items():
            self._find(topic, topic_id, changes)
        for topic, is_certain in sorted(absent.items()):
            record = self._records.setdefault(topic, TopicRecord())
            if record.state is TopicState.KNOWN:
                record.missing_since = now
            record.apply(TopicEvent.MISS)
            if record.state is TopicState.MISSING and is_certain and now - record.missing_since > GRACE_S:
                record.apply(TopicEvent.CONFIRM)
                self._deletions += 1
                record.deletion = self._deletions
                changes.deleted.add(topic)
        return changes

    def _find(self, topic: str, topic_id: str, changes: TopicChanges) -> None:
        record = self._records.setdefault(topic, TopicRecord())
        if record.state is not TopicState.UNKNOWN and not is_same_topic(record.topic_id, topic_id):
            changes.recreated[topic] = (record.topic_id, topic_id)
            if record.state is TopicState.DELETED:
                changes.reported.add(topic)
        record.apply(TopicEvent.FIND)
        record.topic_id = topic_id or record.topic_id

    def forget(self, topic: str) -> None:
        """Forget a topic. If it is found again, it is treated as a new topic."""
        self._records.pop(topic, None)
