"""Produce records, once or at a steady rate."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from helpers.waiting import TIMEOUT_S, wait_for
from zkconsumer import TopicPartition
from zkconsumer.devcluster import Admin, DevCluster, ExistingCluster
from zkconsumer.devcluster.load import SteadyLoad, batch


def numbers(first: int, end: int) -> list[bytes]:
    """Return the numbers from ``first`` to ``end`` (exclusive) as text."""
    return [b"%d" % number for number in range(first, end)]


def produce(admin: Admin, topic: str, partition: int, content: Iterable[bytes], *, codec: str = "none") -> int:
    """Append one batch with these values and return the offset of the first."""
    return admin.produce(TopicPartition(topic, partition), batch(list(content), codec=codec))


class Load(SteadyLoad):
    """A producer that writes to all partitions of a topic at a steady rate."""

    def __init__(self, cluster: DevCluster | ExistingCluster, topic: str, partitions: int, **options: Any) -> None:
        super().__init__(
            cluster.new_admin(), [TopicPartition(topic, number) for number in range(partitions)], **options
        )

    def wait_for_more(self, count: int = 1, timeout: float = TIMEOUT_S) -> int:
        """Wait until ``count`` more numbers have been written; return the first number that has not."""
        least = self.written + count
        wait_for(lambda: self.written >= least, timeout, what=f"{count} more numbers have been written")
        return self.written
