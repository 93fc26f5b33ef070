"""Writes records to a topic in small portions until it is stopped, so that an application always has work."""

from __future__ import annotations

import random
import threading
from abc import ABC, abstractmethod

from helpers.aliases import Cluster

from zkconsumer.devcluster.load import batch
from zkconsumer.message import TopicPartition

#: Milliseconds between the timestamps of two portions.
STEP_MS = 100
_PAUSE_S = 0.1
_MAX_RECORDS = 8
_KEYS = 20


class FeedThread(ABC):
    """A thread that writes records until it is stopped. It starts with the object."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="test-feed", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop writing; raise the error that ended the thread. A second call has no effect."""
        self._stop.set()
        self._thread.join(60)
        try:
            assert not self._thread.is_alive()
            if self._error is not None:
                raise self._error
        finally:
            self.close()

    @abstractmethod
    def close(self) -> None:
        """Close the connections, after the thread has ended."""

    @abstractmethod
    def write(self) -> None:
        """Write records until the thread is stopped."""

    def _run(self) -> None:
        try:
            self.write()
        except BaseException as error:
            self._error = error


class Feed(FeedThread):
    """Writes to random partitions.

    Args:
        cluster: the cluster.
        topic: name of the topic.
        partitions: number of its partitions.
        rng: selects partitions and values.
    """

    def __init__(self, cluster: Cluster, topic: str, partitions: int, rng: random.Random) -> None:
        self._admin = cluster.new_admin()
        self._topic, self._partitions, self._rng = topic, partitions, rng
        super().__init__()

    def close(self) -> None:
        """Close the connections."""
        self._admin.close()

    def write(self) -> None:
        """Write values with increasing timestamps."""
        timestamp_ms = 1_000
        while not self._stop.wait(_PAUSE_S):
            timestamp_ms += STEP_MS
            chosen = self._rng.sample(range(self._partitions), self._rng.randint(1, self._partitions))
            self._admin.produce_all(
                {
                    TopicPartition(self._topic, number): batch(self._create_values(), timestamp_ms=timestamp_ms)
                    for number in chosen
                }
            )

    def _create_values(self) -> list[bytes]:
        return [b"key %d" % self._rng.randrange(_KEYS) for _ in range(self._rng.randint(1, _MAX_RECORDS))]
