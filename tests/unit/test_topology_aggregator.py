"""The compiled aggregations of records call the same functions with the same results as those in Python."""

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
from zkconsumer.topology.processor import Remembered
from zkconsumer.topology.stores import ValueAndTimestamp, Windowed
from zkconsumer.version import IS_PURE

pytestmark = pytest.mark.skipif(IS_PURE, reason="ZKCONSUMER_PURE=1 is set: there is no compiled aggregation")

MAX = (1 << 63) - 1
VALUES = (None, None, 0, 1, -1, MAX, MAX + 1, 2.5, "text")
TIMES = (0, 5, 7, MAX)


class Side:
    """The functions of an aggregation, whose results depend on random numbers, and a log of their calls."""

    times: tuple[int, ...] = TIMES

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
            self.run_once()
        return self.log

    def run_once(self) -> None:
        key, value = self.rng.choice((None, "a", b"b")), self.rng.choice(VALUES)
        headers = self.rng.choice(((), [("h", b"x")]))
        record = self.record_type(key, value, self.rng.choice(self.times), headers)
        try:
            self.log.append(self.aggregator(record))
        except (ValueError, TypeError, OverflowError) as error:
            self.log.append((type(error), str(error)))


class WindowSide(Side):
    """The functions of an aggregation by window."""

    def __init__(self, record_type: type, aggregator_type: type, seed: int) -> None:
        self.rng, self.record_type, self.log = random.Random(seed), record_type, list[Any]()
        rng = self.rng
        self.observed = Remembered(rng.choice((-1, -1, 0, 6)))
        size = rng.choice((1, 3, 10, 10, MAX))
        advance = size if size == MAX else rng.choice((size, rng.randint(1, size)))
        self.aggregator: Any = aggregator_type(
            (partial(self.call, "get"), partial(self.call, "put")),
            (partial(self.call, "initialize"), None if rng.random() < 0.4 else partial(self.call, "add")),
            (ValueAndTimestamp, TableChange, Windowed),
            (partial(self.call, "forward") if rng.random() < 0.5 else None, rng.random() < 0.5),
            (partial(self.call, "drop"), partial(self.call, "drop closed")),
            (self.observed, size, advance, rng.choice((0, 0, 2, MAX))),
        )
        self.times = (0, 2, 5, 7, 11, 13, *((MAX,) if size == MAX else ()))

    def run(self) -> list[Any]:
        aggregate = self.aggregator
        for number in range(50):
            if number % 2:
                self.aggregator = lambda record: aggregate.update(record, self.rng.choice((-1, 0, 8, 12, MAX)))
            else:
                self.aggregator = aggregate
            self.run_once()
            self.log.append(self.observed.value)
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


@pytest.mark.parametrize("seed", range(200))
def test_random_calls_with_windows_have_equal_results(seed: int) -> None:
    compiled = WindowSide(loop.Record, loop.WindowAggregator, seed).run()
    assert compiled == WindowSide(loop_py.Record, aggregator_py.WindowAggregator, seed).run()


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


def create_window_aggregator(
    get: Callable[..., Any],
    *,
    sizes: tuple[int, int, int] = (5, 5, 0),
    pair: Any = ValueAndTimestamp,
    module: Any = loop,
) -> Any:
    types, windows = (pair, TableChange, Windowed), (Remembered(-1), *sizes)
    return module.WindowAggregator((get, print), (int, None), types, (None, False), (repr, print), windows)


def test_wrong_argument_and_result_of_windows_are_rejected() -> None:
    with pytest.raises(TypeError, match="record must be a Record, got"):
        create_window_aggregator(print)("text")
    with pytest.raises(TypeError, match="record must be a Record, got"):
        create_window_aggregator(print).update("text", 5)
    with pytest.raises(TypeError, match=r"fetch\(\) must return a ValueAndTimestamp or None, got"):
        create_window_aggregator(lambda *_: "text")(loop.Record("k", "v", 0))
    with pytest.raises(TypeError, match="subclasses of tuple"):
        create_window_aggregator(print, pair=int)


@pytest.mark.parametrize("module", [loop, aggregator_py])
def test_invalid_windows_are_rejected(module: Any) -> None:
    for sizes in ((0, 0, 0), (5, 0, 0), (5, 6, 0), (5, 5, -1)):
        with pytest.raises(ValueError, match="windows must have a positive size"):
            create_window_aggregator(print, sizes=sizes, module=module)
    for sizes in ((MAX + 1, 1, 0), (5, 5, MAX + 1)):
        with pytest.raises(OverflowError):
            create_window_aggregator(print, sizes=sizes, module=module)


def test_window_aggregator_in_cycle_is_collected() -> None:
    class Owner:
        def __init__(self) -> None:
            self.process = create_window_aggregator(self.get)

        def get(self, _key: Any, _start: int) -> None:
            """Return None."""

    owner = weakref.ref(Owner())
    gc.collect()
    assert owner() is None
