"""The partition tracker: its table of transitions, and what holds after any sequence of calls. No server."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from zkconsumer import TopicPartition
from zkconsumer.rebalance.listener import Claim
from zkconsumer.spark.driver import partition_state
from zkconsumer.spark.driver.partition_state import TRANSITIONS, PartitionEvent, PartitionRecord, PartitionState
from zkconsumer.spark.driver.partition_tracker import PartitionTracker
from zkconsumer.spark.offset import Ranges, to_offset
from zkconsumer.spark.options.starting_offsets import StartingOffsets, StartPosition

pytestmark = pytest.mark.timeout(60)

A = TopicPartition("t", 0)
PARTITIONS = [TopicPartition(topic, number) for topic in "tu" for number in range(2)]
some = st.sets(st.sampled_from(PARTITIONS))


# ---- the table ---------------------------------------------------------------------------------------------


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


START = StartPosition("group", 5)

#: What a record does at each event.
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
        with pytest.raises(RuntimeError, match=f"{event.value} of a partition that is {state.value}"):
            CALLS[event](record)
        following = state
    else:
        CALLS[event](record)
    assert record.state is following


# ---- single steps ------------------------------------------------------------------------------------------


def tracker(**changes: Any) -> PartitionTracker:
    return PartitionTracker(StartingOffsets("group", {}, **changes), commits=True)


def test_replay_that_covers_the_committed_offset_resumes_at_its_end() -> None:
    one = tracker(restart="group")
    one.observe(to_offset({A: (0, 10)}, 1))
    one.acquire({A: Claim("x-0", 4)}, set())
    assert one.pending_starts(()) == {A: StartPosition("group", 4)}
    one.put_in_flight({A: (0, 10)})
    assert one.pending_starts(()) == {A: StartPosition("checkpoint", 10)}


def test_replay_outside_the_committed_offset_leaves_the_start_alone() -> None:
    one = tracker(restart="group")
    one.observe(to_offset({A: (0, 10)}, 1))
    one.acquire({A: Claim("x-0", 14)}, set())
    one.put_in_flight({A: (0, 10)})
    assert one.pending_starts(()) == {A: StartPosition("group", 14)}


def test_batch_stays_in_flight_when_the_session_is_lost() -> None:
    one = tracker()
    one.acquire({A: Claim("x-0", 0)}, set())
    one.put_in_flight({A: (0, 10)})
    one.lose()
    one.acquire({A: Claim("x-0", 0)}, set())
    assert one.release({A}, final=False) is None
    assert one.states() == {A: PartitionState.REVOKING}
    assert one.release({A}, final=True) == ({}, {A: (0, 10)})


def test_reassigned_start_position_is_not_resolved_by_an_old_answer() -> None:
    one = tracker()
    one.acquire({A: Claim("x-0", 3)}, set())
    starts = one.pending_starts(())
    one.lose()
    one.acquire({A: Claim("x-0", 7)}, set())
    assert one.still_pending(starts) == set()
    one.set_positions(starts, {A: 3})
    assert one.positions(()) == {}


# ---- any sequence of calls -----------------------------------------------------------------------------------


class Calls(RuleBasedStateMachine):
    """A query and a group that call a tracker as Spark and the member do, with a model of what may be committed."""

    def __init__(self) -> None:
        super().__init__()
        self.tracker = PartitionTracker(StartingOffsets("group", {}), commits=True)
        self.owned: set[TopicPartition] = set()
        self.revoking: set[TopicPartition] = set()
        self.planned: list[Ranges] = []
        self.finished: dict[TopicPartition, int] = {}
        self.sequence = 0

    @rule(partitions=some, offset=st.integers(-1, 30))
    def acquire(self, partitions: set[TopicPartition], offset: int) -> None:
        claims = {partition: Claim("x-0", offset) for partition in partitions - self.owned}
        self.tracker.acquire(claims, set())
        self.owned |= claims.keys()

    @rule(first=st.integers(0, 5))
    def resolve(self, first: int) -> None:
        starts = self.tracker.pending_starts(())
        self.tracker.set_positions(starts, {p: max(first, start.offset) for p, start in starts.items()})
        assert self.tracker.pending_starts(()) == {}

    @rule(counts=st.dictionaries(st.sampled_from(PARTITIONS), st.integers(0, 9)))
    def plan(self, counts: dict[TopicPartition, int]) -> None:
        positions = self.tracker.positions(())
        assert positions.keys() <= self.owned - self.revoking
        wanted = {p: (position, position + counts.get(p, 0)) for p, position in positions.items()}
        ranges, _, before = self.tracker.plan(wanted, ())
        if ranges:
            assert ranges == wanted
            assert before.keys().isdisjoint(ranges)
            self.planned.append(ranges)
            assert self.tracker.positions(()) == {partition: until for partition, (_, until) in ranges.items()}
        else:
            assert not any(counts.get(partition) for partition in positions)

    @precondition(lambda self: self.planned)
    @rule()
    def finish(self) -> None:
        ranges = self.planned.pop(0)
        self.sequence += 1
        self.tracker.finish(to_offset(ranges, 1, sequence=self.sequence))
        for partition, (_, until) in ranges.items():
            self.finished[partition] = max(until, self.finished.get(partition, -1))

    @rule()
    def commit(self) -> None:
        is_awaited = self.tracker.record_commit(self.tracker.uncommitted())
        assert self.tracker.uncommitted() == {}
        assert is_awaited == bool(self.revoking)

    @rule(partitions=some, final=st.booleans())
    def release(self, partitions: set[TopicPartition], final: bool) -> None:
        partitions &= self.owned
        uncommitted = self.tracker.uncommitted()
        released = self.tracker.release(partitions, final=final)
        if released is None:
            assert not final
            self.revoking |= partitions
            return
        offsets, in_flight = released
        assert offsets == {p: offset for p, offset in uncommitted.items() if p in partitions}
        assert final or (offsets, in_flight) == ({}, {})
        self.owned -= partitions
        self.revoking -= partitions

    @rule()
    def lose(self) -> None:
        self.tracker.lose()
        self.owned, self.revoking = set(), set()

    @rule(topic=st.sampled_from("tu"))
    def re_create(self, topic: str) -> None:
        self.tracker.reset_topics([topic])
        assert {partition.topic for partition in self.tracker.reached()}.isdisjoint({topic})
        assert {partition.topic for partition in self.tracker.uncommitted()}.isdisjoint({topic})

    @invariant()
    def owned_partitions_are_claimed_ready_or_revoking(self) -> None:
        states = self.tracker.states()
        assert states.keys() == self.owned
        assert {p for p, state in states.items() if state is PartitionState.REVOKING} == self.revoking

    @invariant()
    def a_partition_is_pending_or_has_a_position_or_is_revoked(self) -> None:
        pending, positions = self.tracker.pending_starts(()).keys(), self.tracker.positions(()).keys()
        assert pending.isdisjoint(positions)
        assert pending | positions == self.owned - self.revoking

    @invariant()
    def only_finished_batches_are_committed(self) -> None:
        for partition, offset in self.tracker.uncommitted().items():
            assert partition in self.owned
            assert offset <= self.finished[partition]


TestCalls = Calls.TestCase
TestCalls.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
