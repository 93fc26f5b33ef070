"""Random calls of the compiled record caches and of those in Python, whose results and errors must be equal."""

from __future__ import annotations

import contextlib
import gc
import random
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

from zkconsumer.errors import StreamsError
from zkconsumer.topology.loop.records import Change
from zkconsumer.topology.serdes import BYTES, DOUBLE, INTEGER, JSON, LONG, STRING, Codec
from zkconsumer.topology.stores.key_value_store import KeyValueStore, TimestampedKeyValueStore, ValueAndTimestamp
from zkconsumer.topology.stores.serde_map import Conversions

from .page_content import PageContent
from .sides import Calls, Side
from .values import I64_MAX, ReplacedHeaders, StopError

SERDES = (BYTES, STRING, INTEGER, LONG, DOUBLE, JSON)
#: The last two cannot be counted.
HEADERS: tuple[list[Any], ...] = (
    [],
    [],
    [("h", b"xx"), ("n", None)],
    [("\u20ac\U0001f600", b"")],
    [("h", 5)],
    [("\ud800", b"x")],
)
#: The last two have no topic.
SOURCES = (None, *(SimpleNamespace(topic=topic) for topic in ("a", "a", "a long topic", "\u20ac")), object(), Side)
STEPS = ("get",) * 6 + ("put",) * 8 + ("find", "get_raw", "put_raw", "take_dirty", "drop_deleted", "pop_oldest")
RARE_STEPS = ("clear", "added", "max_bytes", "fill")


