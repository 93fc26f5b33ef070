"""Tests of the planner without a group: releases, finished batches and lag."""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from helpers.batch_offsets import offset_json
from helpers.threads import in_thread
from helpers.waiting import wait_for
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from zkconsumer import TopicPartition
from zkconsumer.errors import ClosedError, ZkConsumerError, ZooKeeperUnavailableError
from zkconsumer.log_ends import EARLIEST, LATEST
from zkconsumer.message import Endpoint
from zkconsumer.metadata.base import FoundTopics
from zkconsumer.metadata.zookeeper import ZooKeeperCluster
from zkconsumer.rebalance.handler import AssignedPartition
from zkconsumer.rebalance.member import GroupMember
from zkconsumer.spark.driver_link import DriverLink
from zkconsumer.spark.offset import INITIAL, BatchOffset, Ranges
from zkconsumer.spark.options.source_options import SourceOptions
from zkconsumer.spark.planning.available_offsets import AvailableOffsets
from zkconsumer.spark.planning.batch_planner import BatchPlanner, PlanAgain, TriggerKind
from zkconsumer.spark.planning.factory import create_planner
from zkconsumer.spark.planning.planner import Planner
from zkconsumer.spark.planning.process import PlanningProcess
from zkconsumer.spark.planning.query_topics import QueryTopics
from zkconsumer.spark.planning.sampling import RecordSizes
from zkconsumer.spark.query_context import QueryContext

SETTINGS = {"group.id": "g", "zookeeper.connect": "localhost:1", "subscribe": "t"}
OPTIONS = SourceOptions.parse(SETTINGS)

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
UNREACHABLE = Endpoint("127.0.0.1", 1)


@pytest.fixture
def alone() -> Planner:
    """Return a planner that has not joined its group, and so cannot commit offsets."""
    return unconnected_planner()


def unconnected_planner() -> Planner:
    return create_planner(OPTIONS)


def claimed(planner: Planner, **offsets: int) -> None:
    planner.member.on_partitions_assigned(
        {TopicPartition("t", int(name[1:])): AssignedPartition("x-0", offset) for name, offset in offsets.items()}
    )


def created(planner: Planner, start: dict[str, Any], ranges: Ranges) -> dict[str, Any]:
    """Return the offset of a batch with the ranges."""
    planned = planner._batches._offsets.create(start, ranges, {})
    assert planned is not None
    return planned


def batch(**spans: tuple[int, int]) -> dict[str, Any]:
    return offset_json({TopicPartition("t", int(name[1:])): span for name, span in spans.items()})


def test_idle_partition_is_released_at_once(alone: Planner) -> None:
    claimed(alone, p0=10, p1=10)
    assert alone.member.on_partitions_revoked({A, B}, False) == {}


def test_release_waits_for_in_flight_batch(alone: Planner) -> None:
    claimed(alone, p0=0, p1=0)
    alone.start_batch(batch(p0=(0, 10)))
    assert alone.member.on_partitions_revoked({A}, False) is None
    assert alone.member.on_partitions_revoked({A}, False) is None
    assert alone.member.on_partitions_revoked({B}, False) == {}


def test_release_waits_for_slowest_partition(alone: Planner) -> None:
    claimed(alone, p0=0, p1=0)
    alone.start_batch(batch(p0=(0, 10), p1=(5, 5)))
    assert alone.member.on_partitions_revoked({A, B}, False) is None


def test_final_release_counts_reread_records(alone: Planner) -> None:
    claimed(alone, p0=0, p1=0)
    alone.start_batch(batch(p0=(0, 10), p1=(3, 8)))
    assert alone.member.on_partitions_revoked({A}, False) is None
    assert alone.member.on_partitions_revoked({A}, True) == {}
    assert alone.latest()["rereadRecords"] == 10
    assert alone.member.on_partitions_revoked({B}, True) == {}
    assert alone.latest()["rereadRecords"] == 15
    assert alone.latest()["rereadRecords"] == 15


def test_release_returns_uncommitted_offsets(alone: Planner) -> None:
    claimed(alone, p0=0)
    alone.start_batch(batch(p0=(0, 10)))
    alone.finish_batch(batch(p0=(0, 10)))
    assert alone.member.on_partitions_revoked({A}, False) is None  # the commit may succeed later
    assert alone.member.on_partitions_revoked({A}, True) == {A: 10}
    assert alone.latest()["rereadRecords"] == 0


