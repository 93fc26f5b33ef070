"""Tests of the partition tracker: its table of transitions, and invariants after random sequences of calls."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pytest
from helpers.batch_offsets import offset_json
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from zkconsumer import TopicPartition
from zkconsumer.log_ends import EARLIEST
from zkconsumer.rebalance.handler import AssignedPartition
from zkconsumer.spark.offset import Ranges
from zkconsumer.spark.options.starting_offsets import StartingOffsets, StartPosition, StartSource
from zkconsumer.spark.planning import partition_state
from zkconsumer.spark.planning.partition_state import (
    AT_LOG_START,
    TRANSITIONS,
    PartitionEvent,
    PartitionRecord,
    PartitionState,
)
from zkconsumer.spark.planning.partition_tracker import PartitionTracker

pytestmark = pytest.mark.timeout(60)

A = TopicPartition("t", 0)
PARTITIONS = [TopicPartition(topic, number) for topic in "tu" for number in range(2)]
some = st.sets(st.sampled_from(PARTITIONS))


# ---- the table ----


def documented() -> dict[PartitionEvent, dict[PartitionState, PartitionState]]:
    """Return the table in the docstring of the module."""
    lines = [line for line in (partition_state.__doc__ or "").splitlines() if re.fullmatch(r"(\S+ {2,})+\S+", line)]
    header, *rows = [line.split() for line in lines if not line.startswith("=")]
    assert header[0] == "event"
    states = [PartitionState(name) for name in header[1:]]
    return {
        PartitionEvent(event): {
            state: PartitionState(cell) for state, cell in zip(states, cells, strict=True) if cell != "-"
        }
        for event, *cells in rows
    }


def test_documented_transitions_are_those_of_the_code() -> None:
    assert documented() == TRANSITIONS
    assert TRANSITIONS.keys() == set(PartitionEvent)


START = StartPosition(StartSource.GROUP, 5)

#: The call of a record that causes each event.
CALLS = {
    PartitionEvent.ASSIGN: lambda record: record.assign(START, 5),
    PartitionEvent.RESOLVE: lambda record: record.resolve(5),
    PartitionEvent.RESET: lambda record: record.reset(),
    PartitionEvent.REVOKE: lambda record: record.revoke(),
    PartitionEvent.RELEASE: lambda record: record.release(),
    PartitionEvent.LOSE: lambda record: record.lose(),
}


@pytest.mark.parametrize("state", PartitionState)
@pytest.mark.parametrize("event", PartitionEvent)
def test_record_follows_the_table_of_transitions(event: PartitionEvent, state: PartitionState) -> None:
    record = PartitionRecord(state=state, start=START)
    following = TRANSITIONS[event].get(state)
    if following is None:
        with pytest.raises(RuntimeError, match=f"event '{event.value}' is not valid .* in state '{state.value}'"):
            CALLS[event](record)
        following = state
    else:
        CALLS[event](record)
    assert record.state is following


# ---- single steps ----


def tracker(*, commits: bool = True, **changes: Any) -> PartitionTracker:
    return PartitionTracker(StartingOffsets("group", {}, **changes), commits=commits)


def acquire(one: PartitionTracker, offset: int, *, position: int | None = None) -> None:
    """Acquire partition A with a committed offset, and set its position."""
    one.acquire({A: AssignedPartition("x-0", offset)}, set())
    if position is not None:
        one.set_positions(one.pending_starts(), {A: position})


def offset_of(start: int, until: int) -> dict[str, Any]:
    return offset_json({A: (start, until)})


def test_replay_around_committed_offset_resumes_at_end() -> None:
    one = tracker(restart="group")
    one.record_offset(offset_of(0, 10))
    acquire(one, 4)
    assert one.pending_starts() == {A: StartPosition(StartSource.GROUP, 4)}
    one.mark_in_flight({A: (0, 10)})
    assert one.pending_starts() == {A: StartPosition(StartSource.CHECKPOINT, 10)}


def test_replay_beside_committed_offset_keeps_start() -> None:
    one = tracker(restart="group")
    one.record_offset(offset_of(0, 10))
    acquire(one, 14)
    one.mark_in_flight({A: (0, 10)})
    assert one.pending_starts() == {A: StartPosition(StartSource.GROUP, 14)}


def test_replay_leaves_the_start_of_another_source_alone() -> None:
    one = tracker()
    one.record_offset(offset_of(0, 10))
    acquire(one, 20, position=20)
    one.reset_partitions([A])
    [reset] = one.pending_starts().values()
    one.mark_in_flight({A: (-1, 10)})
    assert one.pending_starts() == {A: reset}


def test_release_ignores_replay_of_unowned_partition() -> None:
    one = tracker()
    one.mark_in_flight({A: (0, 10)})
    acquire(one, 0)
    assert one.release({A}, final=False) == ({}, {})


def test_partitions_created_after_start_are_read_from_beginning() -> None:
    b, c = PARTITIONS[1:3]
    one = tracker()
    one.acquire({A: AssignedPartition("x-0", -1)}, {A, b})
    one.acquire({b: AssignedPartition("x-0", -1), c: AssignedPartition("x-0", -1)}, {A, b, c})
    reset = StartPosition(StartSource.AUTO_OFFSET_RESET)
    assert one.pending_starts() == {
        A: reset,
        b: reset,
        c: StartPosition(StartSource.NEW_PARTITION, timestamp=EARLIEST),
    }


def test_topics_are_those_of_batches_and_pending_starts() -> None:
    b, c = PARTITIONS[1:3]
    one = tracker()
    one.acquire({b: AssignedPartition("x-0", -1)}, {A, b, c})
    assert one.topics() == {"t"}
    one.record_offset(offset_json({c: (0, 10)}))
    assert one.topics() == {"t", "u"}


def test_records_of_lost_batches_are_counted() -> None:
    one = tracker()
    acquire(one, 0, position=3)
    assert one.lost_records() == 0
    one.plan({A: (3, 10)})
    one.lose()
    assert one.lost_records() == 7


def test_batch_stays_in_flight_after_session_loss() -> None:
    one = tracker()
    acquire(one, 0)
    one.mark_in_flight({A: (0, 10)})
    one.lose()
    acquire(one, 0)
    assert one.release({A}, final=False) is None
    assert one.states() == {A: PartitionState.REVOKING}
    assert one.release({A}, final=True) == ({}, {A: (0, 10)})


def test_release_waits_until_a_finished_batch_is_committed() -> None:
    one = tracker()
    acquire(one, 0, position=0)
    ranges, _, _ = one.plan({A: (0, 10)})
    one.finish(offset_json(ranges))
    assert one.release({A}, final=False) is None
    assert one.record_commit(one.uncommitted()), "another member waits for the partition"
    assert one.release({A}, final=False) == ({}, {})


def test_revoked_partition_is_left_out_of_a_plan() -> None:
    one = tracker()
    acquire(one, 0, position=0)
    wanted = {A: (0, 10)}
    one.plan(wanted)
    one.release({A}, final=False)
    assert one.plan({A: (10, 20)}) == ({}, set(), {})
    assert one.planned_until() == {A: 10}


def test_reset_discards_the_offset_that_is_not_committed() -> None:
    one = tracker()
    acquire(one, 0, position=0)
    one.plan({A: (0, 10)})
    one.finish(offset_of(0, 10))
    one.reset_topics([A.topic])
    assert one.uncommitted() == {}
    one.finish(offset_of(0, 10))  # Spark reports the same batch once more
    assert one.uncommitted() == {}


def test_reset_of_a_partition_forgets_where_batches_ended() -> None:
    one = tracker()
    acquire(one, 20, position=20)
    one.plan({A: (20, 30)})
    one.reset_partitions([A])
    assert one.planned_until() == {}
    assert one.positions() == {}


def set_back(offset: int, start: int, until: int) -> PartitionTracker:
    """Return a tracker that has replayed a batch after the group's offset was set back below it."""
    one = tracker(restart="group")
    one.record_offset(offset_of(start, until))
    acquire(one, offset)
    one.mark_in_flight({A: (start, until)})
    one.finish(offset_of(start, until))
    assert one.uncommitted() == {}
    return one


