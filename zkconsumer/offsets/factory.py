"""The offset storage that a consumer's properties select."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from zkconsumer.broker.security import Security
from zkconsumer.config import ConsumerConfig
from zkconsumer.message import Endpoint
from zkconsumer.offsets.base import Offsets
from zkconsumer.offsets.coordinator import GroupCoordinator
from zkconsumer.offsets.dual import DualOffsets
from zkconsumer.offsets.kafka import KafkaOffsets
from zkconsumer.offsets.zookeeper import ZooKeeperOffsets
from zkconsumer.zookeeper.session import ZooKeeperSession


def offsets_of(
    config: ConsumerConfig,
    session: ZooKeeperSession,
    brokers: Callable[[], Sequence[Endpoint]],
    timeout: float,
    *,
    storage: str,
    dual_commit: bool,
    counter: Callable[[str], Callable[[int], object]] = lambda _: int,
) -> Offsets:
    """Return the offsets of the group of a consumer with these properties.

    Args:
        brokers: returns who may be asked for the group's coordinator.
        timeout: seconds for each of its answers.
        storage: as in ``offsets.storage``.
        dual_commit: as in ``dual.commit.enabled``.
        counter: given ``ZooKeeper`` or ``Kafka``, returns what is told how many offsets are sent there.
    """
    rewrites, count = config.offsets_commit_unchanged, counter("ZooKeeper")
    zookeeper = ZooKeeperOffsets(session, config.group_id, rewrite_unchanged=rewrites, on_commit=count)
    if storage == "zookeeper":
        return zookeeper
    assert config.client_id is not None
    coordinator = GroupCoordinator(
        config.group_id, brokers, config.client_id, timeout=timeout, security=Security.of(config)
    )
    kafka = KafkaOffsets(coordinator, on_commit=counter("Kafka"))
    return DualOffsets(kafka, zookeeper) if dual_commit else kafka