def test_release_waits_for_next_in_flight_batch(alone: Planner) -> None:
    claimed(alone, p0=0)
    alone.start_batch(batch(p0=(0, 10)))
    alone.start_batch(batch(p0=(10, 25)))
    alone.finish_batch(batch(p0=(0, 10)))
    assert alone.member.on_partitions_revoked({A}, False) is None
    assert alone.member.on_partitions_revoked({A}, True) == {A: 10}
    assert alone.latest()["rereadRecords"] == 15


def test_finished_batch_of_lost_partition_commits_nothing(alone: Planner) -> None:
    claimed(alone, p1=0)
    alone.finish_batch(batch(p0=(0, 10)))
    claimed(alone, p0=0)
    assert alone.member.on_partitions_revoked({A}, False) == {}


def test_finished_batch_never_lowers_group_offset(alone: Planner) -> None:
    claimed(alone, p0=50)
    alone.finish_batch(batch(p0=(0, 10)))
    assert alone.member.on_partitions_revoked({A}, True) == {}


def test_release_waits_for_replayed_batch(alone: Planner) -> None:
    # After a restart, Spark's offset log is read before partitions are claimed, and Spark replays the last batch.
    alone.record_offset(batch(p0=(0, 10)))
    claimed(alone, p0=0)
    alone.start_batch(batch(p0=(0, 10)))
    assert alone.member.on_partitions_revoked({A}, False) is None
    assert alone.member.on_partitions_revoked({A}, True) == {}
    assert alone.latest()["rereadRecords"] == 10


def test_batch_finished_before_restart_blocks_nothing(alone: Planner) -> None:
    alone.record_offset(batch(p0=(0, 10)))
    claimed(alone, p0=10)
    alone.finish_batch(batch(p0=(0, 10)))
    assert alone.member.on_partitions_revoked({A}, False) == {}


def test_batch_outliving_session_blocks_release(alone: Planner) -> None:
    claimed(alone, p0=0)
    alone.start_batch(batch(p0=(0, 10)))
    alone.member.on_partitions_lost()
    claimed(alone, p0=0)
    assert alone.member.on_partitions_revoked({A}, False) is None


@pytest.mark.parametrize(
    ("group_offset", "reread"), [(0, 0), (4, 4), (25, 10)], ids=["nobody read", "read in part", "read beyond"]
)
def test_records_that_others_read_meanwhile_are_counted(alone: Planner, group_offset: int, reread: int) -> None:
    claimed(alone, p0=0)
    alone.start_batch(batch(p0=(0, 10)))
    alone.member.on_partitions_lost()
    alone.finish_batch(batch(p0=(0, 10)))
    claimed(alone, p0=group_offset)
    assert alone.latest()["rereadRecords"] == reread


def test_no_batch_is_planned_without_lease(alone: Planner, monkeypatch: pytest.MonkeyPatch) -> None:
    claimed(alone, p0=0)
    alone.member.tracker.set_positions(alone.member.tracker.pending_starts(), {A: 0})
    start, ranges = batch(p0=(0, 0)), {A: (0, 10)}
    monkeypatch.setattr(GroupMember, "holds_lease", False)
    with pytest.raises(ZooKeeperUnavailableError):  # the planner backs off
        alone._batches._offsets.create(start, ranges, {})
    monkeypatch.setattr(GroupMember, "holds_lease", True)
    planned = created(alone, start, ranges)
    assert BatchOffset.from_json(planned).ranges == ranges


def test_revocation_during_planning_ends_no_bounded_query(alone: Planner, monkeypatch: pytest.MonkeyPatch) -> None:
    """The start offset as the end of a batch would end a query with Trigger.AvailableNow."""
    claimed(alone, p0=0)
    alone.member.tracker.set_positions(alone.member.tracker.pending_starts(), {A: 0})
    monkeypatch.setattr(GroupMember, "holds_lease", True)
    monkeypatch.setattr(QueryTopics, "check", lambda *_: None)
    monkeypatch.setattr(RecordSizes, "sample", lambda *_: None)

    def find(*_: object, **__: object) -> dict[TopicPartition, int]:
        assert alone.member.on_partitions_revoked({A}, False) == {}
        return {A: 10}

    monkeypatch.setattr(AvailableOffsets, "find", find)
    assert alone._batches.plan(batch(p0=(0, 0)), None, TriggerKind.ONCE) == PlanAgain()
    assert alone.member.tracker.states() == {}


