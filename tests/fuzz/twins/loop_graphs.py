"""Random calls of ``run_rows`` with nodes that fail or change what it reads."""

from __future__ import annotations

import random
import struct
from array import array
from collections.abc import Callable
from functools import partial
from typing import Any

from zkconsumer.errors import StreamsError
from zkconsumer.topology.serdes import Codec
from zkconsumer.topology.stores.time_map import Windowed

from ..child import Heap
from .sides import Calls, Side
from .values import I64_MAX, SERDES, StopError, Text, random_headers, random_object, random_timestamp

#: Results of the function that returns the number of partitions; see ``Graph``.
COUNTS = (None, None, None, 1, 3, 8, 1000, (1 << 31) - 1, 0, -1, 1 << 31, True, 2.0, "3", ValueError, StopError)


class Window(Windowed):
    """A subclass of ``Windowed``, for which the fallback function of a sink is called."""

    __slots__ = ()


class Graph:
    """Nodes of one implementation, which do what a plan says.

    Args:
        side: the implementation.
        plans: actions of each processor.
        sinks: topic and codecs of each sink, and the number of partitions of its topic: None to let the producer
            select the partition, or an exception to raise.
        columns: keys, values, timestamps and headers.
    """

    def __init__(self, side: Side, plans: list[list[Any]], sinks: list[Any], columns: list[Any]) -> None:
        self.side, self.columns = side, columns
        module = side.module
        self.state, self.output = module.RunState(), module.OutputColumns()
        self.state.is_processing = True
        self.taken: list[Any] = []
        self.guards: list[Any] = []
        self.lists: list[list[Any]] = []
        below = [
            module.SinkWriter(
                self.output, *sink, self._otherwise, None if count is None else partial(self._count, count)
            )
            for *sink, count in sinks
        ]
        for number, plan in enumerate(plans):
            children = list(below)
            self.lists.append(children)
            forward = module.Forwarder(self.state, children, dict(zip("abc", children, strict=False)), self._reject)
            guard = module.Guarded(self._processor(number, plan, forward, children), self._on_error)
            self.guards.append(guard)
            below = [guard, *below[:1]] if number % 2 else [*below[:1], guard]
        self.children = below

    def run(self, row: int, stop: int, before_ms: int, due_ms: int) -> Any:
        """Process rows."""
        self.state.row, self.state.due_ms = row, due_ms
        return self.side.module.run_rows(self.state, tuple(self.columns), stop, before_ms, self.children)

    def result(self) -> Any:
        """Return everything that can be observed."""
        state = self.state
        outputs = [*self.taken, self.output]
        return [
            self.side.trace,
            [guard.calls for guard in self.guards],
            (state.row, state.partition_time_ms, state.stream_time_ms, state.due_ms, state.is_processing),
            [(len(o), o.rows(), o.buffers(), list(o.topics.items()), list(o.headers.items())) for o in outputs],
        ]

    def _otherwise(self, record: Any) -> None:
        self.side.trace.append(("otherwise", self.side.plain(record)))

    def _count(self, count: Any, topic: str) -> Any:
        self.side.trace.append(("count", topic))
        if isinstance(count, type):
            raise count("planned")
        return count

    def _reject(self, record: Any, child: Any) -> None:
        raise StreamsError(f"rejected {self.side.plain(record)!r} {self.side.plain(child)!r}")

    def _on_error(self, record: Any, error: Exception) -> None:
        self.side.trace.append(("error", self.side.plain(record), type(error).__name__, self.side.text(error)))
        if len(self.side.trace) % 3 == 0:
            raise StreamsError("the handler failed")

    def _processor(self, number: int, plan: list[Any], forward: Any, children: list[Any]) -> Callable[[Any], None]:
        calls = iter(plan)

        def process(record: Any) -> None:
            self.side.trace.append((number, self.side.plain(record)))
            for name, argument in next(calls, [("forward", None)]):
                self._act(name, argument, record, forward, children)

        return process

    def _act(self, name: str, argument: Any, record: Any, forward: Any, children: list[Any]) -> None:
        match name:
            case "forward":
                forward(record)
            case "child":
                forward(record, argument)
            case "keyword":
                forward(record=record, child=argument)
            case "changed":
                forward(getattr(record, argument[0])(argument[1]))
            case "object":
                forward(argument)
            case "raise":
                raise argument("planned")
            case "due":
                self.state.due_ms = argument
            case "time":
                self.state.stream_time_ms = argument
            case "stop":
                self.state.is_processing = not self.state.is_processing
            case "shorten":
                del self.columns[argument][1:]
            case "clear":
                self.lists[argument % len(self.lists)].clear()
            case "drop-children":
                del self.children[0:1]
                self.guards.clear()
            case "take":
                self.taken.append(self.output.take())
            case "assign":
                setattr(record, *argument)
            case "delete":
                delattr(record, argument)
            case "descriptor":
                getattr(type(record), argument).__delete__(record)
            case "again":
                self.run(0, 1, 0, I64_MAX)


