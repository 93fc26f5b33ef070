"""Tests of retries that another thread can stop, and of repeated calls."""

from __future__ import annotations

import threading
import time

import pytest

from zkconsumer.errors import RetriableError
from zkconsumer.retry import polling, retrying

pytestmark = pytest.mark.timeout(30)


def test_stop_event_ends_retries_with_last_error() -> None:
    stop = threading.Event()
    calls: list[int] = []

    def fail() -> None:
        calls.append(len(calls))
        stop.set()
        raise RetriableError(f"call {len(calls)}")

    with pytest.raises(RetriableError, match="call 1"):
        retrying(60, interval_s=60, stop=stop)(fail)
    assert calls == [0]


def test_stop_event_ends_wait_between_retries() -> None:
    stop = threading.Event()
    threading.Timer(0.05, stop.set).start()

    def fail() -> None:
        raise RetriableError("no broker responds")

    started = time.monotonic()
    with pytest.raises(RetriableError):
        retrying(60, interval_s=60, stop=stop)(fail)
    assert time.monotonic() - started < 10


def test_polling_ends_when_function_returns_true() -> None:
    results = [False, False, True, True]

    assert polling(60, interval_s=0.001, stop=threading.Event())(lambda: results.pop(0)) is True
    assert results == [True]


def test_polling_returns_false_after_timeout() -> None:
    assert polling(0.05, interval_s=0.01, stop=threading.Event())(lambda: False) is False


def test_polling_raises_error_of_function() -> None:
    def fail() -> bool:
        raise RetriableError("no broker responds")

    with pytest.raises(RetriableError):
        polling(60, interval_s=0.001, stop=threading.Event())(fail)
