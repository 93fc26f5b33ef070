"""Tests of the result of the first rebalance, and of how long it is retried."""

from __future__ import annotations

import pytest
from helpers.clocks import Clock

from zkconsumer import ConsumerConfig
from zkconsumer.errors import (
    AssignmentError,
    ClosedError,
    ConfigurationError,
    ConsumerRebalanceFailedError,
    RetriableError,
    TopicAuthorizationError,
    ZkConsumerError,
)
from zkconsumer.rebalance.first_rebalance import FirstRebalance
from zkconsumer.rebalance.session_watch import SessionLostError


def first_rebalance(clock: Clock, timeout_s: float = 0.0) -> FirstRebalance:
    """Return one that is retried four times, and for eight seconds or ``timeout_s``."""
    config = ConsumerConfig.from_dict({"group.id": "g", "zookeeper.connect": "z", "rebalance.backoff.ms": 2000})
    made = FirstRebalance(config, "g_a", timeout_s, clock=clock)
    made.start()
    return made


def has_failed(first: FirstRebalance, error: ZkConsumerError, failures: int = 4) -> bool:
    first.handle_failure(error, failures)
    return first._result.done()


def test_first_result_counts() -> None:
    first = first_rebalance(Clock())
    first.succeed()
    first.fail(ClosedError("x"))
    first.wait()

    first = first_rebalance(Clock())
    first.fail(ClosedError("x"))
    first.succeed()
    with pytest.raises(ClosedError):
        first.wait()


def test_retries_end_after_number_and_time() -> None:
    clock = Clock()
    first, error = first_rebalance(clock), RetriableError("still owned")
    assert not has_failed(first, error)
    clock.now += 8
    assert not has_failed(first, error, failures=3)
    assert has_failed(first, error)
    message = "consumer g_a failed to rebalance after 4 attempts in 8 s: still owned. To retry longer"
    with pytest.raises(ConsumerRebalanceFailedError, match=message) as raised:
        first.wait()
    assert raised.value.__cause__ is error


def test_error_after_lost_session_names_earlier_failure() -> None:
    clock = Clock()
    first = first_rebalance(clock)
    assert not has_failed(first, RetriableError("still owned"))
    clock.now += 8
    assert has_failed(first, SessionLostError("session_expired"))
    message = "session was lost; .*. An earlier attempt failed with: still owned. To retry longer"
    with pytest.raises(ConsumerRebalanceFailedError, match=message):
        first.wait()


@pytest.mark.parametrize("error", [TopicAuthorizationError("x"), ZkConsumerError("x")])
def test_error_with_other_remedy_does_not_suggest_retries(error: ZkConsumerError) -> None:
    clock = Clock()
    first = first_rebalance(clock)
    clock.now += 30
    assert has_failed(first, error)
    with pytest.raises(ConsumerRebalanceFailedError, match="in 30 s: x$"):
        first.wait()


def test_only_retriable_errors_are_retried_longer() -> None:
    clock = Clock()
    first = first_rebalance(clock, timeout_s=60)
    clock.now += 59
    assert not has_failed(first, RetriableError("x"))
    assert has_failed(first, AssignmentError("x"))


def test_impossible_rebalance_is_not_retried() -> None:
    first, error = first_rebalance(Clock()), ConfigurationError("the filter takes too long")
    assert has_failed(first, error, failures=1)
    with pytest.raises(ConfigurationError, match="the filter"):
        first.wait()


def test_wait_has_a_limit() -> None:
    times = {"zookeeper.session.timeout.ms": 100, "rebalance.backoff.ms": 20}
    config = ConsumerConfig.from_dict({"group.id": "g", "zookeeper.connect": "z", **times})
    first = FirstRebalance(config, "g_a", 0.0, last_attempt_timeout_s=0.1)
    first.start()
    with pytest.raises(ConsumerRebalanceFailedError, match="did not complete within 0.2 s"):
        first.wait()
