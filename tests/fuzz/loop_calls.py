"""Random calls of the compiled loop of tasks and of that in Python, whose results and errors must be equal."""

from __future__ import annotations

import copy
import gc
import hashlib
import random
import struct
from array import array
from collections.abc import Callable
from types import ModuleType
from typing import Any

from zkconsumer.errors import StreamsError
from zkconsumer.topology.serdes import BYTES, DOUBLE, INTEGER, LONG, STRING, Codec, Serde

from .child import Heap

SERDES: dict[Codec, Serde] = {
    Codec.BYTES: BYTES,
    Codec.STRING: STRING,
    Codec.INTEGER: INTEGER,
    Codec.LONG: LONG,
    Codec.DOUBLE: DOUBLE,
}
I64_MAX = (1 << 63) - 1
NUMBERS = (0, 1, -1, (1 << 31) - 1, 1 << 31, -(1 << 31) - 1, I64_MAX, 1 << 63, -(1 << 63), -(1 << 63) - 1, 1 << 80)
TEXTS = ("", "text", "\u00e4\u20ac\U0001f600", "\ud800", "x" * 2_000)
TIMESTAMPS = (0, 1, 5, 9, I64_MAX, I64_MAX + 1, -1, True, None, 1.5, "1")
CORNERS_32 = (0, 1, 2, 3, 4, 5, 8, 100, (1 << 31) - 1, -1, -(1 << 31))


class Text(str):
    """Text whose type is not exactly ``str``."""


class Blob(bytes):
    """Bytes whose type is not exactly ``bytes``."""


class StopError(BaseException):
    """An error that no handler receives."""


def find_difference(left: Any, right: Any) -> tuple[Any, Any]:
    """Return the first parts of two results that are not equal."""
    if isinstance(left, list | tuple) and isinstance(right, list | tuple) and len(left) == len(right):
        for items in zip(left, right, strict=True):
            if items[0] != items[1]:
                return find_difference(*items)
    return left, right


class Side:
    """The objects of one implementation, and what they did.

    Args:
        module: the implementation.
    """

    def __init__(self, module: Any) -> None:
        self.module = module
        self.trace: list[Any] = []

    def outcome(self, call: Callable[[], Any]) -> Any:
        """Return the result of a call, or its error."""
        try:
            return self.plain(call())
        except (Exception, StopError) as error:
            if error.__cause__ is not None or (error.__context__ is not None and isinstance(error, StreamsError)):
                return type(error).__name__, str(error), type(error.__context__).__name__
            return type(error).__name__, self.text(error)

    @staticmethod
    def text(error: BaseException) -> str:
        """Return the message of an error; an empty one for errors whose text depends on the interpreter."""
        text = str(error).replace("zkconsumer.topology.records.", "")
        return "" if type(error) in (TypeError, BufferError) else text

    def plain(self, result: Any) -> Any:
        """Return a result in a form that can be compared with that of the other implementation."""
        match result:
            case self.module.Record():
                attributes = [self.plain(getattr(result, name, "missing")) for name in result.__match_args__]
                return ["Record", *attributes]
            case list() | tuple():
                return [self.plain(item) for item in result]
            case float():
                return struct.pack(">d", result)
            case bool() | int() | str() | bytes() | None:
                return type(result).__mro__[-2].__name__, result
        return type(result).__name__


