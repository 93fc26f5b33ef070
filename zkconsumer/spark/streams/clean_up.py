"""Deletes the checkpoint, the committed offsets and the internal topics of an application."""

from __future__ import annotations

from contextlib import ExitStack

from zkconsumer.spark.streams.admin_requests import delete_group
from zkconsumer.spark.streams.checkpoint import check_deletable
from zkconsumer.spark.streams.checkpoint_directory import CheckpointDirectory
from zkconsumer.spark.streams.cluster import ApplicationCluster
from zkconsumer.spark.streams.group import ApplicationGroup
from zkconsumer.spark.streams.internal_topics import InternalTopics
from zkconsumer.spark.streams.owner import ApplicationOwner
from zkconsumer.zookeeper.registry import GroupPaths


def clean_up(directory: CheckpointDirectory, cluster: ApplicationCluster, internal: InternalTopics) -> list[str]:
    """Delete the checkpoint, the committed offsets and the internal topics of an application; return what was deleted.

    Everything is checked before the first deletion.

    Args:
        directory: checkpoint directory.
        cluster: Kafka cluster of the application.
        internal: internal topics of the application.

    Raises:
        StreamsError: the application is running (not detected without ZooKeeper), the group has members, or the
            checkpoint was not written by this application.
        RetriableError: ZooKeeper or the brokers did not respond.
    """
    with ExitStack() as closing:
        if cluster.has_zookeeper:
            owner = ApplicationOwner(cluster.config)
            closing.callback(owner.close)
            owner.acquire()
        has_checkpoint = check_deletable(directory, cluster.config.group_id)
        with cluster.open() as access:
            ApplicationGroup(cluster, access, commits_to_kafka=True).check_members()
        return _delete_all(directory if has_checkpoint else None, cluster, internal)


def _delete_all(
    directory: CheckpointDirectory | None, cluster: ApplicationCluster, internal: InternalTopics
) -> list[str]:
    deleted, group = [], cluster.config.group_id
    with cluster.open() as access:
        # First, because the broker rejects the request if a member has joined in the meantime.
        if delete_group(cluster.client_settings(), group):
            deleted.append(f"committed offsets in Kafka, group {group!r}")
        if cluster.has_zookeeper:
            path = f"{GroupPaths(group).root}/offsets"
            if access.session.znodes.exists(path):
                access.session.znodes.delete_tree(path)
                deleted.append(f"committed offsets in ZooKeeper, {path}")
    deleted += [f"internal topic {topic}" for topic in internal.delete(cluster.find_topics)]
    # Delete the checkpoint last, so that an interrupted call can be repeated.
    if directory is not None:
        directory.delete()
        deleted.append(f"{directory}")
    return deleted
