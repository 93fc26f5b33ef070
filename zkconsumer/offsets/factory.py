"""The offset storage that a consumer's properties select."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from zkconsumer.broker.connect import Connecting
from zkconsumer.config import ConsumerConfig
from zkconsumer.message import Endpoint
from zkconsumer.offsets.base import Offsets
from zkconsumer.offsets.coordinator import GroupCoordinator
from zkconsumer.offsets.dual import DualOffsets
from zkconsumer.offsets.kafka import KafkaOffsets
from zkconsumer.offsets.zookeeper import ZooKeeperOffsets
from zkconsumer.zookeeper.session import ZooKeeperSession


def create_offsets(
    config: ConsumerConfig,
    session: ZooKeeperSession,
    brokers: Callable[[], Sequence[Endpoint]],
    connecting: Connecting,
    *,
    storage: str,
    dual_commit: bool,
    counter: Callable[[str], Callable[[int], object]] = lambda _: int,
    topic_ids: Callable[[], Mapping[str, str]] = dict,
) -> Offsets:
    """Create the storage of committed offsets that a consumer's properties select.

    Args:
        brokers: returns the brokers that may receive requests for the group's coordinator.
        connecting: how to connect to the coordinator.
        storage: value of ``offsets.storage``.
        dual_commit: value of ``dual.commit.enabled``.
        counter: called with ``ZooKeeper`` or ``Kafka``; returns a function that is called with the number of offsets
            sent there.
        topic_ids: returns the ids of existing topics, to detect those that were re-created; see ``topic_id``.
    """
    zookeeper = ZooKeeperOffsets(
        session,
        config.group_id,
        rewrite_unchanged=config.offsets_commit_unchanged,
        on_commit=counter("ZooKeeper"),
        topic_ids=topic_ids,
    )
    if storage == "zookeeper":
        return zookeeper
    coordinator = GroupCoordinator(config.group_id, brokers, connecting)
    kafka = KafkaOffsets(coordinator, counter("Kafka"), topic_ids)
    return DualOffsets(kafka, zookeeper) if dual_commit else kafka
