"""Random calls of the functions that convert columns and objects."""

from __future__ import annotations

import random
import struct
from array import array
from typing import Any

from zkconsumer.topology.serdes import Codec

from ..child import Heap
from .sides import Calls, Side
from .values import I64_MAX, SERDES, TIMESTAMPS, Blob, Text, random_object

CORNERS_32 = (0, 1, 2, 3, 4, 5, 8, 100, (1 << 31) - 1, -1, -(1 << 31))


def append_rows(calls: Calls) -> None:
    """Append rows to columns, also invalid ones."""
    rng = calls.rng
    rows = [_random_row(rng) for _ in range(rng.choice((1, 10, 60)))]
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

    calls.compare(call)


def _random_row(rng: random.Random) -> list[Any]:
    """Return the arguments of ``append``."""
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


def read_columns(calls: Calls) -> None:
    """Read a column whose buffers are damaged or too short."""
    rng = calls.rng
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

    calls.compare(lambda side: side.module.read_column(codec, *views, first, count))
    heap.release()


def search_negative_timestamp(calls: Calls) -> None:
    """Search a negative timestamp."""
    rng = calls.rng
    times: Any = [rng.choice((0, 1, I64_MAX, 1 << 70)) for _ in range(rng.randrange(9))]
    if times and rng.random() < 0.5:
        times[rng.randrange(len(times))] = rng.choice((-1, -(1 << 70), *TIMESTAMPS))
    if all(type(time) is int and -(1 << 63) <= time <= I64_MAX for time in times) and rng.random() < 0.7:
        times = rng.choice((array("q", times), tuple(times), memoryview(array("q", times))))
    calls.compare(lambda side: side.module.has_negative(times))


def convert_objects(calls: Calls) -> None:
    """Serialize and deserialize objects with a codec."""
    rng = calls.rng
    codec = rng.choice((*SERDES,))
    value = random_object(rng)
    data = rng.choice((None, Blob(b"1234"), "x", rng.randbytes(rng.choice((0, 3, 4, 8))), b"text", bytearray(4)))
    serde = SERDES[codec]

    def call(side: Side) -> Any:
        serialize = side.module.Serialize(codec, lambda value: serde.serialize("t", value))
        deserialize = side.module.Deserialize(codec, lambda data: serde.deserialize("t", data))
        results = [side.outcome(lambda: serialize(value)), side.outcome(lambda: deserialize(data))]
        return [*results, side.outcome(lambda: deserialize(serialize(value=value)))]

    calls.compare(call)
