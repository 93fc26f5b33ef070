"""Random calls of the compiled maps and of those in Python, whose results, errors and pages must be equal."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from typing import Any

from zkconsumer.topology.serdes import BYTES, DOUBLE, INTEGER, JSON, LONG, STRING, Codec
from zkconsumer.topology.stores.key_value_store import KeyValueStore, TimestampedKeyValueStore, ValueAndTimestamp
from zkconsumer.topology.stores.page_format import CorruptPageError
from zkconsumer.topology.stores.pages import PageLimits

from .page_content import NUMBERS, PageContent
from .page_sides import MapSide

SERDES = (BYTES, STRING, INTEGER, LONG, DOUBLE, JSON)


class PageCalls:
    """Makes equal calls of two implementations.

    Args:
        compiled: the module with the compiled classes.
        twin: that with those in Python.
        rng: random numbers.

    Attributes:
        count: number of compared calls.
        digest: of their results.
    """

    def __init__(self, compiled: Any, twin: Any, rng: random.Random) -> None:
        self.rng = rng
        limits = PageLimits(rng.choice((40, 200, 1_000, 4_000, 16_384)), rng.choice((0, 300, 5_000, 50_000, 1 << 30)))
        serdes = rng.choice(SERDES), rng.choice(SERDES)
        kind: Any = rng.choice((KeyValueStore, TimestampedKeyValueStore))
        is_stored = rng.random() < 0.75
        store = kind("s", serdes, False)
        conversions = store._conversions()
        self.content = PageContent(rng, conversions.codecs)
        self.has_callbacks = rng.random() < 0.2
        if self.has_callbacks:
            conversions = conversions._replace(codecs=(Codec.OTHER,) * 3)  # so that both call the functions
        arguments = ("s", "layout", limits), is_stored, conversions, store._deserialize_key, rng.choice((4, 8))
        self.sides = [MapSide(module, *arguments) for module in (compiled, twin)]
        self.is_stored = is_stored
        self.is_timestamped = kind is TimestampedKeyValueStore
        self.damaged: dict[int, bytes | None] = {}
        self.last_key: Any = self.content.object(0)
        self.steps = (
            *[self.put] * 12,
            *[self.get] * 6,
            *[self.delete] * 4,
            *[self.scan] * 2,
            *[self.put_object] * 8,
            *[self.get_object] * 6,
            *[self.delete_object] * 2,
            *[self.use_times] * 6,
            *[self.find_sessions] * 2,
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

    def both(self, call: Callable[[MapSide], object]) -> None:
        """Compare the outcomes of a call, and the pages."""
        self.count += 1
        compiled, twin = (side.outcome(call) for side in self.sides)
        self.digest.update(repr(compiled).encode())
        assert compiled == twin, f"{str(compiled)[:300]} instead of {str(twin)[:300]}"
        if self.is_stored:
            ours, expected = (side.pages for side in self.sides)
            assert ours == expected, "the pages differ"

    # ---- calls ----

    def put(self) -> Callable[[MapSide], object]:
        key, value = self.content.key(), self.content.value()
        return lambda side: side.map.put(key, value)

    def get(self) -> Callable[[MapSide], object]:
        key = self.content.key()
        return lambda side: side.map.get(key)

    def delete(self) -> Callable[[MapSide], object]:
        key = self.content.key()
        return lambda side: side.map.delete(key)

    def scan(self) -> Callable[[MapSide], object]:
        start, stop, reverse = (
            self.content.key(),
            self.rng.choice((None, self.content.key(), self.content.key())),
            self.rng.random() < 0.5,
        )
        return lambda side: side.map.scan(start, stop, reverse)

    def discard(self) -> Callable[[MapSide], object]:
        start, stop = self.content.key(), self.content.key()
        if self.rng.random() < 0.8:
            start, stop = min(start, stop), max(start, stop)
        return lambda side: side.map.discard(start, stop)

    def put_object(self) -> Callable[[MapSide], object]:
        key, value = self.content.object(0), self.value_object()

        def call(side: MapSide) -> None:
            side.objects.get(key)
            side.objects.put(key, value)

        return self.with_callback(call)

    def get_object(self) -> Callable[[MapSide], object]:
        key = self.content.object(0)
        return self.with_callback(lambda side: side.objects.get(key))

    def delete_object(self) -> Callable[[MapSide], object]:
        key = self.content.object(0)
        return self.with_callback(lambda side: side.objects.delete(key))

    def value_object(self) -> Any:
        value = self.content.object(1)
        if self.is_timestamped and self.rng.random() < 0.95:
            timestamp: Any = self.rng.choice((0, 1_700_000_000_000, *NUMBERS, True, "x"))
            value = ValueAndTimestamp(value, timestamp)
        return value

    def times(self, count: int) -> list[Any]:
        """Return small numbers, often equal ones, so that entries are found; sometimes, one is any other value."""
        rng = self.rng
        times: list[Any] = [rng.randrange(rng.choice((1, 5))) for _ in range(count)]
        if rng.random() < 0.3:
            times[rng.randrange(count)] = rng.choice((*NUMBERS, True, 1.5, None))
        return times

    def time_key(self) -> Any:
        """Return a key, often the last one or a longer one that starts with it."""
        rng = self.rng
        if rng.random() < 0.3:
            self.last_key = self.content.object(0)
        more = bytes(7) + bytes([rng.randrange(5)])
        match self.last_key:
            case bytes(key) if rng.random() < 0.3:
                return key + more
            case str(key) if rng.random() < 0.3:
                return key + more.decode()
        return self.last_key

    def use_times(self) -> Callable[[MapSide], object]:
        segment, time, second = self.times(3)
        key, value = self.time_key(), self.value_object()
        if self.rng.random() < 0.6:
            return self.with_callback(lambda side: side.times.put(segment, key, time, second, value))
        method = self.rng.choice(("get", "encode_key"))
        return self.with_callback(lambda side: getattr(side.times, method)(segment, key, time, second))

    def find_sessions(self) -> Callable[[MapSide], object]:
        segment, first, last, latest_start = self.times(4)
        if self.rng.random() < 0.8:
            last = 4
        arguments = segment, self.time_key(), first, last, latest_start, self.rng.random() < 0.5
        return self.with_callback(lambda side: side.times.find_sessions(*arguments))

    def with_callback(self, call: Callable[[MapSide], object]) -> Callable[[MapSide], object]:
        """Let a conversion of the call change the map, sometimes."""
        if not self.has_callbacks or self.rng.random() < 0.7:
            return call
        key, other, value, change = self.content.key(), self.content.key(), self.content.value(), self.rng.randrange(4)

        def callback(entries: Any) -> None:
            if change == 0:
                entries.put(key, value)
            elif change == 1:
                entries.delete(key)
            elif change == 2:
                entries.discard(min(key, other), max(key, other))
            else:
                raise OSError("the serializer failed")

        def call_with(side: MapSide) -> object:
            side.callback = callback
            return call(side)

        return call_with

    def commit(self) -> Callable[[MapSide], object]:
        return lambda side: side.commit()

    def collect(self) -> Callable[[MapSide], object]:
        return lambda side: list(side.map.collect_changes().items())

    def change_mode(self) -> Callable[[MapSide], object]:
        mode = self.rng.random() < 0.3
        return lambda side: setattr(side.map, "is_read_only", mode)

    def rollback(self) -> Callable[[MapSide], object]:
        return lambda side: side.map.rollback()

    def reopen(self) -> Callable[[MapSide], object]:
        """Close the maps sometimes, and create new ones with the same pages."""
        calls = self.rng.randrange(3) if self.rng.random() < 0.3 else 0

        def call(side: MapSide) -> None:
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

    def damage(self) -> Callable[[MapSide], object]:
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
            changed = self.content.mutate(page_id, stored[page_id])
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
