"""What a query reads: topics by name, topics by a regular expression, or single partitions.

Source: Spark 4.2 ConsumerStrategy for ``subscribe``, ``subscribePattern`` and ``assign``; Kafka 1.1 TopicFilter for
``whitelist`` and ``blacklist``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from zkconsumer.errors import ConfigurationError
from zkconsumer.message import TopicPartition
from zkconsumer.metadata.base import Cluster
from zkconsumer.rebalance.topic_filter import Blacklist, TopicFilter, Whitelist
from zkconsumer.spark.options.option_reader import OptionReader, invalid, join_words
from zkconsumer.zookeeper.registry import Registration, check_topic_name

#: Options of which exactly one must be set.
NAMES = ("subscribe", "subscribePattern", "assign", "whitelist", "blacklist")

#: Options whose value is a regular expression.
_EXPRESSIONS = ("subscribePattern", "whitelist", "blacklist")


@dataclass(frozen=True, slots=True)
class Subscription:
    """Topics or partitions of a query; exactly one of the first three attributes is set.

    Attributes:
        topics: names, from ``subscribe``.
        filter: from ``subscribePattern``, ``whitelist`` or ``blacklist``.
        assigned: partitions, from ``assign``.
        threads: number of thread ids by topic, for topics in which it differs from the option ``streams``.
    """

    topics: tuple[str, ...] = ()
    filter: TopicFilter | None = None
    assigned: tuple[TopicPartition, ...] = ()
    threads: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def parse(cls, reader: OptionReader) -> Subscription:
        """Read the one option that is set.

        Raises:
            ConfigurationError: none of the options is set, or more than one, or its value is not valid.
        """
        given = {name: text for name in NAMES if (text := reader.text(name)) is not None}
        if not given:
            raise ConfigurationError(
                "no topics to read: set option subscribe to topic names separated by commas, or one of the options "
                f"subscribePattern, whitelist, blacklist and assign{reader.read_similar_to(NAMES)}"
            )
        if len(given) > 1:
            names = join_words(given, "and")
            raise ConfigurationError(f"options {names} are mutually exclusive; set exactly one of them")
        [(name, text)] = given.items()
        if name in _EXPRESSIONS:
            return cls(filter=_filter(name, text))
        return cls(topics=_topics(text)) if name == "subscribe" else cls(assigned=_partitions(text))

    def registration(self, streams: int) -> Registration:
        """Return the subscription for the member's registration in ZooKeeper.

        Args:
            streams: number of thread ids of a topic that ``threads`` does not contain.
        """
        if self.filter is not None:
            return Registration({self.filter.regex: streams}, self.filter.pattern)
        return Registration.static({topic: self.threads.get(topic, streams) for topic in self.topics})

    def wants(self, topic: str, exclude_internal: bool) -> bool:
        """Whether the query reads a topic, or some partitions of it."""
        if self.filter is not None:
            return self.filter.is_topic_allowed(topic, exclude_internal)
        return topic in self.topics or any(partition.topic == topic for partition in self.assigned)

    def partitions(self, cluster: Cluster, exclude_internal: bool) -> list[TopicPartition]:
        """Return the subscribed partitions that exist now. Later changes are reported by the cluster's session."""
        if self.filter is not None:
            topics = self.filter.select(cluster.topics(), exclude_internal)
        else:
            topics = sorted({*self.topics, *(partition.topic for partition in self.assigned)})
        found = cluster.partitions(topics)
        existing = [TopicPartition(topic, number) for topic in sorted(found) for number in found[topic]]
        return [partition for partition in existing if not self.assigned or partition in self.assigned]


def _filter(name: str, text: str) -> TopicFilter:
    if name == "subscribePattern" and "," in text:
        raise ConfigurationError(
            f"option subscribePattern must not contain a comma, got {text!r}: other members of the group read a comma "
            "as '|'. Use '|' for alternatives, and replace a repetition such as a{2,3} by aa|aaa"
        )
    if name == "blacklist":
        return Blacklist(text)
    topic_filter = Whitelist(text)
    if not topic_filter.regex:
        raise invalid(name, "a non-empty regular expression", text)
    return topic_filter


def _topics(text: str) -> tuple[str, ...]:
    topics = tuple(topic.strip() for topic in text.split(",") if topic.strip())
    if not topics:
        raise invalid("subscribe", "topic names separated by commas", text)
    for topic in topics:
        try:
            check_topic_name(topic)
        except ConfigurationError as error:
            raise ConfigurationError(f"{invalid('subscribe', 'valid topic names', text)}: {error}") from None
    return topics


def _partitions(text: str) -> tuple[TopicPartition, ...]:
    try:
        content = json.loads(text)
        found = [TopicPartition(topic, number) for topic, numbers in content.items() for number in numbers]
        if not found or not all(type(p.partition) is int and p.partition >= 0 for p in found):
            raise ValueError(text)
        for partition in found:
            check_topic_name(partition.topic)
    except (ValueError, AttributeError, TypeError, RecursionError, ConfigurationError) as error:
        raise invalid("assign", 'JSON with partitions by topic, such as {"a":[0,1],"b":[2]}', text) from error
    return tuple(sorted(set(found)))
