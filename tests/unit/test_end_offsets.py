"""Tests of the look-ups of end offsets while a query has no new records."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import cast

import pytest

from zkconsumer.log import get_logger
from zkconsumer.message import TopicPartition
from zkconsumer.spark.options.source_options import SourceOptions
from zkconsumer.spark.planning.available_offsets import AvailableOffsets
from zkconsumer.spark.planning.end_offsets import EndOffsets
from zkconsumer.spark.planning.partition_tracker import PartitionTracker
from zkconsumer.spark.planning.skipped_records import SkippedRecords

OPTIONS = SourceOptions.parse({"group.id": "g", "zookeeper.connect": "localhost:1", "subscribe": "t"})


class Logs:
    """Ends of logs. Each look-up uses some CPU time of the clock of the test."""

    def __init__(self, cpu_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.used, self.count = 100.0, 0.0, 0
        self._cpu_s = cpu_s
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(time, "thread_time", lambda: self.used)

    def find(self, partitions: Iterable[TopicPartition], timestamp: int, *, all_: bool) -> dict[TopicPartition, int]:
        del timestamp, all_
        self.used += self._cpu_s
        self.now += self._cpu_s
        self.count += 1
        return dict.fromkeys(partitions, 7)


@pytest.mark.parametrize(
    ("cpu_s", "share", "interval_s"), [(0.0001, 0.01, 0.05), (0.005, 0.05, 0.1), (0.02, 0.05, 0.4), (0.2, 0.2, 1.0)]
)
def test_idle_query_uses_limited_cpu_time(
    cpu_s: float, share: float, interval_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = Logs(cpu_s, monkeypatch)
    log = get_logger("zkconsumer.spark")
    tracker = PartitionTracker(OPTIONS.starting_offsets, commits=True)
    skipped = SkippedRecords(log, fails_on_data_loss=True)
    ends = EndOffsets(cast(AvailableOffsets, logs), tracker, skipped, log, unavailable_timeout_s=60.0)
    ends.is_idle = True
    positions = {TopicPartition("t", 0): 7}
    while logs.now < 120:
        assert ends.look_up(positions, is_ending=False) == positions
        logs.now += 0.01
    assert logs.used <= 20 * share * 1.1
    assert logs.count == pytest.approx(20 / interval_s, rel=0.25), "new records are found within the interval"
    ends.is_idle = False
    count = logs.count
    ends.look_up(positions, is_ending=False)
    assert logs.count == count + 1
