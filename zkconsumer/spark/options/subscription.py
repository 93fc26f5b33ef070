"""The subscription of a query: topic names, a regular expression for topics, or individual partitions.

Source: Spark 4.2 ConsumerStrategy for ``subscribe``, ``subscribePattern`` and ``assign``; Kafka 1.1 TopicFilter for
``whitelist`` and ``blacklist``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from zkconsumer.config.types import join_words
from zkconsumer.errors import ConfigurationError
from zkconsumer.message import TopicPartition
from zkconsumer.metadata.base import Cluster
from zkconsumer.spark.options.option_reader import OptionReader
from zkconsumer.topic_filter import TopicFilter
from zkconsumer.zookeeper.registry import Registration

#: Mutually exclusive options; exactly one of them must be set.
NAMES = ("subscribe", "subscribePattern", "assign", "whitelist", "blacklist")

#: ``Subscription`` attributes for the options whose values are not regular expressions.
_ATTRIBUTES = {"subscribe": "topics", "assign": "assigned"}


@dataclass(frozen=True, slots=True)
class Subscription:
    """The topics or partitions of a query. Exactly one of ``topics``, ``filter`` and ``assigned`` is set.

    Attributes:
        topics: topic names, from ``subscribe``.
        filter: topic filter, from ``subscribePattern``, ``whitelist`` or ``blacklist``.
        assigned: partitions, from ``assign``.
        threads: number of thread ids by topic; other topics use the option ``numStreams``.
    """

    topics: tuple[str, ...] = ()
    filter: TopicFilter | None = None
    assigned: tuple[TopicPartition, ...] = ()
    threads: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def parse(cls, reader: OptionReader) -> Subscription:
        """Parse the subscription option.

        Raises:
            ConfigurationError: no subscription option is set, several are set, or the value is invalid.
        """
        given = [name for name in NAMES if reader.given(name)]
        if not given:
            raise ConfigurationError(
                "no topics to read: set one of the options subscribe, subscribePattern, whitelist, blacklist or assign"
            )
        if len(given) > 1:
            names = join_words(given, "and")
            raise ConfigurationError(f"options {names} are mutually exclusive; set exactly one of them")
        [name] = given
        return cls(**{_ATTRIBUTES.get(name, "filter"): reader[name]})

    def registration(self, streams: int) -> Registration:
        """Return the subscription as the member registers it in ZooKeeper.

        Args:
            streams: number of thread ids for topics that ``threads`` does not contain.
        """
        if self.filter is not None:
            return Registration({self.filter.regex: streams}, self.filter.pattern)
        return Registration.static({topic: self.threads.get(topic, streams) for topic in self.topics})

    def wants(self, topic: str, exclude_internal: bool) -> bool:
        """Return whether the query reads ``topic`` or some of its partitions."""
        if self.filter is not None:
            return self.filter.is_topic_allowed(topic, exclude_internal)
        return topic in self.topics or any(partition.topic == topic for partition in self.assigned)

    def partitions(self, cluster: Cluster, exclude_internal: bool) -> list[TopicPartition]:
        """Return the subscribed partitions that currently exist, and watch the cluster for changes."""
        if self.filter is not None:
            topics = self.filter.select(cluster.topics(), exclude_internal)
        else:
            topics = sorted({*self.topics, *(partition.topic for partition in self.assigned)})
        found = cluster.partitions(topics)
        existing = [TopicPartition(topic, number) for topic in sorted(found) for number in found[topic]]
        return [partition for partition in existing if not self.assigned or partition in self.assigned]
