"""Load generator of the demo: produces numbered records, first as fast as possible, then at a steady rate."""

from __future__ import annotations

import threading
import time
from collections import Counter

from zkconsumer import TopicPartition
from zkconsumer.devcluster import DevCluster
from zkconsumer.devcluster.admin import Admin
from zkconsumer.devcluster.load import numbered_batch

#: Value size in bytes, and number of records per batch in the bulk load.
VALUE_SIZE, BULK_BATCH = 100, 10_000

#: Batches per second per partition during the steady load.
BATCHES_PER_SECOND = 10


class Load(threading.Thread):
    """Thread that produces 0, 1, 2, ... in batches, round-robin over the partitions.

    Attributes:
        ends: end offset of each partition.
        produced: number of records produced so far, which is also the next number.
        bulk_done: event that is set after the bulk load was produced, or after an error.
        error: the error that stopped the thread, if any.
    """

    def __init__(self, cluster: DevCluster, topic: str, partitions: int, bulk: int, per_second: int) -> None:
        super().__init__(name="demo-load", daemon=True)
        self.ends: Counter[int] = Counter()
        self.produced = 0
        self.bulk_done = threading.Event()
        self.error: BaseException | None = None
        self._topic, self._partitions, self._bulk, self._per_second = topic, partitions, bulk, per_second
        self._cluster = cluster
        self._steady = threading.Event()
        self._stopped = threading.Event()

    @property
    def total(self) -> int:
        """Sum of all numbers produced so far."""
        return self.produced * (self.produced - 1) // 2

    def run(self) -> None:
        """Produce the bulk load; then wait for ``start_steady_load``, and produce until stopped."""
        try:
            with self._cluster.new_admin() as admin:
                while self.produced < self._bulk and not self._stopped.is_set():
                    self._produce_to_all(admin, BULK_BATCH)
                self.bulk_done.set()
                self._steady.wait()
                due = time.monotonic()
                while not self._stopped.wait(max(0.0, due - time.monotonic())):
                    due += 1 / BATCHES_PER_SECOND
                    self._produce_to_all(admin, self._per_second // self._partitions // BATCHES_PER_SECOND)
        except BaseException as error:
            self.error = error
            self.bulk_done.set()

    def start_steady_load(self) -> None:
        """Start producing at the steady rate."""
        self._steady.set()

    def stop(self) -> None:
        """Stop producing."""
        self._stopped.set()
        self._steady.set()
        self.join(30)

    def _produce_to_all(self, admin: Admin, count: int) -> None:
        batches = {}
        for partition in range(self._partitions):
            first = self.produced + partition * count
            batches[TopicPartition(self._topic, partition)] = numbered_batch(first, count, size=VALUE_SIZE)
        admin.produce_all(batches)
        self.produced += count * self._partitions
        for partition in range(self._partitions):
            self.ends[partition] += count
