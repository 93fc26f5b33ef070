"""Numbers written at a steady rate."""

from __future__ import annotations

import threading
from types import TracebackType

from support import PATIENCE, wait_for

from zkconsumer import TopicPartition
from zkconsumer.devcluster import DevCluster, ExistingCluster
from zkconsumer.devcluster.load import numbered_batch

from .jvm import WIDTH


class Load:
    """Writes the numbers from 0 on, a batch to each partition in turn, in a thread, until it is stopped.

    Never faster than ``per_second``: what a pause has delayed is not made up for.
    """

    def __init__(
        self,
        cluster: DevCluster | ExistingCluster,
        topic: str,
        partitions: int,
        *,
        per_second: int = 2000,
        batch: int = 40,
    ) -> None:
        self.per_second = per_second
        self.partitions = partitions
        self.written = 0
        self._admin = cluster.new_admin()
        self._topic, self._batch = topic, batch
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="test-load", daemon=True)
        self._thread.start()

    def __enter__(self) -> Load:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):
        self.stop()

    def partition_of(self, number: int) -> int:
        """Return where a number was written."""
        return number // self._batch % self.partitions

    def wait_for_more(self, count: int, timeout: float = PATIENCE) -> int:
        """Wait until ``count`` further numbers were written; returns the first that was not."""
        least = self.written + count
        wait_for(lambda: self.written >= least, timeout, what=f"{count} more numbers are written")
        return self.written

    def stop(self) -> int:
        """Stop writing, raise what went wrong with it, and return the first number that was not written."""
        self._stop.set()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "the load does not stop"
        if self._error is not None:
            raise self._error
        return self.written

    def _run(self) -> None:
        try:
            while not self._stop.wait(self._batch / self.per_second):
                partition = TopicPartition(self._topic, self.partition_of(self.written))
                self._admin.produce(partition, numbered_batch(self.written, self._batch, size=WIDTH))
                self.written += self._batch
        except BaseException as error:
            self._error = error
        finally:
            self._admin.close()
