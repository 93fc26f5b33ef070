"""Tests of DStream batches that Spark did not run, and of batches that run the plans of several times."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, cast
from unittest.mock import Mock

import pytest
from pyspark.streaming import StreamingContext

from zkconsumer import TopicPartition
from zkconsumer.spark.dstreams.batches import record_batch
from zkconsumer.spark.dstreams.follower import Follower
from zkconsumer.spark.dstreams.ledger import Ledger
from zkconsumer.spark.dstreams.sources import Source
from zkconsumer.spark.offset import Ranges


def test_plan_of_batch_that_was_not_run_keeps_its_place() -> None:
    ledger = Ledger()
    for time_ in (1, 2, 3):
        ledger.add(time_, f"batch {time_}", time_)
    ledger.reschedule(2)
    assert ledger.uncompleted() == {1, 3}
    assert ledger.complete({1, 3}) == ["batch 1"]
    assert ledger.take_over(4, 4)
    assert not ledger.take_over(5, 5)
    assert (ledger.get(2), ledger.get(4)) == (None, "batch 2")
    ledger.add(5, "batch 5", 5)
    assert ledger.complete({5}) == [None]
    assert ledger.complete({4}) == ["batch 2", "batch 3", "batch 5"]
    assert ledger.uncompleted() == set()


def test_moved_plan_is_rescheduled_again() -> None:
    ledger = Ledger()
    ledger.add(1, "batch 1", 1)
    for time_ in (1, 2, 3):
        ledger.reschedule(time_)
        assert ledger.take_over(time_ + 1, time_ + 1)
    assert ledger.uncompleted() == {4}
    assert [plan for plan in ledger.complete({4}) if plan] == ["batch 1"]
    ledger.forget_before(10)
    assert 1 not in ledger


def test_batch_of_window_runs_all_plans_since_last_one() -> None:
    """Spark requests the times 1 to 3 while it generates the jobs of batch 3."""
    ledger = Ledger()
    for time_ in (1, 2, 3):
        ledger.add(time_, f"batch {time_}", 3)
    assert ledger.times(3) == [1, 2, 3]
    assert ledger.uncompleted() == {3}
    recovered: Ledger = pickle.loads(pickle.dumps(ledger))
    assert ledger.complete({3}) == ["batch 1", "batch 2", "batch 3"]
    recovered.reschedule(3)
    assert [recovered.take_over(time_, 6) for time_ in (4, 5, 6, 7)] == [True, True, True, False]
    assert [plan for plan in recovered.complete({6}) if plan] == ["batch 1", "batch 2", "batch 3"]


def test_checkpoint_contains_submitted_batches() -> None:
    ledger = Ledger()
    for time_ in (1, 2):
        ledger.add(time_, f"batch {time_}", time_)
    ledger.submit(2)
    assert not ledger.was_submitted_before_recovery(2)
    recovered: Ledger = pickle.loads(pickle.dumps(ledger))
    assert [recovered.was_submitted_before_recovery(time_) for time_ in (1, 2, 3)] == [False, True, False]


class Jvm:
    """The objects of a streaming context that ``Follower`` uses. It knows the batches that were submitted.

    Args:
        submitted: batches, and whether each one is completed.
    """

    def __init__(self, submitted: Mapping[int, bool]) -> None:
        context, duration = Mock(), Mock()
        context.progressListener().getBatchUIData = lambda time_: self._batch(submitted, time_)
        duration.milliseconds.return_value = 1000
        context.graph().getMaxInputStreamRememberDuration.return_value = duration
        self._jvm, self._jssc = Mock(Time=int), Mock()
        self._jssc.ssc.return_value = context

    @staticmethod
    def _batch(submitted: Mapping[int, bool], time_ms: int) -> Mock:
        batch = Mock()
        batch.isEmpty.return_value = time_ms not in submitted
        batch.get().isFailed.return_value = False
        batch.get().processingEndTime().isDefined.return_value = submitted.get(time_ms, False)
        return batch


def event(time_ms: int) -> Mock:
    """An event of a batch that succeeded."""
    found = Mock()
    info = found.batchInfo.return_value
    info.batchTime().milliseconds.return_value = time_ms
    info.outputOperationInfos().values.return_value = []
    info.processingDelay.return_value = info.schedulingDelay.return_value = -1
    return found


class Numbered(Source):
    """A source without brokers. Each plan is one record."""

    def __init__(self) -> None:
        super().__init__(1)
        self._next, self.commits = 0, list[Any]()

    def complete(self, batches_ms: Iterable[int]) -> None:
        """Record what would be committed."""
        self.commits += [offset for plan in self._ledger.complete(batches_ms) if plan for _, offset in plan.values()]

    def fail(self, batch_ms: int, reason: str) -> None:
        """Stop planning."""
        self.has_failed = True

    def plan(self, time_ms: int) -> None:
        """Plan a batch as Spark does."""
        record_batch(datetime.fromtimestamp(time_ms / 1000, UTC), Mock())
        self.ranges_at(time_ms)

    def _plan(self) -> Ranges:
        self._next += 1
        return {TopicPartition("t", 0): (self._next - 1, self._next)}


def test_batch_that_was_not_run_is_read_by_next_one(caplog: pytest.LogCaptureFixture) -> None:
    source = Numbered()
    jvm = Jvm({1: True, 3: True, 4: True})
    follower = Follower(cast(StreamingContext, jvm), source)
    for time_ in (1, 2, 3):
        source.plan(time_)
    follower.onBatchCompleted(event(3))
    assert "batch_rescheduled" in caplog.text
    assert source.commits == [1], "batch 3 waits for the records of batch 2"
    source.plan(4)
    source.plan(5)
    assert [source.ranges_at(time_)[TopicPartition("t", 0)] for time_ in (4, 5)] == [(1, 2), (3, 4)]
    assert source.ranges_at(2) == {}
    follower.onBatchCompleted(event(4))
    assert source.commits == [1, 2, 3]
    assert not source.has_failed


@pytest.mark.parametrize("was_submitted", [True, False])
def test_recovered_source_reads_batch_that_was_not_run(was_submitted: bool) -> None:
    """Spark runs the interrupted batch 3 again. Batch 2 is unknown to the progress listener in both cases."""
    source = Numbered()
    follower = Follower(cast(StreamingContext, Jvm({})), source)
    source.plan(2)
    if was_submitted:
        follower.onBatchSubmitted(event(2))
    source.plan(3)
    recovered: Numbered = pickle.loads(pickle.dumps(source))
    follower = Follower(cast(StreamingContext, Jvm({3: True})), recovered)
    recovered.plan(3)
    follower.onBatchCompleted(event(3))
    assert recovered.commits == ([1, 2] if was_submitted else [])
    recovered.plan(4)
    assert recovered.ranges_at(3) == {TopicPartition("t", 0): (1, 2)}, "Spark replays it at its time"
    assert recovered.ranges_at(4) == {TopicPartition("t", 0): (2, 3) if was_submitted else (0, 1)}
    follower.onBatchCompleted(event(4))
    assert recovered.commits == ([1, 2, 3] if was_submitted else [1, 2])


def test_missed_submission_is_learned_from_progress_listener() -> None:
    source = Numbered()
    source.plan(1)
    source.plan(2)
    Follower(cast(StreamingContext, Jvm({1: False})), source).onBatchCompleted(event(2))
    assert source.uncompleted() == {1}
    assert pickle.loads(pickle.dumps(source))._ledger.was_submitted_before_recovery(1)
