"""Tests of the event loop of a member: what it runs when, and how it fails and ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from helpers.threads import in_thread
from helpers.waiting import wait_for

from zkconsumer import ConsumerConfig
from zkconsumer.errors import AuthenticationError, ClosedError, ZkConsumerError
from zkconsumer.rebalance.first_rebalance import FirstRebalance
from zkconsumer.rebalance.mailbox import Mailbox
from zkconsumer.rebalance.member_thread import MemberThread
from zkconsumer.rebalance.session_watch import SessionWatch
from zkconsumer.zookeeper.session import Event, EventKind


class Parts:
    """The parts of a member, which record the calls of its thread."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.mailbox = Mailbox("the consumer has been shut down")
        config = ConsumerConfig.from_dict({"zookeeper.connect": "z", "group.id": "g"})
        self.first = FirstRebalance(config, "g_c", 0.0)
        self.failures: list[BaseException] = []
        self.actions: dict[str, Callable[[], Any]] = {}
        self.session: Any = SimpleNamespace(
            lease=SimpleNamespace(remaining_s=60.0),
            failure=None,
            close=self._called("session.close"),
        )
        self.membership: Any = SimpleNamespace(
            group="g",
            consumer_id="g_c",
            assignment={"t-0": "x"},
            is_registered=True,
            holds_lease=True,
            lose=self._called("membership.lose"),
        )
        self.listener: Any = SimpleNamespace(
            leave=self._called("leave"), lose=lambda error: self.calls.append(f"lose {error.event}")
        )
        self.attempts: Any = SimpleNamespace(
            run_if_due=self._called("run_if_due"),
            terminate=self.failures.append,
            next_attempt_at=None,
        )
        self.committer: Any = SimpleNamespace(
            commit_if_due=self._called("commit_if_due"),
            commit_after_rebalance=self._called("commit_after_rebalance"),
            next_commit_at=None,
        )
        self.handler: Any = SimpleNamespace(fail=self._called("fail"), on_partitions_lost=self._called("handler.lose"))
        self.watch = SessionWatch(cast("Any", self.session), cast("Any", self.membership), self.mailbox)
        parts: list[Any] = [self.listener, self.attempts, self.first, self.committer, self.handler]
        self.thread = MemberThread(self.watch, *parts)

    def _called(self, name: str) -> Callable[..., Any]:
        def call(*arguments: object) -> Any:
            self.calls.append(" ".join([name, *map(str, arguments)]))
            return self.actions.get(name, lambda: None)()

        return call


@pytest.fixture
def parts() -> Parts:
    return Parts()


def started(parts: Parts) -> MemberThread:
    """Start the thread; its first step completes the first rebalance."""

    parts.actions["run_if_due"] = parts.first.succeed
    parts.mailbox.wake()
    parts.thread.start()
    return parts.thread


def test_each_event_is_followed_by_due_tasks(parts: Parts) -> None:
    thread = started(parts)
    assert parts.calls == ["run_if_due", "commit_if_due"]
    parts.mailbox.submit(lambda: parts.calls.append("request of application")).result(10)
    thread.stop(10)
    assert parts.calls[2:3] == ["request of application"]
    assert parts.calls[-1] == "leave"
    assert thread.failure is None
    with pytest.raises(ClosedError):
        parts.mailbox.submit(lambda: None).result(0)


def test_lost_session_is_followed_by_due_tasks(parts: Parts) -> None:
    thread = started(parts)
    parts.mailbox.queue.put(Event(EventKind.LOST))
    wait_for(lambda: parts.calls[2:] == ["lose session_expired", "run_if_due", "commit_if_due"])
    assert parts.watch.needs_rebalance
    thread.stop(10)


def test_thread_wakes_up_for_earliest_task(parts: Parts) -> None:
    now = time.monotonic()
    parts.attempts.next_attempt_at, parts.committer.next_commit_at = now + 30, now + 20
    assert 19 < (parts.thread._time_to_next_task() or 0) <= 20
    parts.committer.next_commit_at = now - 1
    assert parts.thread._time_to_next_task() == 0.0
    parts.attempts.next_attempt_at = parts.committer.next_commit_at = None
    assert parts.thread._time_to_next_task() is None


@pytest.mark.parametrize("error", [AuthenticationError("denied"), ZkConsumerError("kazoo's thread has ended")])
def test_member_fails_with_its_session(error: ZkConsumerError, parts: Parts) -> None:
    thread = started(parts)
    parts.session.failure = error
    parts.mailbox.wake()
    wait_for(lambda: not thread._thread.is_alive)
    assert thread.failure is error
    assert parts.failures == [thread.failure]
    assert thread.failed_at > 0
    assert parts.calls[-4:] == [f"fail {thread.failure}", "handler.lose", "membership.lose", "session.close"]
    assert parts.mailbox.submit(lambda: None).exception(0) is thread.failure


@pytest.mark.parametrize("part", ["fail", "handler.lose"])
def test_failed_member_closes_its_session_in_any_case(part: str, parts: Parts) -> None:
    """Otherwise, its znodes would keep the other members from its partitions."""

    def fail() -> None:
        raise KeyError("x")

    thread = started(parts)
    parts.actions[part] = fail
    parts.session.failure = ZkConsumerError("kazoo's thread has ended")
    parts.mailbox.wake()
    wait_for(lambda: not thread._thread.is_alive)
    assert parts.calls[-1] == "session.close"
    with pytest.raises(ZkConsumerError, match="kazoo's thread has ended"):
        parts.mailbox.submit(lambda: None).result(0)


def test_stop_before_start_rejects_start(parts: Parts) -> None:
    parts.thread.stop(10)
    with pytest.raises(ClosedError, match="^the consumer was shut down$"):
        parts.thread.start()
    assert not parts.thread._thread.is_alive


def test_stop_during_first_rebalance_ends_start(parts: Parts) -> None:
    starting = in_thread(parts.thread.start)
    wait_for(lambda: parts.thread._thread.is_alive)
    parts.thread.stop(10)
    with pytest.raises(ClosedError, match="during its first rebalance"):
        starting.result(10)


def test_stop_is_limited_and_may_come_from_thread_itself(parts: Parts, caplog: pytest.LogCaptureFixture) -> None:
    thread, stopped, end = started(parts), threading.Event(), threading.Event()

    def stop_in_thread() -> None:
        thread.stop(60)
        stopped.set()
        end.wait(60)

    parts.mailbox.submit(stop_in_thread)
    assert stopped.wait(10)
    assert "leave_timed_out" not in caplog.text
    thread.stop(0.05)
    assert "leave_timed_out" in caplog.text
    end.set()
    wait_for(lambda: not thread._thread.is_alive)
    assert parts.calls[-1] == "leave"


def test_offsets_are_committed_after_each_rebalance(parts: Parts) -> None:
    parts.actions["run_if_due"] = lambda: True
    parts.thread._run_due_tasks()
    assert parts.calls == ["run_if_due", "commit_after_rebalance", "commit_if_due"]
