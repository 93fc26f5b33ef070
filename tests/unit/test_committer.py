"""Tests of commits that wait for others in the broker request thread, with a storage of offsets in memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest
from helpers.group_members import commit, switch, unregistered_watch
from helpers.waiting import wait_for

from zkconsumer import ConsumerConfig, TopicPartition
from zkconsumer.errors import (
    BrokerUnavailableError,
    ClosedError,
    OwnershipLostError,
    RetriableError,
    ZkConsumerError,
    ZooKeeperUnavailableError,
)
from zkconsumer.rebalance.broker_requests import BrokerRequestThread
from zkconsumer.rebalance.committer import OffsetCommitter
from zkconsumer.rebalance.session_watch import SessionLostError
from zkconsumer.zookeeper.session import Event, EventKind

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


class Memory:
    """Offsets in memory. A commit waits for ``allowed``, and skips lower offsets unless ``allow_lower`` is set."""

    def __init__(self) -> None:
        self.committed: dict[TopicPartition, int] = {}
        self.is_closed = False
        self.is_running, self.allowed = threading.Event(), threading.Event()
        self.errors: list[Exception] = []  # of the next commits
        self.forgotten: list[TopicPartition] = []
        self.calls: list[Mapping[TopicPartition, int] | TopicPartition] = []  # of ``commit`` and ``allow_lower_once``
        self.lowerable: set[TopicPartition] = set()

    def fetch(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {partition: self.committed.get(partition, -1) for partition in partitions}

    def commit(
        self,
        offsets: Mapping[TopicPartition, int],
        *,
        allow_lower: bool = False,
        before_write: Callable[[], object] = dict,
    ) -> dict[TopicPartition, int]:
        before_write()
        self.is_running.set()
        assert self.allowed.wait(10)
        if self.errors:
            raise self.errors.pop(0)
        self.calls.append(dict(offsets))
        self.committed |= {p: o for p, o in offsets.items() if allow_lower or o >= self.committed.get(p, -1)}
        return self.fetch(offsets)

    def lacks(self, partition: TopicPartition, offset: int) -> bool:
        return self.committed.get(partition, -1) < offset

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        self.forgotten += partitions

    def allow_lower_once(self, partition: TopicPartition) -> None:
        self.calls.append(partition)
        self.lowerable.add(partition)

    def close(self) -> None:
        self.is_closed = True


class Part:
    """A committer, its storage, and the membership whose assignment the test changes.

    Attributes:
        consumed: the offsets that the periodic commit commits.
        resets: the results of the next calls of ``take_resets``.
    """

    def __init__(self, interval_s: float | None = None) -> None:
        self.consumed: dict[TopicPartition, int] = {}
        self.resets: list[set[TopicPartition]] = []
        self.offsets, self.target = Memory(), Memory()
        assignment = {A: "g_c-0", B: "g_c-0"}
        self.membership = cast(
            "Any",
            SimpleNamespace(group="g", consumer_id="g_c", assignment=assignment, check_session=lambda: None),
        )
        handler: Any = SimpleNamespace(
            consumed_offsets=lambda: dict(self.consumed),
            take_resets=lambda: self.resets.pop(0) if self.resets else set(),
        )
        self.watch = unregistered_watch()
        requests = BrokerRequestThread("test-requests", self.watch)
        self.committer = OffsetCommitter(
            ConsumerConfig.from_dict(
                {
                    "zookeeper.connect": "z:1",
                    "group.id": "g",
                    "offsets.channel.socket.timeout.ms": 300,
                    "offsets.channel.backoff.ms": 20,
                }
            ),
            self.membership,
            self._open_offsets,
            handler,
            requests,
            interval_s=interval_s,
        )

    def _open_offsets(self, storage: str, _dual_commit: bool) -> Memory:
        return self.offsets if storage == "zookeeper" else self.target


@pytest.fixture
def part(request: pytest.FixtureRequest) -> Iterator[Part]:
    made = Part(getattr(request, "param", None))
    made.committer.start()
    yield made
    made.offsets.allowed.set()
    made.committer.close()
    made.committer.join()


def test_commit_that_waited_is_rejected_after_release(part: Part) -> None:
    """The next owner may have committed a higher offset of the partition meanwhile."""
    commit(part.committer, {A: 5, B: 5})
    assert part.offsets.is_running.wait(10)
    second = commit(part.committer, {A: 7}, allow_lower=True)
    third = commit(part.committer, {B: 7})
    part.membership.assignment = {B: "g_c-0"}
    part.offsets.allowed.set()
    with pytest.raises(OwnershipLostError, match="partition t-0 is not owned by consumer g_c"):
        second.result(10)

    assert third.result(10) == {B: 7}


@pytest.mark.parametrize("part", [60.0], indirect=True)
def test_commits_are_executed_in_order_in_which_offsets_were_read(part: Part) -> None:
    """All are requested before an earlier commit ends. In another order, an older offset could replace a newer one."""
    waiting = [commit(part.committer, {B: 1})]
    assert part.offsets.is_running.wait(10)
    waiting += [commit(part.committer, {A: 4}), commit(part.committer, {A: 5})]
    part.consumed = {A: 6}
    part.committer.commit_after_rebalance()
    waiting.append(commit(part.committer, {A: 7}))
    part.committer.allow_lower_once(A)
    waiting.append(commit(part.committer, {A: 8}))
    part.consumed = {A: 220}
    part.offsets.allowed.set()
    for one in waiting:
        one.result(10)

    assert part.offsets.calls == [{B: 1}, {A: 5}, {A: 6}, {A: 7}, A, {A: 8}]


def test_commit_before_release_is_executed_before_later_requests(part: Part) -> None:
    """While the member thread waits for the commit, the application can request another one."""
    waiting = [commit(part.committer, {B: 1})]
    assert part.offsets.is_running.wait(10)
    waiting.append(commit(part.committer, {A: 4}))
    requested: list[Future[dict[TopicPartition, int]]] = []
    part.watch.mailbox.submit(lambda: requested.append(commit(part.committer, {A: 6})))
    part.watch.mailbox.submit(part.offsets.allowed.set)
    part.committer.commit_released({A: 5})
    for one in [*waiting, *requested]:
        one.result(10)

    assert part.offsets.calls == [{B: 1}, {A: 4}, {A: 5}, {A: 6}]


@pytest.mark.parametrize("part", [60.0], indirect=True)
@pytest.mark.parametrize("kind", ["requested", "explicit", "periodic", "before release"])
def test_reset_is_allowed_before_offsets_are_committed(part: Part, kind: str) -> None:
    part.offsets.allowed.set()
    read: list[int] = []

    def offsets() -> dict[TopicPartition, int]:
        read.append(len(part.resets))
        return {A: 220 if part.resets else 4}

    part.resets = [{A}]  # after the first offset was read
    if kind == "requested":
        commit(part.committer, offsets).result(10)
    elif kind == "explicit":
        commit(part.committer, {A: 4}, allow_lower=True).result(10)
    elif kind == "periodic":
        part.committer._handler.consumed_offsets = offsets  # type: ignore[method-assign]
        part.committer.commit_after_rebalance()
        part.committer.wait_for_commits()
    else:
        part.committer.commit_released({A: 4})

    assert part.offsets.calls == [A, {A: 4}]
    assert read == ([1, 0] if kind in ("requested", "periodic") else []), "the offsets are read again after a reset"


def test_switch_keeps_permission_to_lower(part: Part) -> None:
    part.offsets.allowed.set()
    part.target.allowed.set()
    part.offsets.committed = {A: 220, B: 7}
    part.committer.allow_lower_once(A)
    part.membership.assignment = {A: "g_c-0", B: "g_c-0"}
    assert switch(part.committer).result(10) == {A: 220, B: 7}
    assert part.target.calls == [{A: 220, B: 7}, A]


def test_request_after_switch_is_not_merged_with_earlier_ones(part: Part) -> None:
    part.target.allowed.set()
    waiting = [commit(part.committer, {B: 1})]
    assert part.offsets.is_running.wait(10)
    waiting += [commit(part.committer, {A: 4}), switch(part.committer), commit(part.committer, {A: 5})]
    part.offsets.allowed.set()
    for one in waiting:
        one.result(10)
    assert part.offsets.calls == [{B: 1}, {A: 4}]
    assert part.target.calls[-1] == {A: 5}


def test_commit_lowers_offset_only_if_allowed(part: Part) -> None:
    part.offsets.allowed.set()
    part.offsets.committed = {A: 7}
    assert commit(part.committer, {A: 5}).result(10) == {A: 7}
    assert commit(part.committer, {A: 5}, allow_lower=True).result(10) == {A: 5}


def test_switch_that_waited_copies_what_is_owned_then(part: Part) -> None:
    commit(part.committer, {A: 5, B: 6})
    assert part.offsets.is_running.wait(10)
    part.target.allowed.set()
    switched = switch(part.committer)
    part.membership.assignment = {B: "g_c-0"}
    part.offsets.allowed.set()

    assert switched.result(10) == part.target.committed == {B: 6}
    assert part.offsets.is_closed


def test_released_offsets_are_committed_after_retries(part: Part) -> None:
    part.offsets.allowed.set()
    part.offsets.errors = [BrokerUnavailableError("x"), RetriableError("y")]
    part.committer.commit_released({A: 5})
    assert part.offsets.committed == {A: 5}
    part.committer.commit_released({})
    assert part.offsets.errors == []


@pytest.mark.parametrize(
    "errors", [[ZkConsumerError("rejected")], [RetriableError("rejected")] * 1000], ids=["final", "retriable"]
)
def test_released_offsets_are_logged_if_rejected(
    errors: list[Exception], part: Part, caplog: pytest.LogCaptureFixture
) -> None:
    part.offsets.allowed.set()
    part.offsets.errors = errors
    started = time.monotonic()
    part.committer.commit_released({A: 5, B: 6})
    assert time.monotonic() - started < 10
    assert "offsets_discarded" in caplog.text
    assert "{'t-0': 5, 't-1': 6}" in caplog.text
    assert part.offsets.committed == {}


def test_released_partitions_do_not_wait_for_silent_storage(part: Part, caplog: pytest.LogCaptureFixture) -> None:
    part.committer.commit_released({A: 5})
    assert "the commit did not complete within 0.3 s" in caplog.text


@pytest.mark.parametrize("error", [ZooKeeperUnavailableError("x"), OwnershipLostError("x")])
def test_release_fails_if_session_may_have_ended(error: ZkConsumerError, part: Part) -> None:
    part.offsets.allowed.set()
    part.offsets.errors = [error]
    with pytest.raises(type(error)):
        part.committer.commit_released({A: 5})


def test_release_ends_when_session_is_lost(part: Part, caplog: pytest.LogCaptureFixture) -> None:
    part.watch.mailbox.queue.put(Event(EventKind.LOST))
    with pytest.raises(SessionLostError):
        part.committer.commit_released({A: 5})
    assert "offsets_discarded" not in caplog.text


@pytest.mark.parametrize("part", [0.01], indirect=True)
def test_periodic_commit_includes_owned_partitions_only(part: Part) -> None:
    part.offsets.allowed.set()
    part.membership.assignment = {A: "g_c-0"}
    part.consumed = {A: 5, B: 6}
    assert part.committer.next_commit_at is not None
    wait_for(lambda: time.monotonic() >= (part.committer.next_commit_at or 0))
    part.committer.commit_if_due()
    wait_for(lambda: part.offsets.committed == {A: 5})


@pytest.mark.parametrize("part", [60.0], indirect=True)
def test_commit_is_not_repeated_before_its_interval(part: Part) -> None:
    part.consumed = {A: 5}
    assert (part.committer.next_commit_at or 0) > time.monotonic() + 50
    part.committer.commit_if_due()
    assert not part.offsets.is_running.is_set()
    before = time.monotonic()
    part.committer._next_commit_at = before
    part.committer.commit_if_due()
    assert part.offsets.is_running.wait(10)
    assert before + 60 <= (part.committer.next_commit_at or 0) <= time.monotonic() + 60

    part.offsets.is_running.clear()
    part.committer.commit_after_rebalance()  # the commit in flight has not finished
    part.offsets.allowed.set()
    assert part.committer.fetch([A, B]) == {A: 5, B: -1}
    assert not part.offsets.is_running.is_set()
    part.committer.commit_after_rebalance()
    assert part.offsets.is_running.wait(10)


def test_no_commit_is_periodic_without_interval(part: Part) -> None:
    part.offsets.allowed.set()
    part.consumed = {A: 5}
    part.committer.commit_if_due()
    part.committer.commit_after_rebalance()
    assert part.committer.fetch([A]) == {A: -1}
    assert part.committer.next_commit_at is None


@pytest.mark.parametrize("part", [60.0], indirect=True)
def test_error_of_handler_does_not_end_member_thread(part: Part, caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> dict[TopicPartition, int]:
        raise KeyError("x")

    part.committer._handler.consumed_offsets = fail  # type: ignore[method-assign]
    part.committer.commit_after_rebalance()
    part.committer.wait_for_commits()
    assert "auto_commit_failed" in caplog.text
    assert "KeyError" in caplog.text


@pytest.mark.parametrize("part", [60.0], indirect=True)
@pytest.mark.parametrize(("error", "level"), [(ZkConsumerError("denied"), "WARNING"), (ValueError("denied"), "ERROR")])
def test_failed_periodic_commit_is_a_problem(
    error: Exception, level: str, part: Part, caplog: pytest.LogCaptureFixture
) -> None:
    part.offsets.allowed.set()
    part.offsets.errors = [error]
    part.committer.commit_after_rebalance()
    problem = wait_for(lambda: part.committer.problem)
    assert problem.code == "commit_failed"
    assert "denied" in problem.message
    wait_for(lambda: "auto_commit_failed" in caplog.text)
    assert [record.levelname for record in caplog.records] == [level]
    assert ("Traceback" in caplog.text) is (level == "ERROR"), "the cause of an unexpected error"
    part.committer.commit_after_rebalance()
    wait_for(lambda: part.committer.problem is None)


def test_switch_needs_valid_session(part: Part) -> None:
    def fail() -> None:
        raise OwnershipLostError("expired")

    part.membership.check_session = fail
    with pytest.raises(OwnershipLostError, match="expired"):
        switch(part.committer).result(10)
    assert not part.offsets.is_closed


def test_commit_after_switch_uses_new_storage(part: Part) -> None:
    part.target.allowed.set()
    commit(part.committer, {A: 4})
    assert part.offsets.is_running.wait(10)
    commit(part.committer, {A: 5})
    commit(part.committer, {A: 6})
    switched = switch(part.committer)
    lower = commit(part.committer, {A: 3}, allow_lower=True)
    part.offsets.allowed.set()

    assert switched.result(10) == part.offsets.committed == {A: 6}
    assert lower.result(10) == part.target.committed == {A: 3}


def test_waiting_commits_fail_when_committer_is_closed(part: Part) -> None:
    seen: list[dict[TopicPartition, int]] = []
    started, ended = threading.Event(), threading.Event()

    def block() -> None:
        started.set()
        ended.wait(10)

    part.committer._requests.submit(block)
    assert started.wait(10)
    running, *merged = (commit(part.committer, {p: 5}, on_committed=seen.append) for p in (A, A, B))
    separate, switched = commit(part.committer, {A: 3}), switch(part.committer)
    ended.set()
    assert part.offsets.is_running.wait(10)
    part.committer.close()
    late = commit(part.committer, {A: 7})

    assert [type(result.exception(0)) for result in (*merged, separate, switched, late)] == [ClosedError] * 5
    part.offsets.allowed.set()
    assert running.result(10) == {A: 5}
    part.committer.join()
    assert seen == [{A: 5}, {A: 5}, {B: 5}], "the offsets were committed nevertheless"
    assert part.offsets.committed == {A: 5, B: 5}


def test_failed_switch_keeps_storage(part: Part) -> None:
    part.offsets.allowed.set()
    part.offsets.committed = {A: 5}
    part.target.allowed.set()
    part.target.errors = [BrokerUnavailableError("x")]
    with pytest.raises(BrokerUnavailableError):
        switch(part.committer).result(10)
    assert (part.offsets.is_closed, part.target.is_closed) == (False, True)
    commit(part.committer, {A: 7}).result(10)
    assert part.offsets.committed == {A: 7}


def test_commit_of_partition_of_others_names_its_offset(part: Part) -> None:
    part.membership.assignment = {A: "g_c-0"}
    with pytest.raises(OwnershipLostError, match="partition t-1 is not owned by consumer g_c; its offset 6"):
        commit(part.committer, {A: 5, B: 6})


def test_released_partitions_are_forgotten(part: Part) -> None:
    part.committer.forget([A])
    part.committer.fetch([])
    assert part.offsets.forgotten == [A]