def test_set_back_offset_survives_session_loss() -> None:
    one = set_back(4, 10, 20)
    one.lose()
    acquire(one, 4)
    assert one.pending_starts() == {A: StartPosition(StartSource.CHECKPOINT, 4)}


def test_set_back_partition_is_released_after_replay() -> None:
    one = set_back(4, 10, 20)
    assert one.release({A}, final=False) == ({}, {})


@pytest.mark.parametrize("until", [6, 10, 15, 20, 30])
def test_repeated_finish_respects_set_back_position(until: int) -> None:
    one = set_back(4, 10, 20)
    one.set_positions(one.pending_starts(), {A: 4})
    one.plan({A: (4, until)})
    one.finish(offset_of(10, 20))  # Spark reports the previous batch once more
    assert (one.uncommitted(), one.planned_until(), one.positions()) == ({}, {A: until}, {A: until})
    assert one.release({A}, final=False) is None
    one.finish(offset_of(4, until))
    assert one.uncommitted() == {A: until}


def test_repeated_finish_ignores_unplanned_set_back_partition() -> None:
    one = set_back(4, 10, 20)
    one.set_positions(one.pending_starts(), {A: 4})
    one.finish(offset_of(10, 20))
    assert (one.uncommitted(), one.planned_until()) == ({}, {A: 4})