def test_batches_with_equal_ranges_have_different_offsets(alone: Planner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark takes an offset with the same text for "no new data", and the records would not be read."""
    monkeypatch.setattr(GroupMember, "holds_lease", True)
    claimed(alone, p0=0)
    alone.member.tracker.set_positions(alone.member.tracker.pending_starts(), {A: 0})
    replayed = created(alone, INITIAL, {A: (0, 10)})
    # The group's offset was reset before the restart, so the replayed batch is followed by one with the same range.
    restarted = create_planner(SourceOptions.parse({**SETTINGS, "resumeFrom": "group"}), replayed)
    claimed(restarted, p0=0)
    restarted.start_batch(replayed)
    restarted.member.tracker.set_positions(restarted.member.tracker.pending_starts(), {A: 0})
    following = created(restarted, replayed, {A: (0, 10)})
    assert json.dumps(following) != json.dumps(replayed)
    assert {**following, "sequence": 0} == {**replayed, "sequence": 0}, "nothing else distinguishes them"


def test_offset_contains_only_last_deleted_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(GroupMember, "holds_lease", True)
    names = [f"t{number:02}" for number in range(40)]
    existing = dict.fromkeys(names, "zk-1")
    monkeypatch.setattr(
        ZooKeeperCluster,
        "look_up_topic_ids",
        lambda _, topics: FoundTopics({t: existing[t] for t in topics if t in existing}, {*topics} - existing.keys()),
    )
    monkeypatch.setattr(GroupMember, "discoveries", property(lambda _: len(existing)))  # one after each deletion
    seen = offset_json({TopicPartition(name, 0): (0, 10) for name in names}, topic_ids=existing.copy())
    settings = {**SETTINGS, "subscribe": ",".join(names), "failOnDataLoss": "false"}
    planner = create_planner(SourceOptions.parse(settings), seen)
    for deleted in names[:-1]:
        del existing[deleted]
        for _ in range(2):
            planner._batches._topics.check()
            now[0] += 6
    last = TopicPartition(names[-1], 0)
    planner.member.on_partitions_assigned({last: AssignedPartition("x-0", 10)})
    planner.member.tracker.set_positions(planner.member.tracker.pending_starts(), {last: 10})
    planned = created(planner, seen, {last: (10, 20)})
    batch = BatchOffset.from_json(planned)
    assert batch.deleted_topics == tuple(names[-21:-1])
    assert batch.topic_ids.keys() == {*names[-21:]}
    assert batch.earlier_ends.keys() == {TopicPartition(name, 0) for name in names[-21:-1]}


def test_lost_partitions_are_forgotten(alone: Planner) -> None:
    claimed(alone, p0=0, p1=0)
    alone.start_batch(batch(p0=(0, 10)))
    alone.member.on_partitions_lost()
    assert alone.plan(INITIAL) is INITIAL
    alone.finish_batch(batch(p0=(0, 10)))
    claimed(alone, p1=0)
    assert alone.member.on_partitions_revoked({B}, False) == {}


def test_release_without_commits_returns_no_offsets() -> None:
    alone = create_planner(dataclasses.replace(OPTIONS, commits=False))
    claimed(alone, p0=0, p1=0)
    alone.start_batch(batch(p0=(0, 10), p1=(0, 5)))
    assert alone.member.on_partitions_revoked({A}, False) is None
    alone.finish_batch(batch(p0=(0, 10), p1=(0, 5)))
    assert alone.member.on_partitions_revoked({A}, False) == {}
    assert alone.member.on_partitions_revoked({B}, True) == {}
    assert alone.latest()["rereadRecords"] == 0


class SlowCommits:
    """Blocks the commits of members until they may continue, and counts them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.has_started, self.may_continue = threading.Event(), threading.Event()
        self.error: ZkConsumerError | None = None  # of the commits
        monkeypatch.setattr(GroupMember, "commit", lambda _member, *args, **options: self._commit(*args, **options))

    def _commit(
        self,
        offsets: Callable[[], dict[TopicPartition, int]],
        *,
        on_committed: Callable[[dict[TopicPartition, int]], None],
        timeout_s: float,
    ) -> dict[TopicPartition, int]:
        self.count += 1
        self.has_started.set()
        assert self.may_continue.wait(timeout_s + 20)
        if self.error is not None:
            raise self.error
        committed = offsets()
        on_committed(committed)
        return committed


def test_planning_does_not_wait_for_reported_batch(alone: Planner, monkeypatch: pytest.MonkeyPatch) -> None:
    """ZooKeeper may be slow while the thread of the driver link commits."""
    claimed(alone, p0=0)
    commits = SlowCommits(monkeypatch)
    reported = in_thread(lambda: alone.finish_reported_batch(batch(p0=(0, 10))))
    assert commits.has_started.wait(20)
    in_thread(lambda: alone.finish_batch(batch(p0=(0, 10)))).result(5)
    commits.may_continue.set()
    assert reported.result() is True
    assert commits.count == 1
    assert alone.member.on_partitions_revoked({A}, False) == {}


def test_reported_batch_waits_for_running_commit(alone: Planner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the driver would commit the batch again, in a ZooKeeper session of its own."""
    claimed(alone, p0=0)
    commits = SlowCommits(monkeypatch)
    finished = in_thread(lambda: alone.finish_batch(batch(p0=(0, 10))))
    assert commits.has_started.wait(20)
    reported = in_thread(lambda: alone.finish_reported_batch(batch(p0=(0, 10))))
    commits.may_continue.set()
    assert reported.result() is True
    finished.result()
    assert commits.count == 1


def test_problem_of_running_commit_is_kept(alone: Planner, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch without offsets to commit does not change the problem of a commit that is running in another thread."""
    claimed(alone, p0=0)
    commits = SlowCommits(monkeypatch)
    commits.error = ZooKeeperUnavailableError("not connected")
    commits.may_continue.set()
    alone.finish_batch(batch(p0=(0, 10)))
    problem = alone._commits.problem
    assert problem is not None

    commits.may_continue.clear()
    commits.has_started.clear()
    running = in_thread(lambda: alone.finish_batch(batch(p0=(0, 10))))
    assert commits.has_started.wait(20)
    alone.member.on_partitions_lost()
    alone.finish_batch(batch(p0=(0, 10)))
    assert alone._commits.problem is problem
    commits.may_continue.set()
    running.result()
    assert alone._commits.problem is not None
    assert alone._commits.problem.since == problem.since

    alone.finish_batch(batch(p0=(0, 10)))
    assert alone._commits.problem is None


def test_bounded_query_plans_again_until_stopped(alone: Planner, monkeypatch: pytest.MonkeyPatch) -> None:
    planned: list[bool] = []

    def plan(*_: object, **__: object) -> PlanAgain:
        planned.append(True)
        return PlanAgain()

    monkeypatch.setattr(BatchPlanner, "plan", plan)
    alone.prepare_for_available_now()
    planning = in_thread(lambda: alone.plan(INITIAL))
    wait_for(lambda: len(planned) > 2)
    alone.member.stopping.set()
    with pytest.raises(ClosedError):
        planning.result(20)


def test_unbounded_query_returns_start_to_plan_again(alone: Planner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BatchPlanner, "plan", lambda *_, **__: PlanAgain())
    assert alone.plan(INITIAL) is INITIAL


def test_stopped_bounded_query_retries_no_commits(alone: Planner, monkeypatch: pytest.MonkeyPatch) -> None:
    commits: list[bool] = []

    def fail(*_: object, **__: object) -> dict[TopicPartition, int]:
        commits.append(True)
        raise ZooKeeperUnavailableError("not connected")

    monkeypatch.setattr(GroupMember, "commit", fail)
    claimed(alone, p0=0)
    alone.prepare_for_available_now()
    finished = in_thread(lambda: alone.finish_batch(batch(p0=(0, 10))))
    wait_for(lambda: len(commits) > 2)
    alone.member.stopping.set()
    finished.result(20)


def test_planner_has_no_periodic_commit(alone: Planner) -> None:
    claimed(alone, p0=0)
    alone.finish_batch(batch(p0=(0, 10)))
    assert alone.member.consumed_offsets() == {}


def test_member_failure_is_raised_at_next_trigger(alone: Planner) -> None:
    alone.member.fail(ZkConsumerError("it broke"))
    with pytest.raises(ZkConsumerError, match="it broke"):
        alone.plan(INITIAL)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("batch"), st.integers(0, 20)),
        st.tuples(st.just("done"), st.none()),
        st.tuples(st.just("release"), st.booleans()),
        st.tuples(st.just("acquire"), st.none()),
        st.tuples(st.just("lose"), st.none()),
    ),
    max_size=30,
)


