"""End offsets of topics, and topics that are re-created."""

from __future__ import annotations

import os

from kazoo.client import KazooClient

from helpers.waiting import wait_for
from zkconsumer.devcluster import DevCluster, ExistingCluster
from zkconsumer.errors import ZkConsumerError

#: Environment variable that is set if the processes of ``pytest -n`` share a cluster.
SHARED = "ZKCONSUMER_TEST_SHARED"


def outlives_tests(cluster: DevCluster | ExistingCluster) -> bool:
    """Return whether a cluster is still used after the tests, so that they must delete their topics and groups."""
    return isinstance(cluster, ExistingCluster) and SHARED not in os.environ


def end_offsets(cluster: DevCluster | ExistingCluster, topic: str, partitions: int) -> dict[int, int]:
    """Return the end offset of each partition from its current leader."""

    def ask() -> dict[int, int]:
        with cluster.new_admin() as admin:
            try:
                admin.wait_for_leaders(topic, partitions)
                return admin.offsets(topic, partitions)
            except ZkConsumerError:
                return {}

    return wait_for(ask, what="all partitions return their end offset")


def recreate_topic(cluster: DevCluster | ExistingCluster, zk: KazooClient, topic: str, partitions: int = 1) -> None:
    """Delete a topic of a cluster with ZooKeeper, and create it again when it has been deleted."""
    cluster.admin.delete_topic(topic)
    paths = f"/brokers/topics/{topic}", f"/admin/delete_topics/{topic}"
    wait_for(lambda: not any(zk.exists(path) for path in paths), what=f"topic {topic} is deleted")
    cluster.admin.create_topic(topic, partitions)
