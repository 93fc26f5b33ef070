"""The load of the demo: numbered records, first as fast as possible, then at a steady rate."""

from __future__ import annotations

import threading
import time
from collections import Counter

from zkconsumer import TopicPartition
from zkconsumer.devcluster import DevCluster
from zkconsumer.devcluster.admin import Admin
from zkconsumer.devcluster.load import numbered_batch

#: Bytes of a value, and records of a batch in the bulk load.
VALUE_SIZE, BULK_BATCH = 100, 10_000

#: Batches per second and partition in the steady load.
BATCHES_PER_SECOND = 10


class Load(threading.Thread):
    """Produces the numbers from 0 on, in batches to each partition in turn.

    Attributes:
        ends: end offset of each partition.
        produced: number of records, which is also the next number.
        bulk_done: set when the bulk load has been produced, or after an error.
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
        """Sum of all numbers."""
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
        """Produce at the steady rate from now on."""
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
