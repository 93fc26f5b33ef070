"""TopicLookup: existence, ids and partitions of topics, from Metadata responses.

A topic is considered deleted only if two brokers return UNKNOWN_TOPIC_OR_PARTITION (3) for a request that names it, or
if one broker does so for ``GRACE_S`` seconds while no second broker is available. Other errors do not indicate whether
the topic exists. Neither does its absence from a list of all topics, because brokers omit topics that the client is not
authorized to describe.

See docs/decisions/27-confirm-deleted-topics.rst.

Source: Kafka 4.3 kafka.server.KafkaApis.handleTopicMetadataRequest.
"""

from __future__ import annotations

import dataclasses
import enum
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from zkconsumer.broker import protocol
from zkconsumer.broker.error_codes import broker_error, denied_topic_error
from zkconsumer.broker.leaders import BROKER_ERRORS, LeaderLookup
from zkconsumer.errors import (
    NotLeaderError,
    ZkConsumerError,
)
from zkconsumer.message import Endpoint

#: Minimum seconds before a topic is considered deleted if only one broker responds. A broker that has just started may
#: not have received the cluster metadata yet.
GRACE_S = 5.0


class TopicStatus(enum.Enum):
    """Status of a topic according to the brokers."""

    #: The topic exists, and its partitions are known.
    EXISTS = enum.auto()
    #: The client is not authorized to describe the topic: TOPIC_AUTHORIZATION_FAILED (29). The topic may exist.
    DENIED = enum.auto()
    #: The broker returned another error. The topic may exist.
    UNAVAILABLE = enum.auto()
    #: One broker does not know the topic, and no second broker has confirmed this yet.
    MISSING = enum.auto()
    #: Two brokers do not know the topic, or one broker has not known it for ``GRACE_S`` seconds.
    DELETED = enum.auto()


@dataclass(frozen=True, slots=True)
class Topic:
    """Lookup result for one topic.

    Attributes:
        error_code: Kafka's error code.
        topic_id: topic id, see ``zkconsumer.metadata.topic_id``; empty unless the topic exists.
        partitions: sorted partition numbers; empty unless the topic exists.
    """

    name: str
    status: TopicStatus
    error_code: int = protocol.NONE
    topic_id: str = ""
    partitions: tuple[int, ...] = ()

    def with_partitions_of(self, other: Topic) -> Topic:
        """Return a copy that also contains the partitions of ``other``."""
        return dataclasses.replace(self, partitions=tuple(sorted({*self.partitions, *other.partitions})))

    def error(self) -> ZkConsumerError:
        """Return the exception for a topic that is unavailable, or that the client is not authorized to describe."""
        if self.status is TopicStatus.DENIED:
            return denied_topic_error(self.name)
        return broker_error(self.error_code, f"the metadata of topic {self.name!r} is unavailable")


@dataclass(frozen=True, slots=True)
class _SecondOpinion:
    """Combined responses of the brokers that were queried after the first broker.

    Attributes:
        topics: lookup results by topic name; requested topics may be absent.
        is_confirmed: whether enough brokers responded to confirm that a topic is missing.
        is_complete: whether the requests to these brokers ended before the deadline of the lookup.
    """

    topics: Mapping[str, Topic]
    is_confirmed: bool
    is_complete: bool