class Graph:
    """Nodes of one implementation, which do what a plan says.

    Args:
        side: the implementation.
        plans: actions of each processor.
        sinks: topic and codecs of each sink.
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
        below = [module.SinkWriter(self.output, *sink, self._otherwise) for sink in sinks]
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


class LoopCalls:
    """Makes the same random calls of two implementations.

    Args:
        compiled: the compiled module.
        twin: the one in Python.
        rng: random numbers.

    Attributes:
        count: number of calls.
        digest: of the results.
    """

    def __init__(self, compiled: ModuleType, twin: ModuleType, rng: random.Random) -> None:
        self.modules = compiled, twin
        self.rng = rng
        self.count = 0
        self.digest = hashlib.blake2b(digest_size=8)

    def run(self, count: int) -> None:
        """Make calls.

        Raises:
            AssertionError: the implementations differ.
        """
        kinds = (self.records, self.graphs, self.graphs, self.outputs, self.column, self.negative, self.conversions)
        for _ in range(count):
            self.rng.choice((*kinds, self.finalizers))()

    def compare(self, call: Callable[[Side], Any]) -> None:
        """Call a function with both implementations."""
        self.count += 1
        results = []
        for module in self.modules:
            side = Side(module)
            results.append(side.outcome(lambda side=side: call(side)))  # type: ignore[misc]
        if results[0] != results[1]:
            raise AssertionError("{!r} instead of {!r}".format(*find_difference(*results)))
        self.digest.update(repr(results[0]).encode(errors="backslashreplace"))

    # ---- records ----

    def records(self) -> None:
        """Create, copy, change and compare records."""
        rng = self.rng
        arguments = self.object(), self.object(), self.timestamp(), self.headers()
        other = self.object()
        names = rng.choices(("key", "value", "timestamp", "headers", "absent"), k=4)
        actions = rng.choices(range(8), k=4)
        values = [rng.choice((self.object(), self.timestamp(), self.headers())) for _ in range(4)]

        def call(side: Side) -> Any:
            record = side.module.Record(*arguments)
            steps = []
            for action, name, value in zip(actions, names, values, strict=True):

                def step(action: int = action, name: str = name, value: Any = value) -> Any:
                    match action:
                        case 0:
                            return setattr(record, name, value)
                        case 1 if name != "absent":
                            return delattr(record, name)
                        case 2 if name in ("key", "value"):
                            return getattr(side.module.Record, name).__delete__(record)
                        case 3 | 4 if name != "absent":
                            return getattr(record, f"with_{name}")(value)
                        case 5:
                            return copy.copy(record)
                        case 6:
                            return record == side.module.Record(other, *arguments[1:])
                        case 7:
                            return record == copy.copy(record), record != copy.copy(record), record == 1
                    return record.__reduce__()[1]

                steps.append(side.outcome(step))
            return [steps, side.outcome(lambda: repr(record)), record]

        self.compare(call)

    # ---- nodes ----

    def graphs(self) -> None:
        """Process rows with nodes that do unexpected things."""
        rng = self.rng
        rows = rng.choice((1, 2, 5, 70))
        is_wild = rng.random() < 0.4
        plans = [[self.actions(is_wild) for _ in range(rows)] for _ in range(rng.randrange(3))]
        sinks = [
            (rng.choice(("out", "other", Text("out"))), rng.choice((*Codec, 99)), rng.choice((*SERDES,)))
            for _ in range(rng.randrange(3))
        ]
        keys, values = ([self.object() for _ in range(rows + rng.randrange(2))] for _ in range(2))
        timestamps = [rng.randrange(rng.choice((3, 1_000))) for _ in range(rows - (rng.random() < 0.1))]
        if rng.random() < 0.1 and timestamps:
            timestamps[rng.randrange(len(timestamps))] = self.timestamp()
        form = rng.randrange(4) if all(type(t) is int and -1 <= t <= I64_MAX for t in timestamps) else 0
        headers = None if rng.random() < 0.5 else [self.headers() for _ in range(rows - (rng.random() < 0.1))]
        runs = [
            (rng.choice((0, 0, 0, 1, -1, rows)), rng.choice((rows, rows, rows + 1, 1)), *self.times()) for _ in range(3)
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

        self.compare(call)
        heap.release()

    def times(self) -> tuple[int, int]:
        """Return before_ms and due_ms."""
        return self.rng.choice((I64_MAX, I64_MAX, -1, 2, 500)), self.rng.choice((I64_MAX, I64_MAX, 0, 2, 500))

    def actions(self, is_wild: bool) -> list[Any]:
        """Return what a processor does in one call."""
        rng = self.rng
        actions: list[Any] = [("forward", None)]
        if rng.random() < 0.4:
            name = rng.choice(("with_key", "with_value", "with_headers", "with_timestamp"))
            argument = {"with_headers": self.headers(), "with_timestamp": self.timestamp()}.get(name, self.object())
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
                        ("assign", (rng.choice(("key", "value")), self.object())),
                        ("assign", ("timestamp", self.timestamp())),
                        ("delete", rng.choice(("key", "headers"))),
                        ("descriptor", rng.choice(("key", "value"))),
                        ("again", None),
                    )
                ),
            )
        return actions

    def finalizers(self) -> None:
        """Let finalizers change the lists that the compiled loop reads; only memory errors are found."""
        module, rng = self.modules[0], self.rng
        self.count += 1
        keys: list[Any] = [[number] for number in range(20)]
        values: list[Any] = [[number] for number in range(20)]
        output = module.OutputColumns()
        records: list[Any] = []

        class Finalized:
            def __init__(self) -> None:
                self.cycle = self

            def __del__(self) -> None:
                keys[10:] = [[0] for _ in range(10)]
                output.take()
                for record in records:
                    record.key = [1]
                    record.headers = []

        def process(record: Any) -> None:
            records[:] = [record]
            record.headers = [("a", [b""])]
            Finalized()
            repr(record)
            record.with_value(Finalized())
            output.append("out", None, 1, b"k", b"v", (("a", b""),))
            output.rows()

        thresholds = gc.get_threshold()
        gc.set_threshold(rng.choice((1, 3, 10)))
        try:
            state = module.RunState()
            module.run_rows(state, (keys, values, list(range(20)), None), 20, I64_MAX, [process])
        except StreamsError:
            pass
        finally:
            gc.set_threshold(*thresholds)

    # ---- output ----

    def outputs(self) -> None:
        """Append rows to columns, also invalid ones."""
        rng = self.rng
        rows = [self.row() for _ in range(rng.choice((1, 10, 60)))]
        take_at = rng.randrange(60)

        def call(side: Side) -> Any:
            columns, results = side.module.OutputColumns(), []
            for number, row in enumerate(rows):
                results.append(side.outcome(lambda row=row: columns.append(*row)))  # type: ignore[misc]
                if number == take_at:
                    taken = columns.take()
                    results.append([len(taken), taken.rows(), taken.buffers(), list(taken.headers), list(taken.topics)])
            return [
                results,
                (len(columns), columns.rows(), columns.buffers()),
                list(columns.headers.items()),
                list(columns.topics.items()),
            ]

        self.compare(call)

    def row(self) -> list[Any]:
        """Return the arguments of ``append``."""
        rng = self.rng
        row: list[Any] = [
            rng.choice(("out", "other", Text("out"), f"t{rng.randrange(20)}")),
            rng.choice((None, 0, 1, (1 << 31) - 1)),
            rng.choice((0, 5, I64_MAX, -1)),
            rng.choice((None, b"", b"k", Blob(b"k"), rng.randbytes(rng.choice((3, 900))))),
            rng.choice((None, b"", b"v", rng.randbytes(rng.choice((3, 900))))),
            rng.choice(((), (("a", b""),), (("a", None), ("b", b"x")))),
        ]
        if rng.random() < 0.2:
            row[rng.randrange(6)] = rng.choice((None, 1, -1, 1 << 31, 1 << 64, "x", "\ud800", [], bytearray(b"x"), 1.5))
        return row

    # ---- Arrow arrays ----

    def column(self) -> None:
        """Read a column whose buffers are damaged or too short."""
        rng = self.rng
        codec = rng.choice((*SERDES, rng.choice((0, 6, 16, -1))))
        count, first = rng.choice((0, 1, 3, 9, 30)), rng.choice((0, 0, 1, 7, 8))
        sizes: dict[int, int] = {Codec.INTEGER: 4, Codec.LONG: 8, Codec.DOUBLE: 8}
        rows = []
        for _ in range(first + count):
            size = sizes.get(codec, rng.randrange(6))
            rows.append(b"a" * size if codec == Codec.STRING and rng.random() < 0.9 else rng.randbytes(size))
        ends = [0]
        for row in rows:
            ends.append(ends[-1] + len(row))
        data, valid = b"".join(rows), rng.randbytes((first + count + 7) // 8)
        offsets = struct.pack(f"={len(ends)}i", *ends)
        if rng.random() < 0.6:
            match rng.randrange(6):
                case 0:
                    ends[rng.randrange(len(ends))] = rng.choice((*CORNERS_32, ends[-1] + 1, ends[-1] + 4))
                    offsets = struct.pack(f"={len(ends)}i", *ends)
                case 1:
                    offsets = offsets[: rng.randrange(len(offsets) + 1)]
                case 2:
                    data = data[: rng.randrange(len(data) + 1)]
                case 3:
                    valid = valid[: rng.randrange(len(valid) + 1)]
                case 4:
                    first += rng.choice((1, -1, 8, I64_MAX - 90, -I64_MAX))
                case 5:
                    count += rng.choice((1, 2, 9, I64_MAX - 90, -1, -I64_MAX))
        heap = Heap()
        bits = None if rng.random() < 0.4 else heap.take(valid)
        views = bits, heap.take(offsets, rng.choice((0, 4))), heap.take(data, rng.randrange(5))
        if rng.random() < 0.05:
            views = bits, None, None  # type: ignore[assignment]

        self.compare(lambda side: side.module.read_column(codec, *views, first, count))
        heap.release()

    def negative(self) -> None:
        """Search a negative timestamp."""
        rng = self.rng
        times: Any = [rng.choice((0, 1, I64_MAX, 1 << 70)) for _ in range(rng.randrange(9))]
        if times and rng.random() < 0.5:
            times[rng.randrange(len(times))] = rng.choice((-1, -(1 << 70), *TIMESTAMPS))
        if all(type(time) is int and -(1 << 63) <= time <= I64_MAX for time in times) and rng.random() < 0.7:
            times = rng.choice((array("q", times), tuple(times), memoryview(array("q", times))))
        self.compare(lambda side: side.module.has_negative(times))

    # ---- objects ----

    def conversions(self) -> None:
        """Serialize and deserialize objects with a codec."""
        rng = self.rng
        codec = rng.choice((*SERDES,))
        value = self.object()
        data = rng.choice((None, Blob(b"1234"), "x", rng.randbytes(rng.choice((0, 3, 4, 8))), b"text", bytearray(4)))
        serde = SERDES[codec]

        def call(side: Side) -> Any:
            serialize = side.module.Serialize(codec, lambda value: serde.serialize("t", value))
            deserialize = side.module.Deserialize(codec, lambda data: serde.deserialize("t", data))
            results = [side.outcome(lambda: serialize(value)), side.outcome(lambda: deserialize(data))]
            return [*results, side.outcome(lambda: deserialize(serialize(value=value)))]

        self.compare(call)

    def object(self) -> Any:
        """Return a key or value."""
        rng = self.rng
        number = rng.choice((rng.randrange(100), *NUMBERS))
        return rng.choice(
            (
                None,
                number,
                number,
                bool(number % 2),
                float(rng.choice((0.0, -0.0, 1.5, "nan", "inf"))),
                rng.choice(TEXTS),
                f"text {number}",
                Text("x"),
                rng.randbytes(rng.choice((0, 1, 8, 1_500))),
                Blob(b"x"),
                [number],
            )
        )

    def timestamp(self) -> Any:
        """Return a timestamp, which can be invalid."""
        return self.rng.choice((self.rng.randrange(1_000), self.rng.randrange(1_000), *TIMESTAMPS))

    def headers(self) -> Any:
        """Return headers, which can be invalid."""
        return self.rng.choice(
            (None, (), [], [("a", b"x")], (("a", None), ["b", b""]), [("a", "x")], [("a",)], 5, "x", {"a": b""})
            if self.rng.random() < 0.2
            else (None, (), [("a", b"x")], (("a", None), ("b", b"")))
        )
