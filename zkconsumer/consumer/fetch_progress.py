"""Detects partitions with unread records that are not fetched, although no error was reported."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from zkconsumer.fetcher.partition import PartitionTopicInfo
from zkconsumer.health import Problem, ProgressWatch
from zkconsumer.message import TopicPartition


class FetchProgress:
    """Watches the fetch offsets of a consumer's partitions.

    Args:
        interval_s: maximum seconds that a broker waits before it responds to a fetch request.
    """

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._watches: dict[TopicPartition, ProgressWatch] = {}

    def find_stalled(
        self, infos: Iterable[PartitionTopicInfo], *, has_queued: bool
    ) -> Iterator[tuple[TopicPartition, Problem]]:
        """Yield the partitions whose fetch offset has not changed for too long, with the problem.

        Args:
            infos: the partitions.
            has_queued: whether fetched records wait for the application. If so, fetching may be paused.
        """
        known, self._watches = self._watches, {}
        for info in infos:
            watch = self._watches[info.partition] = known.get(info.partition) or ProgressWatch(self._interval_s)
            has_work = info.lag > 0 and info.problem is None and not has_queued
            watch.update(info.fetch_offset, has_work=has_work)
            waited_s = watch.find_stall()
            if waited_s is not None:
                message = (
                    f"no records were fetched for {waited_s:.0f} s, although {info.lag} records after offset "
                    f"{info.fetch_offset} are unread; with isolation.level=read_committed, check for open transactions"
                )
                yield info.partition, Problem("fetch_stalled", message, time.time() - waited_s)
