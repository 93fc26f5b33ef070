"""Tests of the decision what a stream does with a corrupt batch."""

from __future__ import annotations

import pytest

from zkconsumer.consumer.stream import CorruptBatchAction, CorruptBatches
from zkconsumer.errors import CorruptRecordError
from zkconsumer.message import TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
RAISE, REFETCH, SKIP = CorruptBatchAction.RAISE, CorruptBatchAction.REFETCH, CorruptBatchAction.SKIP


def corrupt(offset: int, after: int = 20) -> CorruptRecordError:
    return CorruptRecordError("corrupt", offset, after)


@pytest.mark.parametrize("after", [20, -1])
def test_errors_are_raised_without_skip(after: int) -> None:
    batches = CorruptBatches(skips=False)

    assert [batches.decide(P0, corrupt(10, after)) for _ in range(3)] == [RAISE] * 3


def test_batch_is_skipped_in_second_fetch() -> None:
    batches = CorruptBatches(skips=True)

    assert [batches.decide(P0, corrupt(10)) for _ in range(2)] == [REFETCH, SKIP]


def test_each_partition_and_offset_is_fetched_again() -> None:
    batches = CorruptBatches(skips=True)

    found = [batches.decide(*batch) for batch in ((P0, corrupt(10)), (P1, corrupt(10)), (P0, corrupt(15)))]

    assert found == [REFETCH] * 3


def test_batch_of_unknown_end_is_never_skipped() -> None:
    batches = CorruptBatches(skips=True)

    assert [batches.decide(P0, corrupt(10, -1)) for _ in range(3)] == [RAISE] * 3
    assert batches.decide(P0, corrupt(10)) is SKIP, "it was corrupt at the same offset before"
