"""Deletes the checkpoint and the committed offsets of an application. Topics are not deleted."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from zkconsumer.errors import BrokerUnavailableError
from zkconsumer.spark.streams.checkpoint import delete_checkpoint
from zkconsumer.spark.streams.cluster import ApplicationCluster
from zkconsumer.spark.streams.owner import ApplicationOwner
from zkconsumer.zookeeper.registry import GroupPaths

_TIMEOUT_S = 30.0


def clean_up(spark: Any, checkpoint: str, cluster: ApplicationCluster) -> list[str]:
    """Delete the checkpoint and the committed offsets of an application; return what was deleted.

    Args:
        spark: a Spark session.
        checkpoint: directory of the checkpoint.
        cluster: the cluster of the application.

    Raises:
        StreamsError: the application is running. This is not detected without ZooKeeper.
        RetriableError: ZooKeeper or the brokers do not respond.
    """
    with ExitStack() as closing:
        if cluster.has_zookeeper:
            owner = ApplicationOwner(cluster.config)
            closing.callback(owner.close)
            owner.acquire()
        return _delete_all(spark, checkpoint, cluster)


def _delete_all(spark: Any, checkpoint: str, cluster: ApplicationCluster) -> list[str]:
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
    # The checkpoint is the last one: if this is interrupted, the call can be repeated.
    if delete_checkpoint(spark, checkpoint):
        deleted.append(f"checkpoint {checkpoint}")
    return deleted


def _delete_group(client: Mapping[str, Any], group: str) -> bool:
    """Delete a group from Kafka; return whether it existed."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient

    admin = AdminClient(dict(client))  # without this reference, its thread would end
    [deleted] = admin.delete_consumer_groups([group], request_timeout=_TIMEOUT_S).values()
    try:
        deleted.result(_TIMEOUT_S + 5)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
            return False
        raise BrokerUnavailableError(f"group {group!r} was not deleted: {error.args[0].str()}") from error
    return True
