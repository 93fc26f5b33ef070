"""Checks that the brokers, topics and partitions named in the options exist.

The checks run when a query starts for the first time, and for batch reads.

Source: Spark 4.2 KafkaOffsetReaderAdmin, which rejects starting offsets unless they name exactly the assigned
partitions. Here they may name a subset.
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
from zkconsumer.spark.options.starting_offsets import StartingOffsets
from zkconsumer.spark.options.subscription import Subscription


def check_brokers(config: ConsumerConfig) -> None:
    """Check that one of ``bootstrap.servers`` responds, if the property is set.

    The request is retried for up to ``zookeeper.connection.timeout.ms``. A query that resumes from a checkpoint waits
    up to ``clusterUnavailableTimeout`` instead, because its addresses are known to be valid.

    Raises:
        BrokerUnavailableError: no broker responds.
    """
    if not config.bootstrap_servers:
        return
    lookup = LeaderLookup(Connecting.from_config(config).with_timeout(config.zookeeper_connection_timeout_s))
    try:
        retrying(config.zookeeper_connection_timeout_s)(lookup.metadata, parse_bootstrap(config.bootstrap_servers), [])
    except BrokerUnavailableError as error:
        raise BrokerUnavailableError(
            f"no broker in bootstrap.servers={config.bootstrap_servers!r} responded within "
            f"{config.zookeeper_connection_timeout_s:g} s: {error}; check the addresses (the time limit is "
            "zookeeper.connection.timeout.ms)"
        ) from error
    finally:
        lookup.close()


def check_topics(subscription: Subscription, partitions: Collection[TopicPartition]) -> None:
    """Check that the topics or partitions named in a subscription exist.

    Args:
        partitions: the existing partitions that match the subscription.

    Raises:
        ConfigurationError: a named topic or partition does not exist.
    """
    topics = {partition.topic for partition in partitions}
    for topic in sorted({*subscription.topics, *(partition.topic for partition in subscription.assigned)}):
        if topic not in topics:
            raise ConfigurationError(f"topic {topic!r} does not exist; check the option subscribe or assign")
    if missing := sorted(set(subscription.assigned) - set(partitions)):
        raise ConfigurationError(
            f"option assign: topic {missing[0].topic!r} has no partition {missing[0].partition}; remove the "
            "partition from the option"
        )


def check_offsets(offsets: StartingOffsets, partitions: Collection[TopicPartition], prefix: str = "starting") -> None:
    """Check that starting or ending offsets name only existing partitions that the query reads.

    Args:
        partitions: the existing partitions that match the subscription.
        prefix: option name prefix, ``starting`` or ``ending``.

    Raises:
        ConfigurationError: the offsets name a topic or partition that does not exist, or that the query does not read.
    """
    option = f"option {prefix}OffsetsByTimestamp" if offsets.timestamps else f"option {prefix}Offsets"
    topics = sorted({partition.topic for partition in partitions})
    for name, wanted in offsets.named.items():
        if name not in topics:
            raise ConfigurationError(
                f"{option} names topic {name!r}, but the query reads {_list_topics(topics)}; remove the topic from "
                "the option"
            )
        if not isinstance(wanted, dict):
            continue
        numbers = {partition.partition for partition in partitions if partition.topic == name}
        if unknown := sorted(wanted.keys() - numbers):
            raise ConfigurationError(
                f"{option} names partition {unknown[0]} of topic {name!r}, but the query reads partitions "
                f"{', '.join(map(str, sorted(numbers)))} of this topic; remove partition {unknown[0]} from the option"
            )


def _list_topics(topics: list[str]) -> str:
    shown = ", ".join(topics[:10]) + (" and others" if len(topics) > 10 else "")
    return shown or "no existing topics"
