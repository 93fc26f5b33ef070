"""Detects partitions with unread records that are not fetched, although no error was reported."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection

from zkconsumer.fetcher.partition import PartitionTopicInfo
from zkconsumer.health import Problem, ProgressWatch
from zkconsumer.message import TopicPartition


class FetchProgress:
    """Watches the fetch offsets of a consumer's partitions. Any thread may call ``find_stalled``.

    Args:
        interval_s: maximum seconds that a broker waits before it responds to a fetch request.
    """

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._lock = threading.Lock()  # guards _watches
        self._watches: dict[TopicPartition, ProgressWatch] = {}

    def find_stalled(self, infos: Collection[PartitionTopicInfo]) -> list[tuple[TopicPartition, Problem]]:
        """Return the partitions whose fetch offset has not changed for too long, with the problem.

        A partition whose queue is full is not fetched, because the application has not requested its records yet.
        """
        with self._lock:
            known, self._watches = self._watches, {}
            for info in infos:
                watch = self._watches[info.partition] = known.get(info.partition) or ProgressWatch(self._interval_s)
                has_work = info.lag > 0 and info.problem is None and info.queue.has_room
                watch.update(info.fetch_offset, has_work=has_work)
            return [
                (info.partition, _describe(info, waited_s))
                for info in infos
                if (waited_s := self._watches[info.partition].find_stall()) is not None
            ]


def _describe(info: PartitionTopicInfo, waited_s: float) -> Problem:
    message = (
        f"no records were fetched for {waited_s:.0f} s, although {info.lag} records after offset {info.fetch_offset} "
        "are unread; with isolation.level=read_committed, check for open transactions"
    )
    return Problem("fetch_stalled", message, time.time() - waited_s)
