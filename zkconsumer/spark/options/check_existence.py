"""Checks at the first start of a query, and of batch reads: brokers, topics and partitions that options name exist.

Source: Spark 4.2 KafkaOffsetReaderAdmin, which refuses starting offsets unless they name exactly the assigned
partitions. Here they may name some of them.
"""

from __future__ import annotations

from collections.abc import Collection

from zkconsumer.broker.connect import Connecting
from zkconsumer.broker.leaders import LeaderLookup
from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import BrokerUnavailableError, ConfigurationError
from zkconsumer.message import TopicPartition
from zkconsumer.metadata.bootstrap import parse_bootstrap
from zkconsumer.retry import retrying
from zkconsumer.spark.options.starting_offsets import StartingOffsets, matches
from zkconsumer.spark.options.subscription import Subscription


def check_brokers(config: ConsumerConfig) -> None:
    """Check that one of ``bootstrap.servers`` responds, if the property is set.

    It is retried for ``zookeeper.connection.timeout.ms``. A query that has been connected before waits for
    ``clusterUnavailableTimeout`` instead, because its addresses are known to be valid.

    Raises:
        BrokerUnavailableError: none of the brokers responds.
    """
    if not config.bootstrap_servers:
        return
    lookup = LeaderLookup(Connecting.from_config(config).with_timeout(config.zookeeper_connection_timeout_s))
    try:
        retrying(config.zookeeper_connection_timeout_s)(lookup.metadata, parse_bootstrap(config.bootstrap_servers), [])
    except BrokerUnavailableError as error:
        raise BrokerUnavailableError(
            f"none of the brokers in bootstrap.servers = {config.bootstrap_servers!r} has responded within "
            f"{config.zookeeper_connection_timeout_s:g} s ({error}); check the addresses, or increase "
            "zookeeper.connection.timeout.ms, which also applies to the first connection to brokers"
        ) from error
    finally:
        lookup.close()


def check_topics(subscription: Subscription, partitions: Collection[TopicPartition]) -> None:
    """Check that the topics or partitions that a subscription names exist.

    Args:
        partitions: the subscribed partitions that exist.

    Raises:
        ConfigurationError: one of them does not exist.
    """
    topics = {partition.topic for partition in partitions}
    for topic in sorted({*subscription.topics, *(partition.topic for partition in subscription.assigned)}):
        if topic not in topics:
            raise ConfigurationError(f"topic {topic!r} does not exist; create it, or correct the subscription")
    if missing := sorted(set(subscription.assigned) - set(partitions)):
        raise ConfigurationError(
            f"option assign: topic {missing[0].topic!r} has no partition {missing[0].partition}; correct the option"
        )


def check_offsets(offsets: StartingOffsets, partitions: Collection[TopicPartition], prefix: str = "starting") -> None:
    """Check that starting or ending options name only topics and partitions of the query that exist.

    Args:
        partitions: the subscribed partitions that exist.
        prefix: of the option names, ``starting`` or ``ending``.

    Raises:
        ConfigurationError: they name another topic or partition.
    """
    option = f"option {prefix}OffsetsByTimestamp" if offsets.timestamps else f"option {prefix}Offsets"
    topics = sorted({partition.topic for partition in partitions})
    for name, wanted in offsets.named.items():
        matching = [name] if name in topics else [topic for topic in topics if matches(name, topic)]
        if not matching:
            raise ConfigurationError(
                f"{option} names topic {name!r}, but the query reads {_list_topics(topics)}; correct the name, or "
                "remove it from the option"
            )
        if not isinstance(wanted, dict):
            continue
        numbers = {partition.partition for partition in partitions if partition.topic in matching}
        if unknown := sorted(wanted.keys() - numbers):
            raise ConfigurationError(
                f"{option} names partition {unknown[0]} of topic {name!r}, which has the partitions "
                f"{', '.join(map(str, sorted(numbers)))}; remove it from the option"
            )


def _list_topics(topics: list[str]) -> str:
    shown = ", ".join(topics[:10]) + (" and others" if len(topics) > 10 else "")
    return shown or "no existing topic"
