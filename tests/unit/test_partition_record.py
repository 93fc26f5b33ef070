"""Tests of the state of one partition: batches in flight, lost records and committed offsets."""

from __future__ import annotations

import pytest

from zkconsumer.spark.options.starting_offsets import StartPosition, StartSource
from zkconsumer.spark.planning.partition_state import AT_LOG_START, PartitionRecord, PartitionState

READY = PartitionState.READY


@pytest.mark.parametrize(("committed", "read_by_others"), [(-1, 0), (3, 0), (7, 4), (20, 7)])
def test_lost_records_that_others_committed_are_counted(committed: int, read_by_others: int) -> None:
    record = PartitionRecord(lost_range=(3, 10))
    assert record.assign(StartPosition(StartSource.GROUP, committed), committed) == read_by_others
    assert record.assign(StartPosition(StartSource.GROUP, committed), committed) == 0
    assert (record.lost_range, record.exists, record.was_assigned, record.position) == (None, True, True, None)


@pytest.mark.parametrize(("source", "committed"), [(StartSource.GROUP, 7), (StartSource.CHECKPOINT, 2)])
def test_position_of_group_counts_as_committed(source: StartSource, committed: int) -> None:
    record = PartitionRecord(
        state=PartitionState.CLAIMED, start=StartPosition(source, 7), committed=2, stale_planned_until=9
    )
    record.resolve(7)
    assert (record.state, record.committed, record.position) == (READY, committed, 7)
    assert (record.start, record.stale_planned_until) == (None, None)


def test_reset_partition_starts_at_log_start() -> None:
    record = PartitionRecord(state=READY, position=7, uncommitted_until=7, start=None)
    record.reset()
    assert (record.start, record.position, record.uncommitted_until) == (AT_LOG_START, None, None)


def test_released_partition_keeps_no_position() -> None:
    record = PartitionRecord(state=READY, position=7, uncommitted_until=5, in_flight=(5, 7))
    assert record.release() == (5, (5, 7))
    assert (record.position, record.uncommitted_until, record.in_flight, record.is_owned) == (None, None, None, False)
    assert record.release() == (None, None)


@pytest.mark.parametrize(
    ("in_flight", "finished", "committed", "lost"),
    [((5, 7), 5, 3, (5, 7)), (None, 5, 3, (3, 5)), (None, 5, -1, None), (None, 5, 0, (0, 5)), (None, None, 3, None)],
)
def test_lost_session_leaves_uncommitted_records(
    in_flight: tuple[int, int] | None, finished: int | None, committed: int, lost: tuple[int, int] | None
) -> None:
    record = PartitionRecord(
        state=READY, position=7, uncommitted_until=finished, committed=committed, in_flight=in_flight
    )
    record.lose()
    assert (record.lost_range, record.position, record.uncommitted_until, record.in_flight) == (
        lost,
        None,
        None,
        in_flight,
    )


def test_planned_range_is_in_flight_unless_it_is_empty() -> None:
    record = PartitionRecord(state=READY, position=3)
    record.plan(3, 3)
    assert (record.in_flight, record.position, record.planned_until) == (None, 3, 3)
    record.plan(3, 5)
    assert (record.in_flight, record.position, record.planned_until) == ((3, 5), 5, 5)
    record.advance(4)
    assert record.planned_until == 5


@pytest.mark.parametrize(
    ("state", "committed", "span", "in_flight"),
    [
        (READY, -1, (3, 5), (3, 5)),
        (READY, 4, (3, 5), (3, 5)),
        (READY, 5, (3, 5), None),
        (READY, -1, (5, 5), None),
        (PartitionState.UNASSIGNED, -1, (3, 5), None),
    ],
)
def test_replayed_range_is_in_flight_while_uncommitted(
    state: PartitionState, committed: int, span: tuple[int, int], in_flight: tuple[int, int] | None
) -> None:
    record = PartitionRecord(state=state, committed=committed)
    record.mark_in_flight(*span)
    assert (record.in_flight, record.was_assigned) == (in_flight, True)


@pytest.mark.parametrize(("offset", "resumes_at"), [(2, 2), (3, 5), (5, 5), (6, 6)])
def test_batch_after_replayed_one_starts_at_its_end(offset: int, resumes_at: int) -> None:
    record = PartitionRecord(state=PartitionState.CLAIMED, start=StartPosition(StartSource.GROUP, offset))
    record.mark_in_flight(3, 5)
    assert record.start is not None
    assert record.start.offset == resumes_at


@pytest.mark.parametrize(("in_flight", "remaining"), [((3, 5), None), ((5, 7), (5, 7)), (None, None)])
def test_finished_batch_is_no_longer_in_flight(
    in_flight: tuple[int, int] | None, remaining: tuple[int, int] | None
) -> None:
    record = PartitionRecord(state=READY, position=7, committed=3, in_flight=in_flight)
    record.finish(3, 5, commits=True, restart="checkpoint")
    assert (record.in_flight, record.uncommitted_until, record.planned_until) == (remaining, 5, 5)
    record.finish(1, 4, commits=True, restart="checkpoint")
    assert (record.uncommitted_until, record.planned_until) == (5, 5)


@pytest.mark.parametrize(
    ("state", "committed", "commits"),
    [(READY, 3, False), (READY, 5, True), (PartitionState.UNASSIGNED, 3, True)],
    ids=["commits nothing", "committed", "not owned"],
)
def test_finished_batch_is_not_committed(state: PartitionState, committed: int, commits: bool) -> None:
    record = PartitionRecord(state=state, position=7, committed=committed, in_flight=(3, 5))
    record.finish(3, 5, commits=commits, restart="checkpoint")
    assert (record.in_flight, record.uncommitted_until) == (None, None)


def test_commit_covers_finished_batches_up_to_its_offset() -> None:
    record = PartitionRecord(state=READY, committed=3, uncommitted_until=5)
    record.record_commit(4)
    assert (record.committed, record.uncommitted_until) == (4, 5)
    record.record_commit(5)
    assert (record.committed, record.uncommitted_until) == (5, None)
    record.state = PartitionState.UNASSIGNED
    record.record_commit(9)
    assert record.committed == 5


def test_recreated_topic_forgets_ends_of_batches() -> None:
    record = PartitionRecord(planned_until=5, exists=True, was_assigned=True)
    record.forget_batches()
    assert (record.exists, record.planned_until, record.stale_planned_until, record.was_assigned) == (
        False,
        None,
        5,
        False,
    )
    record = PartitionRecord(stale_planned_until=5, exists=True, was_assigned=True)
    record.forget_batches()
    assert (record.exists, record.stale_planned_until, record.was_assigned) == (False, 5, True)
