"""Tests of the functions that applications pass to ``KafkaUtils`` streams."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from zkconsumer.spark.dstreams.arguments import with_two_arguments


class Sink:
    """Old jobs pass methods and objects."""

    def rdd(self, rdd: Any) -> Any:
        return "one", rdd

    def both(self, time: Any, rdd: Any) -> Any:
        return "two", time, rdd

    def both_and_default(self, time: Any, rdd: Any, table: str = "t") -> Any:
        return "two", time, rdd

    @staticmethod
    def static(rdd: Any) -> Any:
        return "one", rdd

    def __call__(self, rdd: Any) -> Any:
        return "one", rdd


def _save(table: str, rdd: Any) -> Any:
    return "one", rdd


@pytest.mark.parametrize(
    "func",
    [
        Sink().rdd,
        Sink().both,
        Sink().both_and_default,
        Sink.static,
        Sink(),
        functools.partial(_save, "t"),
        lambda rdd: ("one", rdd),
        lambda time, rdd: ("two", time, rdd),
        lambda time, rdd, table="t": ("two", time, rdd),
        lambda *arguments: ("two", *arguments),
        lambda rdd, *, table="t": ("one", rdd),
    ],
)
def test_functions_are_called_with_one_or_two_arguments(func: Any) -> None:
    assert with_two_arguments(func)("time", "rdd") in [("one", "rdd"), ("two", "time", "rdd")]  # type: ignore[arg-type]


def test_two_arguments_are_preferred_as_in_spark() -> None:
    """Spark passes the time to the first parameter, even if the second one has a default."""
    assert with_two_arguments(lambda first, second="x": (first, second))("time", "rdd") == ("time", "rdd")  # type: ignore[arg-type]


@pytest.mark.parametrize("func", [None, 5, lambda: None, lambda a, b, c: None, lambda *, rdd: None, "x"])
def test_other_functions_are_rejected(func: Any) -> None:
    with pytest.raises(TypeError, match="func should take one or two arguments, got"):
        with_two_arguments(func)
