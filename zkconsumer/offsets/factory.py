"""Creates the client for the offset storage that a consumer's configuration selects."""

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
    """Create a client for the selected offset storage.

    Args:
        config: consumer configuration.
        session: ZooKeeper session.
        brokers: function that returns the brokers to query for the group coordinator.
        connecting: settings for the connection to the group coordinator.
        storage: value of ``offsets.storage``.
        dual_commit: value of ``dual.commit.enabled``.
        counter: function that is called with ``ZooKeeper`` or ``Kafka``, and returns a function that counts the offsets
            committed there.
        topic_ids: function that returns the ids of existing topics, to detect re-created topics; see ``topic_id``.
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