class TopicLookup:
    """Looks up topics by name, and lists all topics. Used by one thread.

    Args:
        lookup: leader lookup that sends the Metadata requests.
        brokers: function that returns the brokers to which requests may be sent.
        clock: monotonic clock, in seconds.
    """

    def __init__(
        self,
        lookup: LeaderLookup,
        brokers: Callable[[], Sequence[Endpoint]],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._lookup = lookup
        self._brokers = brokers
        self._known: dict[str, Topic] = {}  # latest lookup results; existing topics only
        self._deleted: set[str] = set()  # topics whose deletion has been confirmed
        self._missing_since: dict[str, float] = {}  # clock time of the first response lacking the topic or partitions
        self._replaced_at: dict[str, float] = {}  # old topic id -> clock time of the first response with a new id

    def look_up(self, topics: Iterable[str]) -> dict[str, Topic]:
        """Return the status of each topic.

        Raises:
            ConfigurationError: a topic name is invalid.
            BrokerUnavailableError: none of the brokers responded.
            NotLeaderError: a broker returned no metadata for one of the topics.
        """
        names = sorted(set(topics))
        if not names:
            return {}
        deadline = self._clock() + self._lookup.timeout_s
        response = self._lookup.metadata(self._brokers(), names)
        first = self._parse_topics(response)
        if missing := [name for name in names if name not in first]:
            raise NotLeaderError(f"broker {self._lookup.endpoint} returned no metadata for topic {missing[0]!r}")
        found = {name: first[name] for name in names}
        for name in self._deleted & found.keys():
            if found[name].status is TopicStatus.MISSING:
                found[name] = _mark_deleted(found[name])
        if doubtful := [name for name in names if self._is_doubtful(found[name])]:
            opinion = self._ask_others(response, doubtful, deadline)
            found.update({name: self._decide(found[name], opinion) for name in doubtful})
        for topic in found.values():
            self._remember(topic)
        return found

    def list_topics(self) -> dict[str, Topic]:
        """Return the status of all topics that a broker lists, and of all previously known topics."""
        listed = self._parse_topics(self._lookup.metadata(self._brokers(), None))
        complete = {
            name: topic
            for name, topic in listed.items()
            if topic.status is TopicStatus.EXISTS and not self._is_doubtful(topic)
        }
        for topic in complete.values():
            self._remember(topic)
        return complete | self.look_up((listed.keys() | self._known.keys()) - complete.keys())

    def last_known(self, name: str) -> Topic | None:
        """Return the latest lookup result that contains the topic; None if it was never found, or was deleted."""
        return self._known.get(name)

    def _is_doubtful(self, topic: Topic) -> bool:
        """Return whether the response may come from a broker that does not know all topics and partitions yet."""
        if topic.status is TopicStatus.MISSING:
            return True
        known = self._known.get(topic.name)
        return (
            topic.status is TopicStatus.EXISTS and known is not None and not {*known.partitions} <= {*topic.partitions}
        )

    def _ask_others(self, response: Any, names: Sequence[str], deadline: float) -> _SecondOpinion:
        """Look up topics on further brokers, to confirm the first broker's response.

        Brokers are identified by their advertised addresses. If the first broker was reached through another address,
        such as that of a load balancer, a further response may come from the same broker, so two further brokers must
        agree. A broker that is contacted through an unadvertised address may be the first broker, so its response
        cannot confirm a deletion.
        """
        first = str(self._lookup.endpoint)
        advertised = {str(endpoint := Endpoint(b.host, b.port)): endpoint for b in response.brokers}
        needed = 1 if advertised.pop(first, None) is not None else 2
        others = {str(endpoint): endpoint for endpoint in self._brokers() if str(endpoint) not in (first, *advertised)}
        found: dict[str, Topic] = {}
        while needed and advertised:
            answer = self._ask(advertised, names, deadline)
            if answer is None:
                break
            found = answer | _drop_missing(found)
            needed -= 1
        if needed and (answer := self._ask(others, names, deadline)) is not None:
            found = _drop_missing(answer) | _drop_missing(found)
        return _SecondOpinion(found, is_confirmed=not needed, is_complete=self._clock() < deadline)

    def _ask(self, brokers: dict[str, Endpoint], names: Sequence[str], deadline: float) -> dict[str, Topic] | None:
        """Look up topics on one of ``brokers`` and remove it from the dict; return None if none returns metadata."""
        timeout_s = deadline - self._clock()
        if not brokers or timeout_s <= 0:
            return None
        try:
            candidates = [endpoint.with_versions_from(self._brokers()) for endpoint in brokers.values()]
            answer = self._parse_topics(self._lookup.metadata_from(candidates, names, timeout_s))
        except BROKER_ERRORS:
            return None
        brokers.pop(str(self._lookup.endpoint), None)
        return answer

    def _decide(self, first: Topic, opinion: _SecondOpinion) -> Topic:
        """Decide the status of a doubtful topic from the responses of the first broker and of further brokers."""
        second = opinion.topics.get(first.name)
        if first.status is TopicStatus.MISSING and second is not None:
            if second.status is not TopicStatus.MISSING:
                return second
            if opinion.is_confirmed:
                return _mark_deleted(second)
        if second is not None and second.status is TopicStatus.EXISTS:
            return first.with_partitions_of(second)
        now = self._clock()
        since = self._missing_since.setdefault(first.name, now)
        if opinion.is_complete and now - since > GRACE_S:
            return first if first.partitions else _mark_deleted(first)
        known = self._known.get(first.name)
        if first.partitions and known is not None:
            return first.with_partitions_of(known)
        return first

    def _remember(self, topic: Topic) -> None:
        if topic.status is TopicStatus.EXISTS:
            known = self._known.get(topic.name)
            if known is None or {*known.partitions} <= {*topic.partitions}:
                self._missing_since.pop(topic.name, None)
            self._known[topic.name] = topic
            self._deleted.discard(topic.name)
        elif topic.status is TopicStatus.DELETED:
            self._deleted.add(topic.name)
            self._known.pop(topic.name, None)
            self._missing_since.pop(topic.name, None)
        elif topic.status is not TopicStatus.MISSING:
            self._missing_since.pop(topic.name, None)

    def _parse_topics(self, response: Any) -> dict[str, Topic]:
        ids = protocol.parse_topic_ids(response)
        return {topic.name: self._parse_topic(topic, ids.get(topic.name, "")) for topic in response.topics}

    def _parse_topic(self, topic: Any, topic_id: str) -> Topic:
        code = topic.error_code
        if code == protocol.INVALID_TOPIC_EXCEPTION:
            raise broker_error(code, f"topic name {topic.name!r} was rejected")
        if topic.partitions and code in (protocol.NONE, protocol.LEADER_NOT_AVAILABLE):
            numbers = tuple(sorted({p.partition_index for p in topic.partitions}))
            return Topic(topic.name, TopicStatus.EXISTS, code, self._choose_id(topic.name, topic_id), numbers)
        status = _STATUSES.get(code, TopicStatus.UNAVAILABLE)
        return Topic(topic.name, status, code)

    def _choose_id(self, name: str, topic_id: str) -> str:
        """Return ``topic_id``, or the known id if the broker has no topic ids or its metadata may be stale."""
        known = self._known.get(name)
        if known is None or not known.topic_id or topic_id == known.topic_id:
            return topic_id
        now = self._clock()
        if not topic_id or now - self._replaced_at.get(topic_id, -GRACE_S) < GRACE_S:
            return known.topic_id
        self._replaced_at[known.topic_id] = now
        return topic_id


def _drop_missing(topics: Mapping[str, Topic]) -> dict[str, Topic]:
    return {name: topic for name, topic in topics.items() if topic.status is not TopicStatus.MISSING}


def _mark_deleted(topic: Topic) -> Topic:
    return dataclasses.replace(topic, status=TopicStatus.DELETED)


_STATUSES: Mapping[int, TopicStatus] = {
    protocol.UNKNOWN_TOPIC_OR_PARTITION: TopicStatus.MISSING,
    protocol.TOPIC_AUTHORIZATION_FAILED: TopicStatus.DENIED,
}
