"""Random calls of the compiled maps and of those in Python, whose results, errors and pages must be equal."""

from __future__ import annotations

import hashlib
import random
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from zkconsumer.errors import StreamsError
from zkconsumer.topology.serdes import BYTES, DOUBLE, INTEGER, JSON, LONG, STRING, Codec, Serde
from zkconsumer.topology.stores.key_value_store import KeyValueStore, TimestampedKeyValueStore, ValueAndTimestamp
from zkconsumer.topology.stores.page_format import CorruptPageError, Page
from zkconsumer.topology.stores.pages import MemoryPages, PageLimits
from zkconsumer.topology.stores.serde_map import Conversions

SERDES = (BYTES, STRING, INTEGER, LONG, DOUBLE, JSON)
CORNERS_32 = (0, 1, 2, 5, 13, 255, 256, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFC, 0xFFFFFFFF)
NUMBERS = (
    0,
    1,
    -1,
    255,
    (1 << 31) - 1,
    1 << 31,
    -(1 << 31),
    -(1 << 31) - 1,
    (1 << 63) - 1,
    1 << 63,
    -(1 << 63),
    1 << 80,
)
PREFIXES = (b"", b"\0\0\0\0", b"key-", b"\xff\xff", b"a prefix that is longer than eight bytes ")


class Text(str):
    """Text whose type is not exactly ``str``."""


class Blob(bytes):
    """Bytes whose type is not exactly ``bytes``."""


class FaultyPages(MemoryPages):
    """Pages whose calls can fail.

    Attributes:
        fault: error to raise, or ``short`` or ``type`` for a wrong result; None for no fault.
        delay: number of calls before the fault.
        probe: called during each call.
    """

    def __init__(self) -> None:
        super().__init__()
        self.fault: BaseException | str | None = None
        self.delay = 0
        self.probe: Callable[[], None] | None = None

    def read(self, page_ids: Sequence[int]) -> list[bytes | None]:
        fault = self._next_fault()
        found: list[Any] = super().read(page_ids)
        if fault == "type":
            found[0] = bytearray(1)
        return found[1:] if fault == "short" else found

    def write(self, changes: Mapping[int, bytes | None]) -> None:
        self._next_fault()

    def finish_commit(self, changes: Mapping[int, bytes | None]) -> None:
        self._next_fault()
        super().finish_commit(changes)

    def _next_fault(self) -> str | None:
        if self.probe is not None:
            self.probe()
        self.delay -= 1
        if self.fault is None or self.delay >= 0:
            return None
        fault, self.fault = self.fault, None
        if isinstance(fault, BaseException):
            raise fault
        return fault


class Classes(NamedTuple):
    """The classes of one implementation."""

    paged_map: Any
    serde_map: Any