@given(steps)
def test_release_never_exceeds_finished_offsets(events: list[tuple[str, Any]]) -> None:
    planner = unconnected_planner()
    claimed(planner, p0=0)
    owned, position, done, flying = True, 0, 0, False
    for event, detail in events:
        if event == "batch" and owned and not flying and detail:
            planner.start_batch(batch(p0=(position, position + detail)))
            position, flying = position + detail, True
        elif event == "done" and flying:
            planner.finish_batch(batch(p0=(done, position)))
            done, flying = position, False
        elif event == "acquire" and not owned:
            claimed(planner, p0=done)
            owned = True
        elif event == "lose":
            planner.member.on_partitions_lost()
            owned = False
        elif event == "release" and owned:
            offsets = planner.member.on_partitions_revoked({A}, detail)
            if offsets is None:
                assert not detail
                continue
            owned = False
            assert offsets.get(A, 0) <= done
            if not detail:
                assert not flying or offsets == {}


def test_lag_covers_all_partitions(alone: Planner) -> None:
    claimed(alone, p0=0, p1=0)
    alone.record_offset(batch(p0=(0, 10), p1=(0, 20)))
    alone._batches._ends.latest = {A: 12, B: 24}
    told = alone.latest()
    behind = [told[f"{kind}OffsetsBehindLatest"] for kind in ("min", "max", "avg")]
    assert (told["lag"], behind) == (6, [2, 4, 3.0])
    assert told["latest"] == {"t": {"0": 12, "1": 24}}


