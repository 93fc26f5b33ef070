"""Tests of the signals that stop an application."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from zkconsumer.signals import END_SIGNALS
from zkconsumer.spark.streams.app import handling_signals


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in END_SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("first", END_SIGNALS)
@pytest.mark.parametrize("second", END_SIGNALS)
def test_further_signals_have_no_effect(first: signal.Signals, second: signal.Signals) -> None:
    before = {number: signal.getsignal(number) for number in END_SIGNALS}
    with handling_signals() as stop:
        assert not stop.has_arrived
        signal.raise_signal(first)
        assert stop.has_arrived
        for _ in range(3):
            signal.raise_signal(second)

    assert {number: signal.getsignal(number) for number in END_SIGNALS} == before


@pytest.mark.parametrize("number", END_SIGNALS)
def test_ignored_signals_stay_ignored(number: signal.Signals) -> None:
    signal.signal(number, signal.SIG_IGN)
    with handling_signals() as stop:
        signal.raise_signal(number)
        assert not stop.has_arrived
    assert signal.getsignal(number) is signal.SIG_IGN
