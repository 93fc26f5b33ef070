"""Tests of health: how problems become reasons, and the thread that reports changes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from helpers.waiting import wait_for

from zkconsumer import TopicPartition
from zkconsumer.errors import ZkConsumerError
from zkconsumer.health import (
    Health,
    HealthMonitor,
    HealthReason,
    HealthState,
    Problem,
    merge_reasons,
    stalled_partitions,
)
from zkconsumer.log import get_logger

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
STALLED = Health.of([HealthReason(HealthState.STALLED, "commit_failed", 1.0, "x")])


def monitor(listener: object, read: Callable[[], Health] = lambda: STALLED) -> HealthMonitor:
    made = HealthMonitor("test-health", read, listener, get_logger("zkconsumer.health"))  # type: ignore[arg-type]
    made.start()
    return made


def test_listener_may_close_monitor() -> None:
    called = threading.Event()

    def close(_health: Health) -> None:
        one.close()
        called.set()

    one = monitor(close)
    assert called.wait(10)
    wait_for(lambda: not one._thread.is_alive, what="the thread of the monitor has ended")


def test_listener_that_does_not_return_does_not_block_close() -> None:
    called, end = threading.Event(), threading.Event()

    def block(_health: Health) -> None:
        called.set()
        end.wait(30)

    one = monitor(block)
    try:
        assert called.wait(10)
        started = time.monotonic()
        one.close()
        assert time.monotonic() - started < 10
    finally:
        end.set()


def test_monitor_continues_after_failed_check(caplog: pytest.LogCaptureFixture) -> None:
    called = threading.Event()
    results: list[Health | Exception] = [KeyError("topic"), KeyError("topic"), STALLED]

    def read() -> Health:
        result = results.pop(0) if len(results) > 1 else results[0]
        if isinstance(result, Exception):
            raise result
        return result

    one = monitor(lambda _health: called.set(), read)
    try:
        assert called.wait(10)
    finally:
        one.close()
    assert [record.getMessage().count("health_check_failed") for record in caplog.records].count(1) == 1


def test_problems_of_one_code_are_one_reason() -> None:
    found = stalled_partitions(
        [(A, Problem("fetch_failed", "first", 5.0)), (B, Problem("fetch_failed", "second", 3.0))]
    )

    assert found == [HealthReason(HealthState.STALLED, "fetch_failed", 3.0, "first", frozenset({A, B}))]


def test_problem_of_a_moment_is_no_reason() -> None:
    assert stalled_partitions([(A, Problem.again(None, "fetch_failed", ZkConsumerError("now")))]) == []


def test_reason_without_partitions_concerns_all() -> None:
    every = HealthReason(HealthState.STALLED, "leader_not_found", 5.0, "no broker responds")
    one = Problem("leader_not_found", "no leader", 3.0).reason([A])

    assert [(reason.since, reason.partitions) for reason in merge_reasons([one, every])] == [(3.0, frozenset())]
