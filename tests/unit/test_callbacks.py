"""Tests of the thread that runs the application's rebalance callbacks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Set

import pytest
from helpers.group_members import unregistered_watch

from zkconsumer import TopicPartition
from zkconsumer.errors import ZkConsumerError
from zkconsumer.rebalance.callbacks import CallbackRunner, ConsumerRebalanceListener
from zkconsumer.rebalance.session_watch import SessionWatch

P1, P2, P3 = (TopicPartition("t", number) for number in (1, 2, 3))


class Listener(ConsumerRebalanceListener):
    """Records its calls; ``action`` runs during each of them."""

    def __init__(self) -> None:
        self.calls: list[object] = []
        self.threads: list[str] = []
        self.action: Callable[[], object] = lambda: None

    def before_releasing_partitions(self, partitions: Mapping[str, Set[int]]) -> None:
        self.calls.append(partitions)
        self.threads.append(threading.current_thread().name)
        self.action()

    def before_starting_fetchers(self, consumer_id: str, assignment: Mapping[str, Mapping[int, str]]) -> None:
        self.calls.append((consumer_id, assignment))
        self.action()


@pytest.fixture
def listener() -> Listener:
    return Listener()


@pytest.fixture
def watch() -> SessionWatch:
    return unregistered_watch()


def runner(listener: Listener, watch: SessionWatch, timeout_s: float = 10.0) -> CallbackRunner:
    return CallbackRunner(listener, watch, timeout_s=timeout_s)


def test_callbacks_receive_their_arguments_in_other_thread(listener: Listener, watch: SessionWatch) -> None:
    one = runner(listener, watch)
    one.before_releasing_partitions([P1])
    one.before_starting_fetchers({TopicPartition("t", 0): "c-0"})
    assert listener.calls == [{"t": {1}}, ("g_c", {"t": {0: "c-0"}})]
    assert listener.threads == ["zkconsumer-g-listener-g_c"]


def test_member_processes_requests_during_callback(listener: Listener, watch: SessionWatch) -> None:
    committed: list[bool] = []
    listener.action = lambda: watch.mailbox.submit(lambda: committed.append(True)).result(10)
    runner(listener, watch).before_releasing_partitions([])
    assert committed == [True]


def test_error_of_callback_names_method_and_cause(listener: Listener, watch: SessionWatch) -> None:
    error = KeyError("x")

    def fail() -> None:
        raise error

    listener.action = fail
    one = runner(listener, watch)
    with pytest.raises(ZkConsumerError, match=r"before_releasing_partitions raised KeyError\('x'\)") as raised:
        one.before_releasing_partitions([])
    assert raised.value.__cause__ is error
    listener.action = lambda: None
    one.before_releasing_partitions([])
    assert len(listener.calls) == 2


def test_callback_that_does_not_return_is_skipped(
    listener: Listener, watch: SessionWatch, caplog: pytest.LogCaptureFixture
) -> None:
    end = threading.Event()
    listener.action = lambda: end.wait(60)
    one = runner(listener, watch, timeout_s=0.05)
    started = time.monotonic()
    one.before_releasing_partitions([P1])
    assert "rebalance_listener_timed_out" in caplog.text
    assert "rebalance_listener_still_running" not in caplog.text
    one.before_releasing_partitions([P2])
    assert "rebalance_listener_still_running" in caplog.text
    assert 0.1 <= time.monotonic() - started < 10
    assert listener.calls == [{"t": {1}}], "callbacks never run at the same time"

    end.set()
    listener.action = lambda: None
    one._timeout_s = 10.0
    one.before_releasing_partitions([P3])
    assert listener.calls == [{"t": {1}}, {"t": {3}}]


def test_late_error_of_callback_does_not_fail_next_one(listener: Listener, watch: SessionWatch) -> None:
    end = threading.Event()

    def fail_late() -> None:
        assert end.wait(60)
        raise KeyError("x")

    listener.action = fail_late
    one = runner(listener, watch, timeout_s=0.05)
    one.before_releasing_partitions([])
    end.set()
    listener.action = lambda: None
    one._timeout_s = 10.0
    one.before_releasing_partitions([])
    assert len(listener.calls) == 2


def test_callback_runs_for_changed_assignments_only(listener: Listener, watch: SessionWatch) -> None:
    one = runner(listener, watch)
    for assignment in ({P1: "c-0"}, {P1: "c-0"}, {P1: "c-0", P2: "d-0"}):
        one.before_starting_fetchers(assignment)
    assert len(listener.calls) == 2
    one.forget_assignment()
    one.before_starting_fetchers({P1: "c-0", P2: "d-0"})
    assert len(listener.calls) == 3


def test_member_that_leaves_runs_no_callback(listener: Listener, watch: SessionWatch) -> None:
    watch.mailbox.is_stopping = True
    runner(listener, watch).before_releasing_partitions([P1])
    assert listener.calls == []


def test_member_without_listener_runs_no_callback(watch: SessionWatch) -> None:
    one = CallbackRunner(None, watch, timeout_s=10.0)
    one.before_releasing_partitions([P1])
    one.before_starting_fetchers({P1: "c-0"})
