"""Tests of threads with an owner, and of calls that signal handlers cannot interrupt."""

from __future__ import annotations

import inspect
import signal
import subprocess
import sys
import threading
import time
from functools import partial

import pytest
from helpers.interrupts import interrupt_at
from helpers.threads import in_thread
from helpers.waiting import wait_for

from zkconsumer import threads
from zkconsumer.threads import OwnedThread, WakeUp, run_protected


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


# ---- WakeUp ------------------------------------------------------------------------------------------------


def test_wake_up_ends_current_and_next_wait() -> None:
    wake_up = WakeUp()
    waiting = in_thread(lambda: wake_up.wait(60))

    wake_up.set()
    assert waiting.result()
    for _ in range(3):
        wake_up.set()
    assert wake_up.wait()

    started = time.monotonic()
    assert not wake_up.wait(0.01), "several calls of set() end one wait"
    assert time.monotonic() - started >= 0.01


def test_cleared_wake_up_waits() -> None:
    wake_up = WakeUp()
    wake_up.clear()
    assert not wake_up.wait(0)
    wake_up.set()
    wake_up.clear()
    assert not wake_up.wait(0)
    wake_up.set()
    assert wake_up.wait(0)


def test_wake_up_can_be_set_at_any_instruction() -> None:
    number, is_interrupted = 0, True
    while is_interrupted:
        number += 1
        wake_up = WakeUp()
        files = [inspect.getfile(threads)]
        is_interrupted = interrupt_at(
            number, partial(wake_up.wait, 0.01), files, event="opcode", handle=lambda: WakeUp.set(wake_up)
        )
        is_interrupted &= interrupt_at(number, wake_up.set, files, event="opcode", handle=lambda: WakeUp.set(wake_up))
    assert number > 5


# ---- calls that are not interrupted --------------------------------------------------------------------------


def test_protected_call_returns_result_or_raises_error() -> None:
    assert run_protected(lambda: threading.current_thread().name, "zkconsumer-test") == "zkconsumer-test"
    with pytest.raises(ValueError, match="x"):
        run_protected(lambda: int("x"), "zkconsumer-test")


def test_protected_call_in_own_thread_runs_there() -> None:
    """Otherwise, it would wait for a thread that waits for the calling thread, or for a lock that this thread holds."""

    def nested() -> tuple[threading.Thread, threading.Thread]:
        return threading.current_thread(), run_protected(threading.current_thread, "inner")

    outer, inner = run_protected(nested, "outer")
    assert inner is outer
    found: list[threading.Thread] = []
    owned = OwnedThread(lambda: found.append(run_protected(threading.current_thread, "inner")), "owned", fail)
    owned.start()
    assert owned.join(10)
    assert [thread.name for thread in found] == ["owned"]


def test_protected_call_ends_after_interrupt_anywhere() -> None:
    """Where the interrupt precedes the start of the call, or follows its end, there is nothing to protect."""
    number, is_interrupted, outcomes = 0, True, set()
    while is_interrupted:
        number += 1
        steps: list[str] = []

        def call(steps: list[str] = steps) -> None:
            steps.append("started")
            time.sleep(0.005)
            steps.append("ended")

        def run(steps: list[str] = steps, call: object = call) -> None:
            try:
                run_protected(call, "zkconsumer-test")  # type: ignore[arg-type]
            except KeyboardInterrupt:
                steps.append("interrupted")
                raise

        files = [inspect.getfile(threads)]
        is_interrupted = interrupt_at(number, run, files, event="opcode")
        outcomes.add(tuple(steps))
    assert outcomes == {("started", "ended"), ("started", "ended", "interrupted"), ("interrupted",)}
    assert number > 100


_MANY_SIGNALS = """
import os, signal, sys, threading, time
from zkconsumer.threads import run_protected

def handle(number, _frame):
    sys.exit(int(number))

def close():
    print("closing", flush=True)
    for _ in range(50):
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGHUP)
        time.sleep(0.001)
    {statement}
    print("closed", flush=True)

for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, handle)
try:
    run_protected(close, "close")
finally:
    print(all(signal.getsignal(n) is handle for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)), flush=True)
"""


@pytest.mark.parametrize(("statement", "output"), [("pass", "closing\nclosed\nTrue\n"), ("1 / 0", "closing\nTrue\n")])
def test_first_of_many_signals_is_raised_after_the_end(statement: str, output: str) -> None:
    program = _MANY_SIGNALS.format(statement=statement)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)

    assert done.stdout == output, done.stderr
    assert done.returncode in (1, 2, 15), done.stderr
    assert "Traceback" not in done.stderr


def test_handler_that_does_not_raise_runs_during_protected_call() -> None:
    called: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _frame: called.append(number))
    try:
        main = threading.get_ident()
        threading.Timer(0.05, signal.pthread_kill, [main, signal.SIGUSR1]).start()
        run_protected(lambda: wait_for(lambda: called), "zkconsumer-test")
        signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert called == [signal.SIGUSR1] * 2