def test_committed_offset_never_moves_back() -> None:
    one = tracker()
    acquire(one, 20, position=20)
    one.record_commit({A: 5})
    one.finish(offset_of(0, 20))
    assert one.uncommitted() == {}


def test_returned_partition_resumes_after_other_member() -> None:
    one = tracker(restart="checkpoint")
    acquire(one, 0, position=0)
    one.plan({A: (0, 10)})
    one.lose()
    acquire(one, 15)
    assert one.pending_starts() == {A: StartPosition(StartSource.CHECKPOINT, 15)}


def test_recreated_topic_counts_as_never_assigned() -> None:
    one = tracker(restart="checkpoint")
    acquire(one, 0, position=0)
    one.plan({A: (0, 10)})
    one.lose()
    one.reset_topics([A.topic])
    one.record_offset(offset_of(0, 3))
    acquire(one, 15)
    assert one.pending_starts() == {A: StartPosition(StartSource.CHECKPOINT, 3)}


@pytest.mark.parametrize(("committed", "start"), [(10, AT_LOG_START), (11, StartPosition(StartSource.GROUP, 11))])
def test_unowned_partition_of_recreated_topic_starts_at_log_start(committed: int, start: StartPosition) -> None:
    """The committed offset can belong to the deleted topic, unless it is higher than what this query has read."""
    one = tracker()
    acquire(one, 0, position=0)
    one.plan({A: (0, 10)})
    one.finish(offset_of(0, 10))
    one.release({A}, final=True)
    one.reset_topics([A.topic])
    acquire(one, committed)
    starts = one.pending_starts()
    assert starts == {A: start}
    one.set_positions(starts, {A: 0})
    one.lose()
    acquire(one, 5)
    assert one.pending_starts() == {A: StartPosition(StartSource.GROUP, 5)}


def test_outdated_lookup_does_not_resolve_reassigned_partition() -> None:
    one = tracker()
    acquire(one, 3)
    starts = one.pending_starts()
    one.lose()
    acquire(one, 7)
    assert one.still_pending(starts) == set()
    one.set_positions(starts, {A: 3})
    assert one.positions() == {}


def test_partition_of_deleted_topic_gets_no_batch() -> None:
    one = tracker()
    acquire(one, 0)
    assert one.is_moving()
    one.set_deleted_topics(["t"])
    assert (one.pending_starts(), one.is_moving()) == ({}, False)
    one.set_deleted_topics([])
    one.set_positions(one.pending_starts(), {A: 0})
    assert one.positions() == {A: 0}
    one.set_deleted_topics(["t"])
    assert one.positions() == {}
    assert one.plan({A: (0, 10)}) == ({}, set(), {})


# ---- random sequences of calls ----


@dataclass
class Model:
    """The expected state of an acquired partition."""

    in_flight: tuple[int, int] | None = None


