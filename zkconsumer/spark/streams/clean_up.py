"""Deletes the checkpoint, the committed offsets and the internal topics of an application."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from zkconsumer.errors import BrokerUnavailableError
from zkconsumer.spark.streams.checkpoint import delete_checkpoint
from zkconsumer.spark.streams.cluster import ApplicationCluster
from zkconsumer.spark.streams.internal_topics import InternalTopics, wait_for_error
from zkconsumer.spark.streams.owner import ApplicationOwner
from zkconsumer.zookeeper.registry import GroupPaths

_TIMEOUT_S = 30.0


def clean_up(spark: Any, checkpoint: str, cluster: ApplicationCluster, internal: InternalTopics) -> list[str]:
    """Delete the checkpoint, the committed offsets and the internal topics of an application; return what was deleted.

    Args:
        spark: a Spark session.
        checkpoint: checkpoint directory.
        cluster: Kafka cluster of the application.
        internal: internal topics of the application.

    Raises:
        StreamsError: the application is running (not detected without ZooKeeper), or the checkpoint was not
            written by an application.
        RetriableError: ZooKeeper or the brokers did not respond.
    """
    with ExitStack() as closing:
        if cluster.has_zookeeper:
            owner = ApplicationOwner(cluster.config)
            closing.callback(owner.close)
            owner.acquire()
        return _delete_all(spark, checkpoint, cluster, internal)


def _delete_all(spark: Any, checkpoint: str, cluster: ApplicationCluster, internal: InternalTopics) -> list[str]:
    deleted, group = [], cluster.config.group_id
    with cluster.open() as access:
        if cluster.has_zookeeper:
            path = f"{GroupPaths(group).root}/offsets"
            if access.session.znodes.exists(path):
                access.session.znodes.delete_tree(path)
                deleted.append(f"committed offsets in ZooKeeper, {path}")
        brokers = access.cluster.brokers()
    if _delete_group(cluster.client_settings(brokers), group):
        deleted.append(f"committed offsets in Kafka, group {group!r}")
    deleted += [f"internal topic {topic}" for topic in internal.delete()]
    # Delete the checkpoint last, so that an interrupted call can be repeated.
    if delete_checkpoint(spark, checkpoint):
        deleted.append(f"checkpoint {checkpoint}")
    return deleted


def _delete_group(client: Mapping[str, Any], group: str) -> bool:
    """Delete a group from Kafka; return whether it existed."""
    from confluent_kafka import KafkaError
    from confluent_kafka.admin import AdminClient

    admin = AdminClient(dict(client))  # without this reference, the client's thread would end
    [deleted] = admin.delete_consumer_groups([group], request_timeout=_TIMEOUT_S).values()
    error = wait_for_error(deleted, f"deletion of group {group!r}")
    if error is None:
        return True
    if error.code() == KafkaError.GROUP_ID_NOT_FOUND:
        return False
    raise BrokerUnavailableError(f"group {group!r} was not deleted: {error.str()}")
