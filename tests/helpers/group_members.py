"""Group members and parts of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Set
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

from helpers.teardown import started
from helpers.threads import in_thread
from zkconsumer import ConsumerConfig, TopicPartition, ZookeeperConsumerConnector, create_consumer
from zkconsumer.errors import ZkConsumerError
from zkconsumer.rebalance.committer import OffsetCommitter
from zkconsumer.rebalance.handler import AssignedPartition
from zkconsumer.rebalance.mailbox import Mailbox
from zkconsumer.rebalance.session_watch import SessionWatch


@contextlib.contextmanager
def consumers(config: Callable[..., ConsumerConfig]) -> Iterator[Callable[..., ZookeeperConsumerConnector]]:
    """Yield a function that creates members with the result of ``config``; shut them down at the end of the block."""

    def make(**settings: object) -> ZookeeperConsumerConnector:
        return create_consumer(config(**settings))

    def stop(connector: ZookeeperConsumerConnector) -> None:
        in_thread(connector.shutdown).result(30)  # pytest-timeout does not apply after a failed test

    with started(make, stop) as start:
        yield start


class IdleHandler:
    """A PartitionHandler that owns partitions and reads nothing.

    Args:
        release_timeout_s: seconds for which revoked partitions are kept, as by a Spark query that does not finish its
            batch; 0 to release them at once.
    """

    def __init__(self, release_timeout_s: float = 0.0) -> None:
        self.release_timeout_s = release_timeout_s

    def on_partitions_assigned(self, partitions: Mapping[TopicPartition, AssignedPartition]) -> None:
        pass

    def on_partitions_revoked(
        self, partitions: Set[TopicPartition], final: bool
    ) -> Mapping[TopicPartition, int] | None:
        return {} if final or not self.release_timeout_s else None

    def on_partitions_lost(self) -> None:
        pass

    def on_lease_expired(self) -> None:
        pass

    def consumed_offsets(self) -> Mapping[TopicPartition, int]:
        return {}

    def take_resets(self) -> Set[TopicPartition]:
        return frozenset()

    def fail(self, error: ZkConsumerError) -> None:
        raise error


def unregistered_watch() -> SessionWatch:
    """Return the watch of a member that is not registered; its mailbox is open."""
    mailbox = Mailbox("the consumer has been shut down")
    mailbox.open()
    membership = SimpleNamespace(group="g", consumer_id="g_c", is_registered=False, assignment={})
    return SessionWatch(cast("Any", SimpleNamespace()), cast("Any", membership), mailbox)


def commit(
    committer: OffsetCommitter,
    offsets: Mapping[TopicPartition, int] | Callable[[], Mapping[TopicPartition, int]],
    *,
    allow_lower: bool = False,
    on_committed: Callable[[dict[TopicPartition, int]], None] | None = None,
) -> Future[dict[TopicPartition, int]]:
    """Request a commit, and return the future with the committed offsets."""
    result: Future[dict[TopicPartition, int]] = Future()
    committer.commit(offsets, result, allow_lower=allow_lower, on_committed=on_committed)
    return result


def switch(committer: OffsetCommitter) -> Future[dict[TopicPartition, int]]:
    """Request a switch of the offset storage to Kafka, and return the future with the committed offsets."""
    result: Future[dict[TopicPartition, int]] = Future()
    committer.switch("kafka", False, result)
    return result