class Calls(RuleBasedStateMachine):
    """Calls a tracker as Spark and the member do: batches finish in order, and offsets are committed as returned."""

    def __init__(self) -> None:
        super().__init__()
        self.tracker = tracker()
        self.owned: dict[TopicPartition, Model] = {}
        self.revoking: set[TopicPartition] = set()
        self.lost_in_flight: dict[TopicPartition, tuple[int, int]] = {}
        self.planned: list[Ranges] = []
        self.committed: dict[TopicPartition, int] = {}
        self.acquire(set(PARTITIONS))

    @rule(partitions=some)
    def acquire(self, partitions: set[TopicPartition]) -> None:
        new = partitions - self.owned.keys()
        self.tracker.acquire({p: AssignedPartition("x-0", self.committed.get(p, -1)) for p in new}, set())
        self.owned |= {p: Model(self.lost_in_flight.pop(p, None)) for p in new}
        assert new <= self.tracker.pending_starts().keys()
        starts = self.tracker.pending_starts()
        self.tracker.set_positions(starts, {p: max(0, start.offset) for p, start in starts.items()})
        assert self.tracker.pending_starts() == {}

    @rule(count=st.integers(1, 9), partitions=some)
    def plan(self, count: int, partitions: set[TopicPartition]) -> None:
        positions, reached = self.tracker.positions(), self.tracker.planned_until()
        wanted = {p: (position, position + count * (p in partitions)) for p, position in positions.items()}
        stale = dict.fromkeys(partitions - positions.keys(), (0, count))
        ranges, existing, before = self.tracker.plan({**wanted, **stale})
        if not partitions & positions.keys():
            assert ranges == {}
            return
        assert ranges == wanted
        assert existing >= ranges.keys()
        assert before == {p: end for p, end in reached.items() if p not in ranges}
        assert self.tracker.positions() == {p: until for p, (_, until) in ranges.items()}
        self.planned.append(ranges)
        for p, span in ranges.items():
            if span[0] < span[1]:
                self.owned[p].in_flight = span

    @precondition(lambda self: self.planned)
    @rule()
    def finish(self) -> None:
        ranges = self.planned.pop(0)
        self.tracker.finish(offset_json(ranges))
        for p, (_, until) in ranges.items():
            if p in self.owned:
                model = self.owned[p]
                if model.in_flight is not None and model.in_flight[1] <= until:
                    model.in_flight = None
            elif p in self.lost_in_flight and self.lost_in_flight[p][1] <= until:
                del self.lost_in_flight[p]

    @rule()
    def commit(self) -> None:
        offsets = self.tracker.uncommitted()
        assert all(offset > self.committed.get(p, -1) for p, offset in offsets.items())
        assert self.tracker.record_commit(offsets) == bool(self.revoking)
        self.committed |= offsets
        assert self.tracker.uncommitted() == {}

    @rule(partition=st.sampled_from(PARTITIONS), final=st.booleans())
    def release(self, partition: TopicPartition, final: bool) -> None:
        if partition not in self.owned:
            return
        uncommitted = {p: offset for p, offset in self.tracker.uncommitted().items() if p == partition}
        in_flight = self.owned[partition].in_flight
        released = self.tracker.release({partition}, final=final)
        if not final and (uncommitted or in_flight):
            assert released is None
            self.revoking.add(partition)
            return
        assert released == (uncommitted, {partition: in_flight} if in_flight else {})
        self.committed |= uncommitted  # the member commits what is returned
        del self.owned[partition]
        self.revoking.discard(partition)

    @rule()
    def lose(self) -> None:
        self.tracker.lose()
        self.lost_in_flight |= {p: model.in_flight for p, model in self.owned.items() if model.in_flight}
        self.owned, self.revoking = {}, set()

    @invariant()
    def owned_partitions_are_ready_or_revoking(self) -> None:
        ready, revoking = PartitionState.READY, PartitionState.REVOKING
        assert self.tracker.states() == {p: revoking if p in self.revoking else ready for p in self.owned}
        assert self.tracker.positions().keys() == self.owned.keys() - self.revoking

    @invariant()
    def only_finished_batches_are_committed(self) -> None:
        ends = self.tracker.planned_until()
        for partition, offset in self.tracker.uncommitted().items():
            assert partition in self.owned
            assert offset <= ends[partition]
            span = self.owned[partition].in_flight
            assert span is None or offset <= span[0]

    @invariant()
    def positions_follow_the_last_batch(self) -> None:
        ends = self.tracker.planned_until()
        for partition, position in self.tracker.positions().items():
            assert position >= ends.get(partition, 0)


TestCalls = Calls.TestCase
TestCalls.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
