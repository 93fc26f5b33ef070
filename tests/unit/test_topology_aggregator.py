"""The compiled aggregation of records calls the same functions with the same results as that in Python."""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from zkconsumer.topology.dsl.table_store import TableChange
from zkconsumer.topology.loop import aggregator_py, loop_py
from zkconsumer.topology.loop import native as loop
from zkconsumer.topology.stores import ValueAndTimestamp
from zkconsumer.version import IS_PURE

pytestmark = pytest.mark.skipif(IS_PURE, reason="ZKCONSUMER_PURE=1 is set: there is no compiled aggregation")

MAX = (1 << 63) - 1
VALUES = (None, None, 0, 1, -1, MAX, MAX + 1, 2.5, "text")
TIMES = (0, 5, 7, MAX)


class Side:
    """The functions of an aggregation, whose results depend on random numbers, and a log of their calls."""

    def __init__(self, record_type: type, aggregator_type: type, seed: int) -> None:
        self.rng, self.record_type, self.log = random.Random(seed), record_type, list[Any]()
        rng = self.rng
        has_initializer = rng.random() < 0.7
        counts = has_initializer and rng.random() < 0.4
        self.aggregator: Any = aggregator_type(
            (partial(self.call, "get"), partial(self.call, "put")),
            (
                partial(self.call, "initialize") if has_initializer else None,
                None if counts else partial(self.call, "add"),
            ),
            ValueAndTimestamp,
            (partial(self.call, "forward") if rng.random() < 0.5 else None, TableChange, rng.random() < 0.5),
            partial(self.call, "drop"),
        )

    def call(self, name: str, *arguments: Any) -> Any:
        self.log.append((name, *map(describe, arguments)))
        if self.rng.random() < 0.03:
            raise ValueError("planned")
        if name == "get":
            value = self.rng.choice(VALUES)
            return self.rng.choice((None, ValueAndTimestamp(value, self.rng.choice(TIMES))))
        return self.rng.choice(VALUES)

    def run(self) -> list[Any]:
        for _ in range(50):
            key, value = self.rng.choice((None, "a", b"b")), self.rng.choice(VALUES)
            headers = self.rng.choice(((), [("h", b"x")]))
            record = self.record_type(key, value, self.rng.choice(TIMES), headers)
            try:
                self.log.append(self.aggregator(record))
            except (ValueError, TypeError, OverflowError) as error:
                self.log.append((type(error), str(error)))
        return self.log


def describe(argument: Any) -> Any:
    if isinstance(argument, (loop.Record, loop_py.Record)):
        value, headers = argument.value, list(argument.headers)
        return argument.key, value, argument.timestamp, headers, type(value), hash(value)
    return argument, type(argument), hash(argument)


@pytest.mark.parametrize("seed", range(200))
def test_random_calls_have_equal_results(seed: int) -> None:
    compiled = Side(loop.Record, loop.RecordAggregator, seed).run()
    assert compiled == Side(loop_py.Record, aggregator_py.RecordAggregator, seed).run()


@pytest.mark.parametrize(
    "arguments",
    [
        ((), (None, None), ValueAndTimestamp, (None, TableChange, False), int),
        ((int, int), (None, None), int, (None, TableChange, False), int),
        ((int, int), (None, None), ValueAndTimestamp, (None, str, False), int),
    ],
)
def test_invalid_arguments_are_rejected(arguments: Any) -> None:
    with pytest.raises(TypeError):
        loop.RecordAggregator(*arguments)


def test_wrong_argument_and_result_are_rejected() -> None:
    def create(get: Callable[[Any], Any]) -> Any:
        functions = (get, print), (int, None), ValueAndTimestamp, (None, TableChange, False), repr
        return loop.RecordAggregator(*functions)

    with pytest.raises(TypeError, match="record must be a Record, got"):
        create(lambda _: None)("text")
    with pytest.raises(TypeError, match="must return a ValueAndTimestamp or None, got"):
        create(lambda _: "text")(loop.Record("k", "v", 0))


def test_aggregator_in_cycle_is_collected() -> None:
    class Owner:
        def __init__(self) -> None:
            functions = (self.get, print), (int, None), ValueAndTimestamp, (None, TableChange, False), repr
            self.process = loop.RecordAggregator(*functions)

        def get(self, _key: Any) -> None:
            """Return None."""

    owner = weakref.ref(Owner())
    gc.collect()
    assert owner() is None