class Caches:
    """Two record caches of one implementation, with the stores behind them.

    What their callbacks do depends on random numbers, so it is equal if the calls of the implementations are equal.

    Args:
        side: the implementation.
        seed: seed of the random numbers.
    """

    def __init__(self, side: Side, seed: int) -> None:
        self.side = side
        self.rng = rng = random.Random(seed)
        self.log: list[Any] = []
        self.depth = 0
        #: Share of the callbacks that call the caches or fail.
        self.wildness = rng.choice((0.0, 0.0, 0.05, 0.2))
        self.state = side.module.RunState()
        self.shared = side.module.RecordCache(rng.choice((0, 150, 600, 5_000, I64_MAX)))
        self.stores: list[dict[bytes, bytes]] = [{}, {}]
        kind: Any = rng.choice((KeyValueStore, TimestampedKeyValueStore))
        conversions = kind("s", (rng.choice(SERDES), rng.choice(SERDES)), False)._conversions()
        self.is_timestamped = kind is TimestampedKeyValueStore
        self.codec, self.deserialize = conversions.codecs[2], conversions.deserialize_value
        self.content = PageContent(rng, conversions.codecs)
        self.keys = self._create_objects(0, conversions.serialize_key, rng.choice((2, 8, 40)))
        self.values = self._create_objects(1, conversions.serialize_value, 10)
        if self.wildness:  # so that both call the functions
            first, second, third = map(self._with_callback, conversions[:3])
            conversions = Conversions(first, second, third, (Codec.OTHER,) * 3)
        entries = side.module.CacheEntries
        self.caches = [
            entries(self.shared, self.state, conversions, partial(self._miss, number), partial(self._evict, number))
            for number in range(2)
        ]

    def run(self, count: int) -> list[Any]:
        """Make calls; return what can be observed after each of them."""
        for row in range(count):
            self._set_record(row)
            self.log.append(self.side.outcome(self._act))
            self.log.append((self.shared.size_bytes, [(len(cache), cache.is_dirty) for cache in self.caches]))
            if self.rng.random() < 0.05:
                self.log.append([(cache.keys(), cache.added) for cache in self.caches])
        return self.log

    def _create_objects(self, position: int, serialize: Callable[[Any], Any], count: int) -> list[tuple[Any, bytes]]:
        """Return objects that can be serialized, and their bytes."""
        found: list[tuple[Any, bytes]] = []
        while len(found) < count:
            value = self.content.object(position)
            if position and self.is_timestamped:
                value = ValueAndTimestamp(value, self.rng.choice((0, 1_700_000_000_000, I64_MAX)))
            with contextlib.suppress(TypeError, ValueError, StreamsError):
                data = serialize(value)
                if data is not None:
                    found.append((value, data))
        return found

    def _set_record(self, row: int) -> None:
        rng, state = self.rng, self.state
        state.row = rng.choice((row, row, 0, I64_MAX))
        headers, source = rng.choice(HEADERS), rng.choice(SOURCES)
        if rng.random() < 0.9 or headers in HEADERS[4:]:  # one error at most
            source = rng.choice(SOURCES[:5])
        state.source = source
        state.record = None
        if rng.random() < 0.8:
            state.record = self.side.module.Record(None, None, rng.choice((row, 0, I64_MAX)))
            state.record.headers.extend(headers)  # without checks
            if rng.random() < 0.2:
                state.record.headers = ReplacedHeaders(state.record, headers)

    def _act(self) -> Any:
        """Make one call."""
        rng, content = self.rng, self.content
        number = rng.randrange(2)
        cache, (key, raw), (value, data) = self.caches[number], rng.choice(self.keys), rng.choice(self.values)
        if rng.random() < 0.1:
            key, raw, value, data = content.object(0), content.key(), content.object(1), content.value()
        match rng.choice(RARE_STEPS if rng.random() < 0.02 else STEPS):
            case "get":
                return cache.get(key)
            case "put":
                return cache.put(key, rng.choice((None, value, value, value)))
            case "get_raw":
                return cache.get_raw(raw)
            case "put_raw":
                return cache.put_raw(raw, rng.choice((None, b"", data, data)))
            case "find":
                return cache.find(raw)
            case "take_dirty":
                return self._flush(number)
            case "drop_deleted":
                return self._drop(number, raw)
            case "pop_oldest":
                return self._pop(number)
            case "clear":
                return cache.clear()
            case "added":
                cache.added = rng.choice((None, []))
            case "max_bytes":
                self.shared.max_bytes = rng.choice((0, 100, 1_000, I64_MAX))
            case "fill":
                self.stores[number] = {key[1]: rng.choice(self.values)[1] for key in self.keys}
        return None

    def _describe(self, change: Any) -> tuple[Any, ...]:
        topic = getattr(change.source, "topic", type(change.source).__name__)
        return change.key, change.data, topic, change.row, change.timestamp, change.headers

    def _write(self, number: int, change: Any) -> None:
        if change.data is None:
            self.stores[number].pop(change.key, None)
        else:
            self.stores[number][change.key] = change.data

    def _flush(self, number: int) -> list[Any]:
        """Write all changes; then drop the entries without a value, as ``StoreCache`` does."""
        cache = self.caches[number]
        changes = cache.take_dirty()
        if self.rng.random() < 0.5:
            self._forward(number, changes)
        else:
            for change in changes:
                self._write(number, change)
                self._interfere()
        for change in changes:
            if change.data is None:
                self._drop(number, change.key)
        return [self._describe(change) for change in changes]  # later calls do not change them

    def _forward(self, number: int, changes: list[Any]) -> None:
        """Write the changes, and record what a listener receives."""
        store = self.stores[number]

        def write(key: bytes, data: bytes | None) -> None:
            if data is None:
                store.pop(key, None)
            else:
                store[key] = data

        def listen(record: Any) -> None:
            self.log.append((record, type(record.value), self.state.record is record, self.state.row))
            self._interfere()
            if self.rng.random() < self.wildness:
                changes.clear()

        deserialize = self.side.module.Deserialize
        decode = deserialize(Codec.STRING, partial(bytes.decode, errors="replace")), bytes
        if self.rng.random() < 0.5:
            decode = decode[::-1]
        if self.is_timestamped:
            decode = decode[0], deserialize(self.codec, self.deserialize)
        sends_old_values = self.rng.random() < 0.5
        self.side.module.forward_changes(
            self.state, changes, (store.get, write, *decode), listen, Change, sends_old_values
        )

    def _drop(self, number: int, key: bytes) -> int:
        size: int = self.caches[number].drop_deleted(key)
        self.shared.size_bytes -= size
        return size

    def _pop(self, number: int) -> Any:
        oldest = self.caches[number].pop_oldest()
        if oldest is None:
            return None
        key, size, change = oldest
        self.shared.size_bytes -= size
        if change is not None:
            self._write(number, change)
        return key, size, change and self._describe(change)

    # ---- callbacks ----

    def _miss(self, number: int, key: bytes) -> bytes | None:
        self.log.append(("miss", number, key))
        data = self.stores[number].get(key)
        if self._interfere() and self.rng.random() < 0.3:
            self.caches[number].put_raw(key, self.rng.choice((None, b"", b"raw")))
        return data

    def _evict(self, number: int) -> None:
        self.log.append(("evict", number))
        self._interfere()
        while self.shared.size_bytes > self.shared.max_bytes:
            popped = self._pop(number)
            self.log.append(popped)
            if popped is None:
                return
            if popped[2] is not None:
                self.log.append(self._flush(number))

    def _with_callback(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def convert(value: Any) -> Any:
            self._interfere()
            return function(value)

        return convert

    def _interfere(self) -> bool:
        """Let a callback make another call of the caches, or fail; return whether it made one."""
        if self.depth >= 3 or self.rng.random() >= self.wildness:
            return False
        if self.rng.random() < 0.2:
            raise self.rng.choice((KeyError, ValueError, StopError))("planned")
        self.depth += 1
        try:
            self.log.append(self._act())
        finally:
            self.depth -= 1
        return True


class CacheCalls(Calls):
    """Makes the same random calls of two record caches."""

    def run(self, count: int) -> None:
        for _ in range(count):
            if self.rng.random() < 0.1:
                run_finalizers(self)
                continue
            seed, calls = self.rng.getrandbits(32), self.rng.choice((20, 100, 400))
            self.compare(lambda side, seed=seed, calls=calls: Caches(side, seed).run(calls))  # type: ignore[misc]
            self.count += calls


def run_finalizers(calls: Calls) -> None:
    """Let finalizers change the caches that the compiled calls use; only memory errors are found."""
    module, rng = calls.modules[0], calls.rng
    calls.count += 1
    state, shared = module.RunState(), module.RecordCache(1 << 20)
    conversions = Conversions(lambda key: b"%d" % key, lambda value: value, lambda data: data, (Codec.OTHER,) * 3)
    entries = module.CacheEntries(shared, state, conversions, lambda _: None, lambda: None)

    class Finalized:
        """Changes the caches when it is garbage collected."""

        def __init__(self) -> None:
            self.topic = "topic"
            self.cycle = self

        def __del__(self) -> None:
            set_record()
            act()

    def set_record() -> None:
        # A finalizer that always created another such object would never leave the collector without work.
        state.source = Finalized() if rng.random() < 0.5 else None
        state.record = module.Record(None, None, 0, rng.choice((None, [("a", b"b")])))

    def act() -> None:
        key = rng.randrange(5)
        raw = b"%d" % key
        match rng.randrange(9):
            case 0 | 1 | 2:
                entries.put(key, rng.choice((None, b"value")))
            case 3:
                entries.get(key)
            case 4:
                entries.find(raw)
            case 5:
                entries.take_dirty()
            case 6:
                entries.pop_oldest()
            case 7:
                entries.drop_deleted(raw)
            case 8:
                entries.clear()

    thresholds = gc.get_threshold()
    gc.set_threshold(rng.choice((1, 3, 10)))
    try:
        for _ in range(100):
            set_record()
            act()
    finally:
        gc.set_threshold(*thresholds)
    entries.clear()