def process_rows(calls: Calls) -> None:
    """Process rows with nodes that do unexpected things."""
    rng = calls.rng
    rows = rng.choice((1, 2, 5, 70))
    is_wild = rng.random() < 0.4
    plans = [[_random_actions(rng, is_wild) for _ in range(rows)] for _ in range(rng.randrange(3))]
    sinks = [
        (rng.choice(("out", "other", Text("out"))), _random_codec(rng), rng.choice((*SERDES,)), rng.choice(COUNTS))
        for _ in range(rng.randrange(3))
    ]
    keys, values = ([random_object(rng) for _ in range(rows + rng.randrange(2))] for _ in range(2))
    if rng.random() < 0.4:
        keys = [_random_window(rng, key) if rng.random() < 0.9 else key for key in keys]
    timestamps = [rng.randrange(rng.choice((3, 1_000))) for _ in range(rows - (rng.random() < 0.1))]
    if rng.random() < 0.1 and timestamps:
        timestamps[rng.randrange(len(timestamps))] = random_timestamp(rng)
    form = rng.randrange(4) if all(type(t) is int and -1 <= t <= I64_MAX for t in timestamps) else 0
    headers = None if rng.random() < 0.5 else [random_headers(rng) for _ in range(rows - (rng.random() < 0.1))]
    runs = [
        (rng.choice((0, 0, 0, 1, -1, rows)), rng.choice((rows, rows, rows + 1, 1)), *_random_times(rng))
        for _ in range(3)
    ]
    heap = Heap()

    def call(side: Side) -> Any:
        times: Any = list(timestamps)
        if form == 1:
            times = heap.take(struct.pack(f"={len(times)}q", *times)).cast("q")
        elif form == 2:
            times = tuple(times)
        elif form == 3:
            times = array("q", times)
        columns = [list(keys), list(values), times, None if headers is None else list(headers)]
        graph = Graph(side, plans, sinks, columns)
        results = [side.outcome(lambda run=run: graph.run(*run)) for run in runs]  # type: ignore[misc]
        if form == 1:
            times.release()
        return [results, graph.result()]

    calls.compare(call)
    heap.release()


def _random_codec(rng: random.Random) -> int:
    """Return a codec for the keys of a sink."""
    codec: int = rng.choice((*Codec, 99))
    return (
        codec
        if rng.random() < 0.6
        else rng.choice((*SERDES,)) + rng.choice((Codec.TIME_WINDOWED, Codec.SESSION_WINDOWED))
    )


def _random_window(rng: random.Random, key: Any) -> Any:
    """Return a windowed key, or an object that resembles one."""
    times: Any = [rng.choice((0, 5, -1, I64_MAX, I64_MAX + 1, True, 2.5)) for _ in range(2)]
    return rng.choice((Windowed(key, *times), Windowed(key, 0, 5), Window(key, *times), (key, *times)))


def _random_times(rng: random.Random) -> tuple[int, int]:
    """Return before_ms and due_ms."""
    return rng.choice((I64_MAX, I64_MAX, -1, 2, 500)), rng.choice((I64_MAX, I64_MAX, 0, 2, 500))


def _random_actions(rng: random.Random, is_wild: bool) -> list[Any]:
    """Return what a processor does in one call."""
    actions: list[Any] = [("forward", None)]
    if rng.random() < 0.4:
        name = rng.choice(("with_key", "with_value", "with_headers", "with_timestamp"))
        argument = {"with_headers": random_headers(rng), "with_timestamp": random_timestamp(rng)}.get(
            name, random_object(rng)
        )
        actions.append(rng.choice((("changed", (name, argument)), ("child", rng.choice("abcd")), ("due", 3))))
    if is_wild and rng.random() < 0.3:
        actions.insert(
            rng.randrange(len(actions) + 1),
            rng.choice(
                (
                    ("raise", rng.choice((ValueError, StreamsError, KeyError, StopError))),
                    ("keyword", rng.choice((None, "a", "x"))),
                    ("child", rng.choice(([], Text("a"), 1))),
                    ("object", rng.choice((None, 1, "x", object))),
                    ("time", rng.choice((5, I64_MAX))),
                    ("stop", None),
                    ("shorten", rng.randrange(2)),
                    ("clear", rng.randrange(2)),
                    ("drop-children", None),
                    ("take", None),
                    ("assign", ("headers", rng.choice(((), None, [("a", b"")], 5, "x")))),
                    ("assign", (rng.choice(("key", "value")), random_object(rng))),
                    ("assign", ("timestamp", random_timestamp(rng))),
                    ("delete", rng.choice(("key", "headers"))),
                    ("descriptor", rng.choice(("key", "value"))),
                    ("again", None),
                )
            ),
        )
    return actions
