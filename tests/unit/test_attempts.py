"""Tests of the schedule of rebalances that fail."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest
from helpers.group_members import unregistered_watch
from helpers.waiting import wait_for

from zkconsumer import ConsumerConfig
from zkconsumer.health import HealthState
from zkconsumer.rebalance.attempts import RebalanceAttempts
from zkconsumer.rebalance.first_rebalance import FirstRebalance
from zkconsumer.rebalance.rebalancer import PartitionOwnedError
from zkconsumer.rebalance.session_watch import SessionWatch


class Listener:
    """Replaces the listener: each rebalance finds a partition that another member owns."""

    count = 0

    def rebalance(self) -> None:
        self.count += 1
        raise PartitionOwnedError("/consumers/g/owners/t/0 is still owned")


@pytest.fixture
def watch() -> SessionWatch:
    return unregistered_watch()


def failing_attempts(watch: SessionWatch, listener: Listener, backoff_ms: int) -> RebalanceAttempts:
    settings = {"group.id": "g", "zookeeper.connect": "z", "rebalance.backoff.ms": backoff_ms}
    config = ConsumerConfig.from_dict(settings)
    cluster: Any = SimpleNamespace(poll_interval_s=None)
    first_rebalance = FirstRebalance(config, "g_a", 0.0)
    return RebalanceAttempts(config, watch, cast(Any, listener), cluster, first_rebalance, lambda _duration: None)


def errors(caplog: pytest.LogCaptureFixture) -> int:
    return sum("rebalance_failed" in record.getMessage() for record in caplog.records if record.levelname == "ERROR")


def test_attempts_after_events_count_as_one(watch: SessionWatch, caplog: pytest.LogCaptureFixture) -> None:
    """A member that releases eight partitions causes eight events within milliseconds."""
    caplog.set_level(logging.INFO, "zkconsumer")
    listener = Listener()
    attempts = failing_attempts(watch, listener, backoff_ms=60_000)
    for _ in range(8):
        watch.needs_rebalance = True
        attempts.run_if_due()
    assert (listener.count, errors(caplog)) == (8, 0)
    assert attempts.unbalanced_since is not None


def test_attempts_after_backoff_are_reported(watch: SessionWatch, caplog: pytest.LogCaptureFixture) -> None:
    listener = Listener()
    attempts = failing_attempts(watch, listener, backoff_ms=20)
    wait_for(lambda: attempts.run_if_due() or listener.count == 4)
    assert errors(caplog) == 1
    reason = attempts.health_reason()
    assert reason is not None
    assert (reason.state, reason.code) == (HealthState.STALLED, "partition_not_released")
