"""TopicLookup: whether topics exist, and their ids and partitions, from Metadata responses.

A topic counts as deleted only if two brokers respond UNKNOWN_TOPIC_OR_PARTITION (3) to a request that names it, or one
broker does for ``GRACE_S`` seconds while no second one can be asked. Any other error says nothing about its existence,
and neither does a response for all topics, from which brokers omit topics that the client may not describe.

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
from zkconsumer.broker.leaders import LeaderLookup
from zkconsumer.errors import (
    AuthenticationError,
    NotLeaderError,
    RetriableError,
    UnsupportedBrokerError,
    ZkConsumerError,
)
from zkconsumer.message import Endpoint

#: Minimum seconds after which a topic counts as deleted if only one broker responds. A broker that has just started may
#: not have received the metadata of the cluster yet.
GRACE_S = 5.0


class TopicState(enum.Enum):
    """What brokers know about a topic."""

    #: Its partitions are known.
    EXISTS = enum.auto()
    #: The client may not describe it: TOPIC_AUTHORIZATION_FAILED (29). It may exist.
    DENIED = enum.auto()
    #: The broker returned another error. The topic may exist.
    UNAVAILABLE = enum.auto()
    #: One broker does not know the topic; no second one has confirmed that.
    MISSING = enum.auto()
    #: Two brokers do not know the topic, or one did not for ``GRACE_S`` seconds.
    DELETED = enum.auto()


@dataclass(frozen=True, slots=True)
class Topic:
    """The result of a lookup for one topic.

    Attributes:
        error_code: error code of Kafka.
        topic_id: see ``topic_id``; empty unless the topic exists.
        partitions: sorted partition numbers; empty unless the topic exists.
    """

    name: str
    state: TopicState
    error_code: int = protocol.NONE
    topic_id: str = ""
    partitions: tuple[int, ...] = ()

    def with_partitions_of(self, other: Topic) -> Topic:
        """Return this topic with the partitions of both."""
        return dataclasses.replace(self, partitions=tuple(sorted({*self.partitions, *other.partitions})))

    def error(self) -> ZkConsumerError:
        """Return the error of a topic that is denied or unavailable."""
        if self.state is TopicState.DENIED:
            return denied_topic_error(self.name)
        return broker_error(self.error_code, f"the metadata of topic {self.name!r} is unavailable")


@dataclass(frozen=True, slots=True)
class _SecondOpinion:
    """What other brokers responded.

    Attributes:
        topics: by name; topics that no other broker returned are absent.
        is_confirmed: whether enough brokers responded to confirm that a topic is missing.
        is_complete: whether there was time to wait for all of them.
    """

    topics: Mapping[str, Topic]
    is_confirmed: bool
    is_complete: bool


class TopicLookup:
    """Looks up topics by name, and lists all topics. Used by one thread.

    Args:
        lookup: sends the requests.
        brokers: returns the brokers that may receive them.
        clock: returns the seconds of a monotonic clock.
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
        self._known: dict[str, Topic] = {}  # the last result of each topic that exists
        self._deleted: set[str] = set()  # no second broker is asked for them again
        self._missing_since: dict[str, float] = {}  # times of the clock
        self._replaced_at: dict[str, float] = {}  # when a topic with another id was seen, by old id

    def look_up(self, topics: Iterable[str]) -> dict[str, Topic]:
        """Return the state of each topic.

        Raises:
            ConfigurationError: a topic name is invalid.
            BrokerUnavailableError: none of the brokers responded.
        """
        names = sorted(set(topics))
        if not names:
            return {}
        deadline = self._clock() + self._lookup.timeout_s
        response = self._lookup.metadata(self._brokers(), names)
        first = self._parse_topics(response)
        if missing := [name for name in names if name not in first]:
            raise NotLeaderError(f"broker {self._lookup.endpoint} returned no metadata of topic {missing[0]!r}")
        found = {name: first[name] for name in names}
        for name in self._deleted & found.keys():
            if found[name].state is TopicState.MISSING:
                found[name] = _mark_deleted(found[name])
        if doubtful := [name for name in names if self._is_doubtful(found[name])]:
            opinion = self._ask_others(response, doubtful, deadline)
            found.update({name: self._decide(found[name], opinion) for name in doubtful})
        for topic in found.values():
            self._remember(topic)
        return found

    def list_topics(self) -> dict[str, Topic]:
        """Return the state of all topics that the brokers list, and of those that were known before."""
        listed = self._parse_topics(self._lookup.metadata(self._brokers(), None))
        complete = {
            name: topic
            for name, topic in listed.items()
            if topic.state is TopicState.EXISTS and not self._is_doubtful(topic)
        }
        for topic in complete.values():
            self._remember(topic)
        return complete | self.look_up((listed.keys() | self._known.keys()) - complete.keys())

    def last_known(self, name: str) -> Topic | None:
        """Return the last result for a topic that existed; None if it never did, or was deleted."""
        return self._known.get(name)

    def _is_doubtful(self, topic: Topic) -> bool:
        """Whether the response may come from a broker that does not know all topics and partitions yet."""
        if topic.state is TopicState.MISSING:
            return True
        known = self._known.get(topic.name)
        return topic.state is TopicState.EXISTS and known is not None and not {*known.partitions} <= {*topic.partitions}

    def _ask_others(self, response: Any, names: Sequence[str], deadline: float) -> _SecondOpinion:
        """Look topics up at other brokers than the one that responded.

        Advertised addresses identify brokers. If the broker that responded first was reached by another address, such
        as a load balancer's, any single one of them may be the same broker. Therefore, two of them must agree then.
        Brokers at addresses that are not advertised may be the first one, too: they cannot confirm a deletion.
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
        """Look topics up at one of the brokers, and remove it from them; return None if none responds in time."""
        timeout_s = deadline - self._clock()
        if not brokers or timeout_s <= 0:
            return None
        try:
            candidates = [endpoint.with_versions_from(self._brokers()) for endpoint in brokers.values()]
            answer = self._parse_topics(self._lookup.metadata(candidates, names, timeout_s))
        except (RetriableError, AuthenticationError, UnsupportedBrokerError):
            return None
        brokers.pop(str(self._lookup.endpoint), None)
        return answer

    def _decide(self, first: Topic, opinion: _SecondOpinion) -> Topic:
        """Return the state of a doubtful topic, given the responses of the first broker and of others."""
        second = opinion.topics.get(first.name)
        if first.state is TopicState.MISSING and second is not None:
            if second.state is not TopicState.MISSING:
                return second
            if opinion.is_confirmed:
                return _mark_deleted(second)
        if second is not None and second.state is TopicState.EXISTS:
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
        if topic.state is TopicState.EXISTS:
            known = self._known.get(topic.name)
            if known is None or {*known.partitions} <= {*topic.partitions}:
                self._missing_since.pop(topic.name, None)
            self._known[topic.name] = topic
            self._deleted.discard(topic.name)
        elif topic.state is TopicState.DELETED:
            self._deleted.add(topic.name)
            self._known.pop(topic.name, None)
            self._missing_since.pop(topic.name, None)
        elif topic.state is not TopicState.MISSING:
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
            return Topic(topic.name, TopicState.EXISTS, code, self._choose_id(topic.name, topic_id), numbers)
        state = _STATES.get(code, TopicState.UNAVAILABLE)
        return Topic(topic.name, state, code)

    def _choose_id(self, name: str, topic_id: str) -> str:
        """Return the id of a topic, unless the broker has no ids, or does not know yet that it was re-created."""
        known = self._known.get(name)
        if known is None or not known.topic_id or topic_id == known.topic_id:
            return topic_id
        now = self._clock()
        if not topic_id or now - self._replaced_at.get(topic_id, -GRACE_S) < GRACE_S:
            return known.topic_id
        self._replaced_at[known.topic_id] = now
        return topic_id


def _drop_missing(topics: Mapping[str, Topic]) -> dict[str, Topic]:
    return {name: topic for name, topic in topics.items() if topic.state is not TopicState.MISSING}


def _mark_deleted(topic: Topic) -> Topic:
    return dataclasses.replace(topic, state=TopicState.DELETED)


_STATES: Mapping[int, TopicState] = {
    protocol.UNKNOWN_TOPIC_OR_PARTITION: TopicState.MISSING,
    protocol.TOPIC_AUTHORIZATION_FAILED: TopicState.DENIED,
}
