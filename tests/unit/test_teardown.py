"""Tests of the helper that stops what fixtures started."""

from __future__ import annotations

import pytest
from helpers.teardown import started


def test_last_started_is_stopped_first() -> None:
    stopped: list[str] = []
    with started(str.upper, stopped.append) as start:
        assert [start("a"), start("b")] == ["A", "B"]
        assert stopped == []
    assert stopped == ["B", "A"]


def test_failed_stop_does_not_prevent_others() -> None:
    stopped: list[int] = []

    def stop(number: int) -> None:
        stopped.append(number)
        if number == 2:
            raise ValueError("cannot stop")

    def run() -> None:
        with started(int, stop) as start:
            for text in "123":
                start(text)

    with pytest.raises(ValueError, match="cannot stop"):
        run()
    assert stopped == [3, 2, 1]


def test_error_in_block_stops_all() -> None:
    stopped: list[int] = []

    def run() -> None:
        with started(int, stopped.append) as start:
            start("1")
            raise KeyError

    with pytest.raises(KeyError):
        run()
    assert stopped == [1]
