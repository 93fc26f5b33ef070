"""Tests of the result of the first rebalance, and of how long it is retried."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from zkconsumer import ConsumerConfig
from zkconsumer.errors import (
    AssignmentError,
    ClosedError,
    ConfigurationError,
    ConsumerRebalanceFailedError,
    RetriableError,
    ZkConsumerError,
)
from zkconsumer.rebalance import first_rebalance as module
from zkconsumer.rebalance.first_rebalance import FirstRebalance


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Replace the clock; a test sets ``now``, in seconds."""
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


def first_rebalance(timeout_s: float = 0.0) -> FirstRebalance:
    """Return one that is retried four times, and for eight seconds or ``timeout_s``."""
    config = ConsumerConfig.from_dict({"group.id": "g", "zookeeper.connect": "z", "rebalance.backoff.ms": 2000})
    made = FirstRebalance(config, "g_a", timeout_s)
    made.start()
    return made


def has_failed(first: FirstRebalance, error: ZkConsumerError, failures: int = 4) -> bool:
    first.handle_failure(error, failures)
    return first._result.done()


def test_first_result_counts(clock: SimpleNamespace) -> None:
    first = first_rebalance()
    first.succeed()
    first.fail(ClosedError("x"))
    first.wait()

    first = first_rebalance()
    first.fail(ClosedError("x"))
    first.succeed()
    with pytest.raises(ClosedError):
        first.wait()


def test_retries_end_after_number_and_time(clock: SimpleNamespace) -> None:
    first, error = first_rebalance(), RetriableError("still owned")
    assert not has_failed(first, error)
    clock.now += 8
    assert not has_failed(first, error, failures=3)
    assert has_failed(first, error)
    message = "consumer g_a failed to rebalance after 4 attempts in 8 s: still owned. To retry longer"
    with pytest.raises(ConsumerRebalanceFailedError, match=message) as raised:
        first.wait()
    assert raised.value.__cause__ is error


def test_only_retriable_errors_are_retried_longer(clock: SimpleNamespace) -> None:
    first = first_rebalance(timeout_s=60)
    clock.now += 59
    assert not has_failed(first, RetriableError("x"))
    assert has_failed(first, AssignmentError("x"))


def test_impossible_rebalance_is_not_retried(clock: SimpleNamespace) -> None:
    first, error = first_rebalance(), ConfigurationError("the filter takes too long")
    assert has_failed(first, error, failures=1)
    with pytest.raises(ConfigurationError, match="the filter"):
        first.wait()


def test_wait_has_a_limit(clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LAST_ATTEMPT_S", -8.0)
    with pytest.raises(ConsumerRebalanceFailedError, match="did not end within 0 s"):
        first_rebalance().wait()