class Side:
    """The maps of one implementation.

    Args:
        classes: the implementation.
        arguments: the arguments of the map but the pages.
        is_stored: whether the map has pages.
        conversions: conversions of the objects.
    """

    def __init__(self, classes: Classes, arguments: tuple[Any, ...], is_stored: bool, conversions: Conversions) -> None:
        self.classes, self.arguments, self.conversions = classes, arguments, conversions
        self.pages = FaultyPages() if is_stored else None
        self.callback: Callable[[Any], object] | None = None
        self.open()

    def open(self) -> None:
        """Create the maps for the same pages."""
        if self.pages is not None:
            self.pages.probe = None
        self.map = self.classes.paged_map(self.pages, *self.arguments)
        serialize_key, serialize_value, deserialize, codecs = self.conversions
        functions = [self._with_callback(function) for function in (serialize_key, serialize_value, deserialize)]
        self.objects = self.classes.serde_map(self.map, (*functions, codecs))

    def _with_callback(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def convert(value: Any) -> Any:
            callback, self.callback = self.callback, None
            if callback is not None:
                callback(self.map)
            return function(value)

        return convert

    def commit(self) -> list[tuple[int, bytes | None]]:
        """Commit the changes, and return the pages in their order."""
        changes = self.map.collect_changes()
        self.map.write(changes)
        self.map.finish_commit(changes)
        return list(changes.items())

    def outcome(self, call: Callable[[Side], object]) -> Any:
        """Return the result or error of a call, and what the map says about itself."""
        try:
            result: Any = call(self)
        except BaseException as error:
            if isinstance(error, AssertionError | MemoryError | SystemError):
                raise
            causes = [error, error.__cause__]
            result = [(type(cause), str(cause)) for cause in causes]
        if self.pages is not None:
            self.pages.fault = None
        self.callback = None
        return type(result), repr(result), self.map.memory_bytes, len(self.map)

    def assert_probe_is_rejected(self) -> None:
        """Use the map from its page store."""
        for method, arguments in (("get", (b"",)), ("put", (b"", b"")), ("scan", ()), ("close", ())):
            try:
                getattr(self.map, method)(*arguments)
            except StreamsError as error:
                assert "was used by its page store" in str(error)
            else:
                raise AssertionError("a page store could use the map that had called it")


class PageCalls:
    """Makes equal calls of two implementations.

    Args:
        compiled: the compiled classes.
        twin: those in Python.
        rng: random numbers.

    Attributes:
        count: number of compared calls.
        digest: of their results.
    """

    def __init__(self, compiled: Classes, twin: Classes, rng: random.Random) -> None:
        self.rng = rng
        limits = PageLimits(rng.choice((40, 200, 1_000, 4_000, 16_384)), rng.choice((0, 300, 5_000, 50_000, 1 << 30)))
        serdes = (self._serde(), self._serde())
        kind: Any = rng.choice((KeyValueStore, TimestampedKeyValueStore))
        is_stored = rng.random() < 0.75
        conversions = kind("s", serdes, False)._conversions()
        self.codecs = conversions.codecs
        self.has_callbacks = rng.random() < 0.2
        if self.has_callbacks:
            conversions = conversions._replace(codecs=(Codec.OTHER,) * 3)  # so that both call the functions
        self.sides = [Side(classes, ("s", "layout", limits), is_stored, conversions) for classes in (compiled, twin)]
        self.is_stored = is_stored
        self.is_timestamped = kind is TimestampedKeyValueStore
        self.prefix = rng.choice(PREFIXES)
        self.keys = rng.choice((4, 40, 400, 4_000))
        self.value_sizes = rng.choice(((8,), (0, 1, 8), (0, 8, 20, 100, 300), (8, 8, 8, 8, 5_000, 20_000)))
        self.damaged: dict[int, bytes | None] = {}
        self.steps = (
            *[self.put] * 12,
            *[self.get] * 6,
            *[self.delete] * 4,
            *[self.scan] * 2,
            *[self.put_object] * 8,
            *[self.get_object] * 6,
            *[self.delete_object] * 2,
            self.discard,
            *[self.commit] * 2,
            self.collect,
            self.change_mode,
        )
        self.count = 0
        self.digest = hashlib.blake2b(digest_size=8)

    def run(self, count: int) -> None:
        """Make a number of calls.

        Raises:
            AssertionError: results, errors or pages differ.
        """
        rng = self.rng
        for _ in range(count):
            if rng.random() < 0.03:
                self.fail_next()
            step = rng.choice(self.steps)
            if rng.random() < 0.01:
                step = rng.choice((self.rollback, self.reopen, self.damage))
            self.both(step())
        for page_id in self.damaged:
            self.repair(page_id)
        self.both(lambda side: side.open())
        self.both(lambda side: side.map.scan())

    def both(self, call: Callable[[Side], object]) -> None:
        """Compare the outcomes of a call, and the pages."""
        self.count += 1
        compiled, twin = (side.outcome(call) for side in self.sides)
        self.digest.update(repr(compiled).encode())
        assert compiled == twin, f"{str(compiled)[:300]} instead of {str(twin)[:300]}"
        if self.is_stored:
            ours, expected = (side.pages for side in self.sides)
            assert ours == expected, "the pages differ"

    # ---- calls ----

    def put(self) -> Callable[[Side], object]:
        key, value = self.key(), self.value()
        return lambda side: side.map.put(key, value)

    def get(self) -> Callable[[Side], object]:
        key = self.key()
        return lambda side: side.map.get(key)

    def delete(self) -> Callable[[Side], object]:
        key = self.key()
        return lambda side: side.map.delete(key)

    def scan(self) -> Callable[[Side], object]:
        start, stop, reverse = self.key(), self.rng.choice((None, self.key(), self.key())), self.rng.random() < 0.5
        return lambda side: side.map.scan(start, stop, reverse)

    def discard(self) -> Callable[[Side], object]:
        start, stop = self.key(), self.key()
        if self.rng.random() < 0.8:
            start, stop = min(start, stop), max(start, stop)
        return lambda side: side.map.discard(start, stop)

    def put_object(self) -> Callable[[Side], object]:
        key, value = self.object(0), self.object(1)
        if self.is_timestamped and self.rng.random() < 0.95:
            timestamp: Any = self.rng.choice((0, 1_700_000_000_000, *NUMBERS, True, "x"))
            value = ValueAndTimestamp(value, timestamp)

        def call(side: Side) -> None:
            side.objects.get(key)
            side.objects.put(key, value)

        return self.with_callback(call)

    def get_object(self) -> Callable[[Side], object]:
        key = self.object(0)
        return self.with_callback(lambda side: side.objects.get(key))

    def delete_object(self) -> Callable[[Side], object]:
        key = self.object(0)
        return self.with_callback(lambda side: side.objects.delete(key))

    def with_callback(self, call: Callable[[Side], object]) -> Callable[[Side], object]:
        """Let a conversion of the call change the map, sometimes."""
        if not self.has_callbacks or self.rng.random() < 0.7:
            return call
        key, other, value, change = self.key(), self.key(), self.value(), self.rng.randrange(4)

        def callback(entries: Any) -> None:
            if change == 0:
                entries.put(key, value)
            elif change == 1:
                entries.delete(key)
            elif change == 2:
                entries.discard(min(key, other), max(key, other))
            else:
                raise OSError("the serializer failed")

        def call_with(side: Side) -> object:
            side.callback = callback
            return call(side)

        return call_with

    def commit(self) -> Callable[[Side], object]:
        return lambda side: side.commit()

    def collect(self) -> Callable[[Side], object]:
        return lambda side: list(side.map.collect_changes().items())

    def change_mode(self) -> Callable[[Side], object]:
        mode = self.rng.random() < 0.3
        return lambda side: setattr(side.map, "is_read_only", mode)

    def rollback(self) -> Callable[[Side], object]:
        return lambda side: side.map.rollback()

    def reopen(self) -> Callable[[Side], object]:
        """Close the maps sometimes, and create new ones with the same pages."""
        calls = self.rng.randrange(3) if self.rng.random() < 0.3 else 0

        def call(side: Side) -> None:
            if calls:
                side.map.close()
            if calls < 2:
                side.open()

        return call

    # ---- faults ----

    def fail_next(self) -> None:
        """Let a call of the page store fail, and use the compiled map from it."""
        compiled, _ = self.sides
        if not self.is_stored:
            return
        rng = self.rng
        fault = rng.choice(
            (
                OSError("the disk is full"),
                KeyboardInterrupt(),
                ValueError("x"),
                CorruptPageError(7, "bad"),
                "short",
                "type",
            )
        )
        delay = rng.randrange(4)
        for side in self.sides:
            assert side.pages is not None
            side.pages.fault, side.pages.delay = fault, delay
        assert compiled.pages is not None
        compiled.pages.probe = rng.choice((None, compiled.assert_probe_is_rejected))

    def damage(self) -> Callable[[Side], object]:
        """Change a page, or repair the damaged ones, and read the pages again."""
        stored = self.sides[0].pages
        if not stored:
            return lambda side: None
        if self.damaged and self.rng.random() < 0.7:
            for page_id in list(self.damaged):
                self.repair(page_id)
        else:
            page_id = self.rng.choice(sorted(stored))
            self.damaged.setdefault(page_id, stored[page_id])
            changed = self.mutate(page_id, stored[page_id])
            for side in self.sides:
                assert side.pages is not None
                side.pages.pop(page_id)
                if changed is not None:
                    side.pages[page_id] = changed
        return lambda side: side.open()

    def repair(self, page_id: int) -> None:
        """Undo the changes of a page."""
        before = self.damaged[page_id]
        for side in self.sides:
            if side.pages is not None and before is not None:
                side.pages[page_id] = before
        self.damaged = {other: data for other, data in self.damaged.items() if other != page_id}

    def mutate(self, page_id: int, data: bytes) -> bytes | None:
        """Return a page with a few changes."""
        rng = self.rng
        if rng.random() < 0.05:
            return None
        if page_id > 0 and rng.random() < 0.3:
            keys = sorted({self.key() for _ in range(rng.randrange(20))})
            entries = {key: self.value() for key in keys}
            return Page(entries, keys, 0).encode()
        changed = bytearray(data)
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            at = rng.randrange(len(changed) + 1)
            match rng.randrange(6):
                case 0:
                    del changed[at:]
                case 1:
                    changed[at:at] = rng.randbytes(rng.randrange(1, 20))
                case 2 if at < len(changed):
                    changed[at] = rng.choice((0, 1, 2, 3, 127, 128, 255, rng.randrange(256)))
                case 3 if at < len(changed):
                    changed[at] ^= 1 << rng.randrange(8)
                case _ if len(changed) >= 9:  # the number of entries, or a length
                    at = rng.choice((1, 1 + 4 * rng.randrange((len(changed) - 1) // 4)))
                    (old,) = struct.unpack_from("<I", changed, at)
                    new = rng.choice((*CORNERS_32, old + 1, old - 1, old ^ 4)) & 0xFFFFFFFF
                    struct.pack_into("<I", changed, at, new)
        return bytes(changed)

    # ---- keys and values ----

    def key(self) -> bytes:
        """Return a key of one of several shapes."""
        rng = self.rng
        number = rng.randrange(self.keys)
        match rng.randrange(40):
            case 0:
                return b""
            case 1:
                return self.prefix + bytes(rng.randrange(10))
            case 2:
                return rng.randbytes(rng.randrange(12))
            case 3:
                return self.prefix[: rng.randrange(len(self.prefix) + 1)]
            case 4 | 5 | 6:
                return self.prefix + b"these keys differ only at their end" + number.to_bytes(2, "big")
            case 7 | 8:
                return self.prefix + b"%d" % number
        return self.prefix + number.to_bytes(8, "big")

    def value(self) -> bytes:
        """Return a value of one of the sizes."""
        return self.rng.randbytes(self.rng.choice(self.value_sizes))

    def object(self, position: int) -> Any:
        """Return an object for the serde of the keys or values, or one of another type."""
        rng = self.rng
        codec = self.codecs[position] % Codec.TIMESTAMPED
        if rng.random() < 0.1:
            codec = rng.choice(tuple(Codec))
        number = rng.choice((rng.randrange(self.keys), rng.randrange(-self.keys, self.keys), *NUMBERS))
        match codec:
            case Codec.BYTES:
                return rng.choice((self.key(), self.key(), Blob(self.key()), bytearray(b"x")))
            case Codec.STRING:
                return rng.choice((f"text {number}", "\u00e4\u20ac\U0001f600", "\ud800", Text("x"), ""))
            case Codec.INTEGER | Codec.LONG:
                return rng.choice((number, number, number, rng.randrange(self.keys), True))
            case Codec.DOUBLE:
                return rng.choice((float(number), 0.0, -0.0, float("nan"), float("inf"), number))
        return rng.choice((None, number, [number], "x", {"x": number}, object))

    def _serde(self) -> Serde:
        return self.rng.choice(SERDES)
