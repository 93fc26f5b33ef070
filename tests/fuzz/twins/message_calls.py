"""Random calls of the compiled messages and of those in Python, whose results and errors must be equal."""

from __future__ import annotations

import contextlib
import gc
import random
import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ..child import Heap
from .sides import Calls, Side
from .values import StopError

NAMES = ("topic", "partition", "offset", "key", "value", "timestamp", "timestamp_type", "headers")
STEPS = ("popleft",) * 4 + ("next",) * 4 + ("read",) * 6 + ("drop",) * 2 + ("peek", "pop", "compare", "values", "keep")
RARE_STEPS = ("clear", "offset", "release", "replace", "create", "hash")


def binary_column(values: Sequence[bytes | None]) -> list[bytes]:
    """Return offsets, validity bits and data of a column."""
    ends, validity = [0], bytearray((len(values) + 7) // 8)
    for row, value in enumerate(values):
        ends.append(ends[-1] + len(value or b""))
        validity[row >> 3] |= (value is not None) << (row & 7)
    return [struct.pack(f"={len(ends)}i", *ends), bytes(validity), b"".join(value or b"" for value in values)]


class Columns:
    """Buffers of random records.

    Args:
        rng: random numbers.
    """

    def __init__(self, rng: random.Random) -> None:
        self.rows = rows = rng.choice((0, 1, 2, 3, 8, 17))
        numbers = [[rng.choice((row, 0, -1, 1 << 62)) for row in range(rows)] for _ in range(2)]
        kinds = [rng.choice((-1, 0, 1, 7, -8)) for _ in range(rows)]
        keys, values = ([self._bytes(rng) for _ in range(rows)] for _ in range(2))
        fixed = [struct.pack(f"={rows}q", *column) for column in numbers] + [struct.pack(f"={rows}i", *kinds)]
        self.columns = [*fixed, *binary_column(keys), *binary_column(values)]
        self.headers: list[bytes] | None = None
        if rng.random() < 0.5:
            counts = [rng.choice((0, 0, 1, 3)) for _ in range(rows)]
            ends = [sum(counts[:row]) for row in range(rows + 1)]
            names, contents = ([self._bytes(rng) for _ in range(ends[-1])] for _ in range(2))
            lists = [struct.pack(f"={len(ends)}i", *ends), bytes((rows + 7) // 8)]
            self.headers = [*lists, *binary_column([name or b"" for name in names]), *binary_column(contents)]

    @staticmethod
    def _bytes(rng: random.Random) -> bytes | None:
        return rng.choice((None, b"", b"x", b"\xff\x00", rng.randbytes(rng.randrange(40))))

    def damage(self, rng: random.Random) -> None:
        """Change offsets, or remove the end of buffers."""
        buffers = [self.columns, self.headers or self.columns]
        for _ in range(rng.randrange(1, 4)):
            chosen = rng.choice(buffers)
            at = rng.randrange(len(chosen))
            if rng.random() < 0.5:
                chosen[at] = chosen[at][: rng.choice((0, max(0, len(chosen[at]) - rng.choice((1, 4, 8)))))]
            elif len(chosen[at]) >= 4:
                data = bytearray(chosen[at])
                number = rng.choice((-1, 1, 7, 1 << 30, -(1 << 30), rng.randrange(50)))
                struct.pack_into("=i", data, 4 * rng.randrange(len(data) // 4), number)
                chosen[at] = bytes(data)


class Block:
    """Rows and messages of one implementation.

    Args:
        side: the implementation.
        seed: seed of the random numbers.
        damaged: whether the buffers can be damaged, and finalizers call the rows.
    """

    def __init__(self, side: Side, seed: int, damaged: bool) -> None:
        self.side, self.rng, self.damaged = side, random.Random(seed), damaged
        self.cls = type("Message", (side.module.MessageFields,), {"__slots__": ()})
        self.heap = Heap()
        self.log: list[Any] = []
        self.kept: list[Any] = []
        self.depth = 0
        block = self

        class Blocks(side.module.MessageIterator):  # type: ignore[misc, name-defined]
            def _next_message(self) -> Any:
                block.log.append("next message")
                block.interfere()
                self._rows = block.rows = block.create_rows()
                return block.rows.popleft()

        self.iterator = Blocks()
        self.rows: Any = None
        self.wildness = self.rng.choice((0.0, 0.05, 0.3))

    def run(self, count: int) -> list[Any]:
        """Make calls; return what can be observed after each of them."""
        self.rows = self.iterator._rows = self.create_rows()
        for _ in range(count):
            self.log.append(self.side.outcome(self._act))
        self.log.append([self.values(message) for message in self.kept])
        return self.log

    def close(self) -> None:
        """Release everything; then free the buffers.

        Raises:
            BufferError: an object still refers to the buffers.
        """
        self.depth = 3  # finalizers make no calls any more
        self.rows = self.iterator._rows = None
        if self.rng.random() < 0.5:
            self.kept.clear()
        self.heap.release()
        self.log.append([self.values(message) for message in self.kept])
        self.kept.clear()

    def create_rows(self) -> Any:
        """Return rows with random columns."""
        rng = self.rng
        content = Columns(rng)
        rows = content.rows
        if self.damaged and rng.random() < 0.7:
            content.damage(rng)
        if rng.random() < 0.1:
            rows = rng.choice((0, rows + 1, rows + 8, -1))
        decoders = rng.choice(((None, None), (None, None), (self.decoder(), None), (self.decoder(), self.decoder())))
        columns = tuple(map(self.heap.take, content.columns))
        headers = None if content.headers is None else tuple(map(self.heap.take, content.headers))
        with contextlib.suppress(IndexError):
            return self.side.module.MessageRows(self.cls, ("topic", 1 << 40), rows, columns, headers, decoders)
        return self.side.module.MessageRows(self.cls, ("t", 0), 0, columns_of_nothing(), None)

    def decoder(self) -> Callable[[bytes], Any] | None:
        """Return a function that decodes, fails, or calls the rows."""
        kind = self.rng.randrange(4)

        def decode(data: bytes) -> Any:
            self.log.append(("decode", data))
            self.interfere()
            if kind == 0:
                raise ValueError("planned")
            return Finalized(self) if self.damaged and kind == 1 else (data, [len(data)])[kind % 2]

        return decode if kind < 3 else None

    def interfere(self) -> None:
        """Let a callback make another call, or fail."""
        if self.depth >= 3 or self.rng.random() >= self.wildness:
            return
        if self.rng.random() < 0.2:
            raise self.rng.choice((KeyError, ValueError, StopError))("planned")
        self.depth += 1
        try:
            self.log.append(self.side.outcome(self._act))
        finally:
            self.depth -= 1

    def _act(self) -> Any:
        """Make one call."""
        rng, rows = self.rng, self.rows
        step = rng.choice(RARE_STEPS if rng.random() < 0.1 else STEPS)
        message = rng.choice(self.kept) if self.kept else None
        match step:
            case "popleft" | "peek":
                return self._use(getattr(rows, step)())
            case "next":
                return self._use(next(rng.choice((self.iterator, self.iterator, rows))))
            case "pop" | "clear":
                return getattr(rows, step)(), len(rows)
            case "offset":
                return rows.offset_at(rng.choice((0, 1, 7, -1, 1 << 70)))
            case "release":
                self.rows = self.iterator._rows = self.create_rows()
            case "replace":
                self.iterator._rows = rng.choice((None, rows))
            case "drop":
                if self.kept:
                    self.kept.pop(rng.randrange(len(self.kept)))
            case "keep":
                return [self.values(kept) for kept in self.kept[-3:]]
            case "create":
                self.kept.append(self.cls(*rng.sample((1, None, b"key", "t", 1.5, (), -1, "value"), 8)))
            case _ if message is None:
                return len(rows)
            case "read":
                name = rng.choice((*NAMES, "value", "value", "missing"))
                return self._read(message, name)
            case "values":
                return self.plain(message[rng.choice((0, 4, -1, 8, -9, slice(2, 5), slice(None, None, -1)))])
            case "hash":
                return hash(message) == hash(tuple(message))  # the hash itself differs between processes
            case "compare":
                other = rng.choice((*self.kept, tuple(NAMES), message, 5))
                return message == other, message != other, rng.random() < 0.1 and message < other
        return None

    def _use(self, message: Any) -> Any:
        """Read some fields of a message, and keep some messages."""
        rng = self.rng
        if rng.random() < 0.4:
            self.kept.append(message)
        return [self.side.outcome(partial(self._read, message, name)) for name in rng.sample(NAMES, 3)]

    def _read(self, message: Any, name: str) -> Any:
        return self.plain(getattr(message, name))

    def values(self, message: Any) -> Any:
        """Return the fields of a message, or the error."""
        return self.side.outcome(lambda: self.plain(tuple(message)))

    def plain(self, value: Any) -> Any:
        """Return a value without the objects of an implementation."""
        if isinstance(value, tuple | list):
            return [self.plain(item) for item in value]
        return "finalized" if isinstance(value, Finalized) else value


class Finalized:
    """A value that calls the rows when it is released.

    Args:
        block: the rows and messages.
    """

    def __init__(self, block: Block) -> None:
        self._block = block
        if block.rng.random() < 0.5:
            self._cycle = self

    def __del__(self) -> None:
        block = self._block
        if block.depth < 3:
            block.depth += 1
            if block.rng.random() < 0.1:  # read messages that only the rows refer to
                for found in gc.get_objects():
                    if type(found) is block.cls:
                        block.values(found)
            block.side.outcome(block._act)
            block.depth -= 1


def columns_of_nothing() -> tuple[bytes, ...]:
    """Return the columns of no record."""
    return b"", b"", b"", *binary_column([]), *binary_column([])


class MessageCalls(Calls):
    """Makes the same random calls of two implementations."""

    def run(self, count: int) -> None:
        for _ in range(count):
            seed, calls = self.rng.getrandbits(32), self.rng.choice((5, 20, 100))
            if self.rng.random() < 0.3:  # only memory errors are found
                self._run_block(Side(self.modules[0]), seed, calls, damaged=True)
            else:
                self.compare(lambda side, seed=seed, calls=calls: self._run_block(side, seed, calls))  # type: ignore[misc]
            self.count += calls

    @staticmethod
    def _run_block(side: Side, seed: int, calls: int, *, damaged: bool = False) -> list[Any]:
        block = Block(side, seed, damaged)
        thresholds = gc.get_threshold()
        if damaged:
            gc.set_threshold(block.rng.choice((1, 3, 10, *thresholds[:1])))
        try:
            block.run(calls)
        finally:
            gc.set_threshold(*thresholds)
            block.close()
        if "SystemError" in repr(block.log):  # such as for a negative size
            raise AssertionError("a call raised SystemError")
        return block.log
