"""Checks that a checkpoint belongs to the query, and restores the subscription from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zkconsumer.errors import ConfigurationError
from zkconsumer.log import get_logger
from zkconsumer.spark.offset import BatchOffset, check_format
from zkconsumer.spark.options.source_options import SourceOptions
from zkconsumer.spark.options.subscription import Subscription


def restored_subscription(options: SourceOptions, offset: Mapping[str, Any]) -> Subscription:
    """Return the subscription of a query that resumes from an offset in its checkpoint.

    With ``ignoreUnsubscribedTopics=false``, all topics of the checkpoint are added to the subscription.

    Raises:
        ConfigurationError: the checkpoint was written for another group or other topics, by another data source, or by
            a later release; or ``ignoreUnsubscribedTopics=false`` requires the option ``subscribe``.
    """
    check_format(offset)
    subscription, last = options.subscription, BatchOffset.from_json(offset)
    if (group := last.group) not in (None, options.consumer.group_id):
        raise ConfigurationError(
            f"the checkpoint belongs to group {group!r}, but group.id is {options.consumer.group_id!r}; to change the "
            "group, use a new checkpointLocation"
        )
    topics = {partition.topic for partition in last.partitions}
    exclude_internal = options.consumer.exclude_internal_topics
    unsubscribed = sorted(topic for topic in topics if not subscription.wants(topic, exclude_internal))
    if unsubscribed and options.keeps_unsubscribed:
        if not subscription.topics:
            raise ConfigurationError(
                "option ignoreUnsubscribedTopics=false requires the option subscribe, because the checkpoint contains "
                f"topics outside the subscription: {', '.join(unsubscribed)}"
            )
        return Subscription(topics=(*subscription.topics, *unsubscribed))
    if unsubscribed and len(unsubscribed) == len(topics):
        raise ConfigurationError(
            f"the query subscribes to none of the topics in its checkpoint ({', '.join(unsubscribed)}); to read only "
            "other topics, use a new checkpointLocation"
        )
    log = get_logger("zkconsumer.spark", group=options.consumer.group_id)
    if unsubscribed:
        log.warning("checkpoint_topics_ignored", topics=unsubscribed, reason="the query no longer subscribes to them")
    unassigned = [p for p in sorted(last.partitions) if p.topic not in unsubscribed and p not in subscription.assigned]
    if subscription.assigned and unassigned:
        log.warning(
            "checkpoint_partitions_ignored",
            partitions=[str(partition) for partition in unassigned],
            reason="option assign does not contain these partitions",
        )
    return subscription
