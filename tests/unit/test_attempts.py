"""Tests of the schedule of rebalances that fail, with the times of a fake clock."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from support import unregistered_watch

from zkconsumer import ConsumerConfig
from zkconsumer.health import HealthState
from zkconsumer.rebalance import attempts as module
from zkconsumer.rebalance.attempts import RebalanceAttempts
from zkconsumer.rebalance.first_rebalance import FirstRebalance
from zkconsumer.rebalance.rebalancer import PartitionOwnedError
from zkconsumer.rebalance.session_watch import SessionWatch


class Listener:
    """Replaces the listener: each rebalance finds a partition that another member owns."""

    def rebalance(self) -> None:
        raise PartitionOwnedError("/consumers/g/owners/t/0 is still owned")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Replace the clock; a test sets ``now``, in seconds."""
    clock = SimpleNamespace(now=1000.0)
    fake = SimpleNamespace(monotonic=lambda: clock.now, time=lambda: clock.now)
    monkeypatch.setattr(module, "time", fake)
    return clock


@pytest.fixture
def watch() -> SessionWatch:
    return unregistered_watch()


@pytest.fixture
def attempts(clock: SimpleNamespace, watch: SessionWatch) -> RebalanceAttempts:
    config = ConsumerConfig.from_dict({"group.id": "g", "zookeeper.connect": "z", "rebalance.backoff.ms": 2000})
    cluster: Any = SimpleNamespace(poll_interval_s=None)
    listener: Any = Listener()
    first_rebalance = FirstRebalance(config, "g_a", 0.0)
    return RebalanceAttempts(config, watch, listener, cluster, first_rebalance, lambda _duration: None)


def errors(caplog: pytest.LogCaptureFixture) -> int:
    return sum("rebalance_failed" in record.getMessage() for record in caplog.records if record.levelname == "ERROR")


def test_attempts_after_events_count_as_one(
    attempts: RebalanceAttempts, watch: SessionWatch, clock: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    """A member that releases eight partitions causes eight events within milliseconds."""
    caplog.set_level(logging.INFO, "zkconsumer")
    for _ in range(8):
        clock.now += 0.03
        watch.needs_rebalance = True
        attempts.run_if_due()
    assert errors(caplog) == 0
    assert attempts.unbalanced_since is not None


def test_attempts_after_backoff_are_reported(
    attempts: RebalanceAttempts, clock: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(4):
        due = attempts.next_attempt_at
        assert due is not None
        clock.now = max(clock.now, due)
        attempts.run_if_due()
    assert errors(caplog) == 1
    reason = attempts.health_reason()
    assert reason is not None
    assert (reason.state, reason.code) == (HealthState.STALLED, "partition_not_released")
