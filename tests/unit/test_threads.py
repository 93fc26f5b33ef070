"""Tests of threads with an owner."""

from __future__ import annotations

import threading

import pytest

from zkconsumer.threads import OwnedThread


def fail(error: BaseException) -> None:
    pytest.fail(f"the thread crashed: {error!r}")


def test_join_returns_whether_thread_ended() -> None:
    stop = threading.Event()
    thread = OwnedThread(stop.wait, "waiting", fail)
    thread.start()

    assert (thread.is_alive, thread.is_current, thread.join(0.01)) == (True, False, False)
    stop.set()
    assert (thread.join(10), thread.is_alive) == (True, False)


def test_join_before_start_returns_at_once() -> None:
    assert OwnedThread(lambda: None, "idle", fail).join(10)


def test_thread_can_join_itself() -> None:
    joined: list[object] = []
    thread = OwnedThread(lambda: joined.append((thread.is_current, thread.join(10))), "own", fail)
    thread.start()

    assert thread.join(10)
    assert joined == [(True, False)]


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(1)], ids=["Exception", "BaseException"])
def test_crash_is_reported_in_the_thread(error: BaseException) -> None:
    reported: list[tuple[str, BaseException]] = []

    def run() -> None:
        raise error

    thread = OwnedThread(run, "crashing", lambda e: reported.append((threading.current_thread().name, e)))
    thread.start()

    assert thread.join(10)
    assert reported == [("crashing", error)]
