"""Tests of the handler that raises an exception at the first signal that ends a program."""

from __future__ import annotations

import ctypes
import gc
import signal
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator

import pytest
from helpers.waiting import wait_for

from zkconsumer.signals import END_SIGNALS, Exit, FirstSignal, handle_end_signals


@pytest.fixture
def first() -> Iterator[FirstSignal]:
    before = {number: signal.getsignal(number) for number in END_SIGNALS}
    hook = sys.unraisablehook
    for number in END_SIGNALS:  # test processes of pytest-xdist ignore SIGINT
        signal.signal(number, signal.SIG_DFL)
    first = FirstSignal(lambda _number: Exit(1))
    handle_end_signals(first)
    yield first
    for number, handler in before.items():
        signal.signal(number, handler)
    sys.unraisablehook = hook


class Callbacks:
    """An object whose finalizer calls a function. Python discards the exceptions of finalizers."""

    def __init__(self, call: Callable[[], object]) -> None:
        self.call = call

    def __del__(self) -> None:
        self.call()


def in_del(call: Callable[[], object]) -> None:
    Callbacks(call)


def in_del_with_other_exception(call: Callable[[], object]) -> None:
    def fail() -> None:
        try:
            call()
        finally:
            raise OSError

    Callbacks(fail)


def in_weakref_callback(call: Callable[[], object]) -> None:
    target = Callbacks(lambda: None)
    reference = weakref.ref(target, lambda _: call())
    del target
    assert reference() is None


def in_compiled_callback(call: Callable[[], object]) -> None:
    def callback() -> None:
        call()

    ctypes.CFUNCTYPE(None)(callback)()


def in_gc_callback(call: Callable[[], object]) -> None:
    def callback(phase: str, _info: object) -> None:
        if phase == "start":
            gc.callbacks.remove(callback)
            call()

    gc.callbacks.append(callback)
    gc.collect()


def swallow(number: int) -> None:
    try:
        signal.raise_signal(number)
    except BaseException:
        return
    pytest.fail("the signal had no effect")


PLACES = [in_del, in_del_with_other_exception, in_weakref_callback, in_compiled_callback, in_gc_callback]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("number", END_SIGNALS)
def test_signal_is_not_lost_in_callback(
    place: Callable[[Callable[[], object]], None],
    number: signal.Signals,
    first: FirstSignal,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def run() -> None:
        place(lambda: signal.raise_signal(number))
        wait_for(lambda: False)  # is interrupted

    with pytest.raises(Exit):
        run()
    assert first.number == number
    assert capsys.readouterr().err == "", "the exception is not reported as ignored"


def test_signal_is_repeated_until_exception_is_raised(first: FirstSignal) -> None:
    def run() -> None:
        in_del(lambda: signal.raise_signal(signal.SIGTERM))
        for _ in range(3):
            in_del(lambda: wait_for(lambda: False))  # the repeated call arrives here
        wait_for(lambda: False)

    with pytest.raises(Exit):
        run()
    assert first.number == signal.SIGTERM


def test_other_discarded_exceptions_are_reported(first: FirstSignal, monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: reported.append(unraisable.exc_type))
    swallow(signal.SIGTERM)
    in_del(lambda: int("x"))

    assert reported == [ValueError]


def test_later_signals_do_not_interrupt_cleanup(first: FirstSignal) -> None:
    def send_all() -> None:
        for number in END_SIGNALS * 3:
            signal.raise_signal(number)

    def clean_up() -> Iterator[None]:
        try:
            yield
        finally:
            send_all()

    def run() -> None:
        try:
            try:
                for _ in clean_up():
                    signal.raise_signal(signal.SIGHUP)
            finally:
                send_all()
        except Exit:
            send_all()
            raise OSError("other") from None

    with pytest.raises(OSError, match="other"):
        run()
    assert first.number == signal.SIGHUP


def test_later_signals_are_ignored_if_first_was_swallowed(first: FirstSignal) -> None:
    swallow(signal.SIGTERM)
    for number in END_SIGNALS:
        signal.raise_signal(number)
    assert first.number == signal.SIGTERM


def test_error_that_cleanup_discards_does_not_repeat_signal(
    first: FirstSignal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The discarded error has the exception of the signal as its context."""
    reported: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: reported.append(unraisable.exc_type))
    try:
        signal.raise_signal(signal.SIGTERM)
    except Exit:
        in_del(lambda: int("x"))
        with pytest.raises(AssertionError):
            wait_for(lambda: False, timeout=0.1)
    assert reported == [ValueError]


def test_discarded_error_may_have_itself_as_context(first: FirstSignal, monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: reported.append(unraisable.exc_type))

    def fail() -> None:
        a, b = KeyError(), ValueError()
        a.__context__, b.__context__ = b, a
        raise a

    swallow(signal.SIGTERM)
    in_del(fail)

    assert reported == [KeyError]


def test_hook_is_restored(first: FirstSignal) -> None:
    before = sys.unraisablehook
    for _ in range(3):
        FirstSignal(lambda _number: Exit(1))
    assert sys.unraisablehook is before
    swallow(signal.SIGTERM)
    assert sys.unraisablehook is not before
    first.close()
    assert sys.unraisablehook is before


def test_hook_of_other_code_is_kept(first: FirstSignal, monkeypatch: pytest.MonkeyPatch) -> None:
    def hook(_unraisable: object) -> None:
        pass

    swallow(signal.SIGTERM)
    monkeypatch.setattr(sys, "unraisablehook", hook)
    first.close()
    assert sys.unraisablehook is hook


_PROGRAM = """
import atexit, contextlib, os, signal, time
from zkconsumer.devcluster.cluster import raise_on_sigterm

def send():
    os.kill(os.getpid(), signal.SIGTERM)

def clean_up():
    send()
    time.sleep(0.1)
    print("cleaned up", flush=True)

raise_on_sigterm()
{statements}
"""


@pytest.mark.parametrize(
    "statements",
    [
        "atexit.register(clean_up); send()",
        "atexit.register(clean_up)\nwith contextlib.suppress(SystemExit): send()",
        "with contextlib.suppress(SystemExit): send()\nclean_up()",
        # The first exit function is interrupted; Python discards the exception, and calls the second one.
        "atexit.register(clean_up); atexit.register(send)",
    ],
    ids=["exit", "normal exit", "swallowed", "signal at exit"],
)
def test_cleanup_is_not_interrupted_when_exception_no_longer_exists(statements: str) -> None:
    program = _PROGRAM.format(statements=statements)
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, timeout=60, check=False)

    assert done.stdout == "cleaned up\n"