@pytest.mark.parametrize(
    ("ends", "is_delayed"), [({A: 5}, True), ({A: 0}, False), ({}, False)], ids=["unread", "read", "unavailable"]
)
def test_delay_of_unread_records_is_reported_to_driver(
    monkeypatch: pytest.MonkeyPatch, ends: dict[TopicPartition, int], is_delayed: bool
) -> None:
    planner = create_planner(SourceOptions.parse({**SETTINGS, "minOffsetsPerTrigger": "10"}))
    monkeypatch.setattr(QueryTopics, "check", lambda *_: None)
    found = {EARLIEST: {A: 0}, LATEST: ends}
    monkeypatch.setattr(AvailableOffsets, "find", lambda _, _partitions, time, **__: found[time])
    claimed(planner, p0=0)
    sent: list[Any] = []
    monkeypatch.setattr(DriverLink, "send", lambda _, **message: sent.append(message))
    process = PlanningProcess(QueryContext(options=SETTINGS, schema=StructType()))
    process._link = DriverLink(planner.consumer_id, 1, lambda _: True)
    assert planner.plan(INITIAL) is INITIAL
    assert planner.member.tracker.positions() == {A: 0}
    assert planner.latest()["health"] == "healthy"
    process._report_idle(planner)

    assert [(one["idle"]["group"], one["idle"]["delayed"]) for one in sent] == [("g", is_delayed)]
    monkeypatch.setattr(BatchPlanner, "plan", lambda *_, **__: PlanAgain())
    assert planner.plan(INITIAL) is INITIAL
    assert not planner.is_delayed, "planning did not determine whether there are records"


def test_batch_waits_until_a_broker_is_registered(alone: Planner, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that starts without brokers cannot find any, because it does not use ZooKeeper."""
    registered: list[list[Endpoint]] = [[UNREACHABLE], [], []]
    monkeypatch.setattr(ZooKeeperCluster, "brokers", lambda _: registered.pop() if registered else [UNREACHABLE])

    assert alone.find_brokers({A: (0, 10)}) == ({}, (UNREACHABLE,))
    assert registered == []


def test_batch_without_brokers_fails_after_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    planner = create_planner(SourceOptions.parse({**SETTINGS, "clusterUnavailableTimeout": "300ms"}))
    monkeypatch.setattr(ZooKeeperCluster, "brokers", lambda _: [])

    assert planner.find_brokers({}) == ({}, ())
    with pytest.raises(ZkConsumerError, match=r"for 0\.3 s \(option clusterUnavailableTimeout\): no broker is known"):
        planner.find_brokers({A: (0, 10)})


def test_stopped_query_does_not_wait_for_brokers(alone: Planner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ZooKeeperCluster, "brokers", lambda _: [])
    alone.member.stopping.set()

    with pytest.raises(ClosedError, match="the query was stopped"):
        alone.find_brokers({A: (0, 10)})
