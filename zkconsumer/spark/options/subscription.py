"""What a query wants to read: topics by name, by an expression, or some partitions.

Source: Spark 4.2 ConsumerStrategy for ``subscribe``, ``subscribePattern`` and ``assign``; Kafka 1.1 TopicFilter for
``whitelist`` and ``blacklist``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from zkconsumer.broker.cluster import Cluster
from zkconsumer.errors import ConfigurationError
from zkconsumer.message import TopicPartition
from zkconsumer.rebalance.topic_filter import Blacklist, TopicFilter, Whitelist
from zkconsumer.spark.options.option_reader import OptionReader
from zkconsumer.zookeeper.registry import Registration, check_topic_name

#: The options that say it; exactly one of them is given.
NAMES = ("subscribe", "subscribePattern", "assign", "whitelist", "blacklist")


@dataclass(frozen=True, slots=True)
class Subscription:
    """What was asked for; one of the first three is set.

    ``threads`` says how many thread ids a topic has, where that differs.
    """

    topics: tuple[str, ...] = ()
    filter: TopicFilter | None = None
    assigned: tuple[TopicPartition, ...] = ()
    threads: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def parse(cls, take: OptionReader) -> Subscription:
        """Read the one option that is given.

        Raises:
            ConfigurationError: none is, or several are, or it cannot be read.
        """
        given = {name: text for name in NAMES if (text := take(name)) is not None}
        if not given:
            raise ConfigurationError(
                "option 'subscribe' is missing: topic names with commas are expected, or subscribePattern, whitelist "
                "or blacklist with an expression, or assign with partitions"
            )
        if len(given) > 1:
            raise ConfigurationError(f"options {' and '.join(given)} are given; exactly one of them is expected")
        [(name, text)] = given.items()
        if name == "subscribe":
            return cls(topics=_names(text))
        if name == "assign":
            return cls(assigned=_partitions(text))
        if name == "subscribePattern" and "," in text:
            raise ConfigurationError(
                f"option subscribePattern = {text!r}: members of a group take a comma for 'or'; write | where that is "
                "meant, and {2,3} in another way"
            )
        topic_filter = Blacklist(text) if name == "blacklist" else Whitelist(text)
        if name != "blacklist" and not topic_filter.regex:
            raise ConfigurationError(f"option {name} = {text!r}: an expression is expected; this matches no topic")
        return cls(filter=topic_filter)

    def registration(self, streams: int) -> Registration:
        """Return how a member of a group says it."""
        if self.filter is not None:
            return Registration({self.filter.regex: streams}, self.filter.pattern)
        return Registration.static({topic: self.threads.get(topic, streams) for topic in self.topics})

    def wants(self, topic: str, exclude_internal: bool) -> bool:
        """Whether a topic, or a part of it, is to be read."""
        if self.filter is not None:
            return self.filter.is_topic_allowed(topic, exclude_internal)
        return topic in self.topics or any(partition.topic == topic for partition in self.assigned)

    def partitions(self, cluster: Cluster, exclude_internal: bool) -> list[TopicPartition]:
        """Return the partitions that exist; later changes of them are events of the cluster's session."""
        if self.filter is not None:
            topics = [topic for topic in cluster.topics() if self.filter.is_topic_allowed(topic, exclude_internal)]
        else:
            topics = sorted({*self.topics, *(partition.topic for partition in self.assigned)})
        found = cluster.partitions(topics)
        existing = [TopicPartition(topic, number) for topic in sorted(found) for number in found[topic]]
        return [partition for partition in existing if not self.assigned or partition in self.assigned]


def _names(text: str) -> tuple[str, ...]:
    topics = tuple(topic.strip() for topic in text.split(",") if topic.strip())
    if not topics:
        raise ConfigurationError(f"option subscribe = {text!r}: topic names with commas are expected")
    for topic in topics:
        try:
            check_topic_name(topic)
        except ConfigurationError as error:
            raise ConfigurationError(f"option subscribe = {text!r}: {error}") from None
    return topics


def _partitions(text: str) -> tuple[TopicPartition, ...]:
    try:
        content = json.loads(text)
        found = [TopicPartition(topic, number) for topic, numbers in content.items() for number in numbers]
        if not found or not all(type(p.partition) is int and p.partition >= 0 for p in found):
            raise ValueError(text)
        for partition in found:
            check_topic_name(partition.topic)
    except (ValueError, AttributeError, TypeError, ConfigurationError) as error:
        raise ConfigurationError(
            f'option assign = {text!r}: topics with their partitions are expected, such as {{"a":[0,1],"b":[2]}}'
        ) from error
    return tuple(sorted(set(found)))
