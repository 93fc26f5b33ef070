"""Commits the offsets of finished batches to Kafka for monitoring, without delaying the batches.

With ``at_least_once``, the checkpoint determines where an application resumes, so an unreachable group coordinator must
not stop it. With ``exactly_once_v2``, the sink commits the offsets with the batch instead.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from zkconsumer.errors import ClosedError, StreamsError, ZkConsumerError
from zkconsumer.health import HealthReason, Problem
from zkconsumer.log import get_logger
from zkconsumer.message import TopicPartition
from zkconsumer.offsets.coordinator import GroupCoordinator
from zkconsumer.spark.streams.cluster import ApplicationCluster
from zkconsumer.spark.streams.markers import Marker, check_marker
from zkconsumer.threads import OwnedThread

#: Seconds between a failed commit and the next one.
_BACKOFF_S = 1.0


class OffsetCommits:
    """Commits the latest offsets in its own thread. A failed commit is repeated with the latest offsets.

    Args:
        cluster: the Kafka cluster.

    Attributes:
        failure: error that ended the thread, because another query uses the group; None while offsets are committed.
    """

    def __init__(self, cluster: ApplicationCluster) -> None:
        self._cluster, self._group = cluster, cluster.config.group_id
        self.failure: StreamsError | None = None
        self._problem: Problem | None = None
        self._changed = threading.Condition()  # guards the next three attributes
        self._pending: dict[TopicPartition, int] = {}
        self._marker: Marker | None = None
        self._is_closing = False
        self._stop = threading.Event()
        self._coordinator: GroupCoordinator | None = None
        self._log = get_logger("zkconsumer.spark", group=self._group)
        self._thread = OwnedThread(self._run, f"zkconsumer-streams-{self._group}-commits", self._fail)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def add(self, offsets: Mapping[TopicPartition, int], marker: Marker) -> None:
        """Commit the offsets of a finished batch.

        Args:
            offsets: next offset of each partition.
            marker: marker of the batch.
        """
        with self._changed:
            self._pending.update(offsets)
            self._marker = marker
            self._changed.notify()

    def health_reasons(self) -> list[HealthReason]:
        """Return the reason why the last commit failed; empty if it succeeded."""
        problem = self._problem
        return [] if problem is None else [problem.reason()]

    def close(self, timeout_s: float) -> None:
        """Stop the thread.

        Args:
            timeout_s: maximum seconds to wait until the offsets of the last batch are committed.
        """
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        if self._thread.join(timeout_s):
            return
        self._log.warning("offsets_not_committed", partition_count=len(self._pending), timeout_s=timeout_s)
        self._stop.set()
        coordinator = self._coordinator
        if coordinator is not None:
            coordinator.close()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        with self._cluster.open() as access:
            coordinator = self._coordinator = access.coordinator()
            while (work := self._wait_for_work()) is not None:
                if not self._commit(coordinator, *work) and self._stop.wait(_BACKOFF_S):
                    return

    def _wait_for_work(self) -> tuple[dict[TopicPartition, int], Marker] | None:
        """Return the pending offsets and their marker; None if there are none and ``close`` was called."""
        with self._changed:
            self._changed.wait_for(lambda: self._pending or self._is_closing)
            if not self._pending or self._marker is None:
                return None
            return dict(self._pending), self._marker

    def _commit(self, coordinator: GroupCoordinator, offsets: dict[TopicPartition, int], marker: Marker) -> bool:
        """Commit offsets, and return whether it succeeded.

        Raises:
            StreamsError: another query committed an offset.
            ClosedError: ``close`` was called.
        """
        try:
            for partition, (offset, metadata) in sorted(coordinator.fetch_offsets_and_metadata(offsets).items()):
                found = Marker.from_metadata(metadata)
                if found is not None:
                    check_marker(self._group, partition, offset, found, marker, offsets[partition])
            for error in coordinator.commit_offsets(offsets, dict.fromkeys(offsets, marker.to_metadata())).values():
                raise error
        except (StreamsError, ClosedError):
            raise
        except ZkConsumerError as error:
            if self._problem is None:
                self._log.warning("offset_commit_failed", error=str(error), partition_count=len(offsets))
            self._problem = Problem.again(self._problem, "commit_failed", error)
            return False
        self._problem = None
        with self._changed:
            self._pending = {one: offset for one, offset in self._pending.items() if offsets.get(one) != offset}
        return True

    def _fail(self, error: BaseException) -> None:
        if isinstance(error, StreamsError):
            self.failure = error
        elif not (isinstance(error, ClosedError) and self._stop.is_set()):
            self.failure = StreamsError(f"application {self._group!r}: offsets cannot be committed: {error!r}")
