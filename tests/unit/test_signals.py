"""Tests of the handler that raises an exception at the first signal that ends a program."""

from __future__ import annotations

import ctypes
import gc
import signal
import sys
import weakref
from collections.abc import Callable, Iterator

import pytest
from waiting import wait_for

from zkconsumer.signals import END_SIGNALS, Exit, FirstSignal, Interrupt, handle_end_signals


@pytest.fixture
def first() -> Iterator[FirstSignal]:
    before = {number: signal.getsignal(number) for number in END_SIGNALS}
    hook = sys.unraisablehook
    for number in END_SIGNALS:  # test processes of pytest-xdist ignore SIGINT
        signal.signal(number, signal.SIG_DFL)
    first = FirstSignal(lambda _number: Interrupt())
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

    with pytest.raises(Interrupt):
        run()
    assert first.number == number
    assert capsys.readouterr().err == "", "the exception is not reported as ignored"


def test_signal_is_repeated_until_exception_is_raised(first: FirstSignal) -> None:
    def run() -> None:
        in_del(lambda: signal.raise_signal(signal.SIGTERM))
        for _ in range(3):
            in_del(lambda: wait_for(lambda: False))  # the repeated call arrives here
        wait_for(lambda: False)

    with pytest.raises(Interrupt):
        run()
    assert first.number == signal.SIGTERM


def test_other_discarded_exceptions_are_reported(first: FirstSignal, monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: reported.append(unraisable.exc_type))
    FirstSignal(lambda _number: Exit(1))
    in_del(lambda: int("x"))

    assert reported == [ValueError]
    assert first.number is None


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
        except Interrupt:
            send_all()
            raise OSError("other") from None

    with pytest.raises(OSError, match="other"):
        run()
    assert first.number == signal.SIGHUP


def test_later_signal_is_raised_if_first_was_swallowed(first: FirstSignal) -> None:
    for _ in range(3):
        try:
            signal.raise_signal(signal.SIGTERM)
        except BaseException:
            continue
        pytest.fail("the signal had no effect")
    first.close()
    signal.raise_signal(signal.SIGTERM)
