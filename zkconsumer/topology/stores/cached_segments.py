"""Window and session stores with a record cache.

Source: Kafka 3.9 CachingWindowStore, CachingSessionStore and SegmentedCacheFunction.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from zkconsumer.topology.loop.native import Deserialize, Serialize
from zkconsumer.topology.stores.base import StoreContext
from zkconsumer.topology.stores.cache import FlushListener, StoreCache, merge
from zkconsumer.topology.stores.key_value_store import ValueAndTimestamp
from zkconsumer.topology.stores.native import PagedMap, TimeMap
from zkconsumer.topology.stores.segments import SEGMENT, SegmentedMap, TimedStore
from zkconsumer.topology.stores.serde_map import Conversions
from zkconsumer.topology.stores.session_store import SessionStore
from zkconsumer.topology.stores.time_map import MAX_TIME, Windowed, select_sessions
from zkconsumer.topology.stores.window_store import TimestampedWindowStore, WindowStore

V = TypeVar("V")

_TIME = struct.Struct("<q")
#: Key under which the cache's stream time is saved. It is greater than the keys of all segments.
_TIME_KEY = b"\xff" * 9 + b"cache"


class CachedSegments(SegmentedMap):
    """A segmented byte map with a record cache.

    Changes stay in the cache until they are flushed. Expired entries are not returned, even if they are in the cache. A
    change that has expired when it is flushed is forwarded, but not written.

    Even after a flush, the cache's stream time can be ahead of the stream time of the map behind it, because the
    deletion of an entry that does not exist is not written. The cache's stream time is saved, so that a rebuilt task
    does not return expired entries.

    Args:
        behind: segmented map behind the cache.
        cache: record cache. Its keys start with the segment number.
        entries: byte map of the store.
        retention_ms: see ``SegmentedMap``.
        interval_ms: see ``SegmentedMap``.
    """

    def __init__(
        self, behind: SegmentedMap, cache: StoreCache, entries: PagedMap, retention_ms: int, interval_ms: int
    ) -> None:
        self._behind, self._cache, self._map = behind, cache, entries
        self._sequence = 0  # stores that retain duplicates are not cached
        self._retention_ms, self._interval_ms = retention_ms, interval_ms
        self.first_writable = 0  # an expired change is not dropped until it is flushed
        self._saved_ms = -1
        self._load_stream_time()

    def load(self) -> None:
        """Load the stream times of the cache and of the map behind it."""
        self._behind.load()
        self._load_stream_time()

    def save(self) -> None:
        """Save the stream times of the cache and of the map behind it, if they changed."""
        self._behind.save()
        if self.stream_time_ms > max(self._saved_ms, self._behind.stream_time_ms):
            self._map.put(_TIME_KEY, _TIME.pack(self.stream_time_ms))
            self._saved_ms = self.stream_time_ms

    def advance_stream_time(self, time_ms: int) -> None:
        """Advance the cache's stream time. Segments of the map behind the cache do not expire until the next flush."""
        self._set_stream_time(max(time_ms, self.stream_time_ms))

    def scan_segments(
        self, first_ms: int, last_ms: int, start: bytes, stop: bytes | None, reverse: bool
    ) -> list[tuple[bytes, bytes]]:
        """Return the result of ``scan``, with each key prefixed with its segment number; see ``SegmentedMap``."""
        cached = []
        for low, high in self.segment_ranges(first_ms, last_ms, start, stop, reverse):
            cached += self._cache.scan(low, high, reverse)
        return merge(self._behind.scan_segments(first_ms, last_ms, start, stop, reverse), cached, reverse)

    def _load_stream_time(self) -> None:
        saved = self._map.get(_TIME_KEY)
        self._saved_ms = -1 if saved is None else int(_TIME.unpack(saved)[0])
        self._set_stream_time(max(self._saved_ms, self._behind.stream_time_ms))

    def _set_stream_time(self, time_ms: int) -> None:
        self.stream_time_ms = time_ms
        self._first_live = self._segment_number(time_ms - self._retention_ms)


class CachedTimeMap:
    """A ``TimeMap`` with a record cache.

    Args:
        behind: map behind the cache.
        entries: byte map of the store.
        cache: record cache of the store.
        conversions: key and value conversions.
        deserialize_key: function that deserializes a key.
    """

    def __init__(
        self,
        behind: TimeMap,
        entries: PagedMap,
        cache: StoreCache,
        conversions: Conversions,
        deserialize_key: Callable[[bytes], Any],
    ) -> None:
        self._behind, self._entries, self._cache = behind, entries, cache
        self._conversions, self._deserialize_key = conversions, deserialize_key
        _, serialize, deserialize = conversions.codecs
        self._encode_key, self._find, self._put_raw = behind.encode_key, cache.entries.find, cache.entries.put_raw
        self._encode_value = Serialize(serialize, conversions.serialize_value)
        self._decode_value = Deserialize(deserialize, conversions.deserialize_value)

    def get(self, segment: int, key: Any, time_ms: int, second: int, /) -> Any:
        """Return the value stored under this key, or None if there is none; for the key parts, see ``TimeMap``."""
        raw_key = self._encode_key(segment, key, time_ms, second)
        cached = self._find(raw_key)
        data = self._entries.get(raw_key) if cached is None else cached[1]
        return None if data is None else self._decode_value(data)

    def put(self, segment: int, key: Any, time_ms: int, second: int, value: Any, /) -> None:
        """Set the value in the cache; None deletes it. For the key parts, see ``TimeMap``."""
        raw_key = self._encode_key(segment, key, time_ms, second)
        self._put_raw(raw_key, None if value is None else self._encode_value(value))

    def find_sessions(
        self, segment: int, key: Any, first_ms: int, last_ms: int, latest_start_ms: int, reverse: bool, /
    ) -> list[tuple[Windowed, Any]]:
        """Return the sessions of ``key`` in ``segment`` and a time range; see ``TimeMap.find_sessions``."""
        start = self._behind.encode_key(segment, key, first_ms, 0)
        stop = self._behind.encode_key(segment, key, last_ms, MAX_TIME) + b"\0"
        cached = self._cache.scan(start, stop, reverse)
        found = merge(self._entries.scan(start, stop, reverse), cached, reverse)
        return select_sessions(found, len(start), latest_start_ms, self._deserialize_key, self._conversions)


class _CachedSegmentedStore(TimedStore):
    """A window or session store with a record cache."""

    _cache: StoreCache
    _behind: SegmentedMap

    def init(self, context: StoreContext) -> None:
        """Open the store."""
        super().init(context)
        self._behind = self._segments
        self._cache = context.create_cache(self.name, self)
        entries, conversions = context.byte_map(self.name), self._conversions()
        self._segments = CachedSegments(self._behind, self._cache, entries, self._retention_ms, self._interval_ms)
        self._objects = CachedTimeMap(
            self._create_map(context), entries, self._cache, conversions, self._deserialize_key
        )

    def set_flush_listener(self, listener: FlushListener, send_old_values: bool = False) -> bool:
        """Set the flush listener, and return True; see ``SerdeStore``."""
        self._cache.listener, self._cache.sends_old_values = listener, send_old_values
        return True

    def key_time(self, key: bytes) -> int:
        """Return the time in a cache key. It determines when the entry with this key expires."""
        raise NotImplementedError

    def conversions(self) -> Conversions:
        """Return the key and value conversions, which the cache does not use for windows and sessions."""
        return Conversions(self._serialize_key, self._serialize_value, self._deserialize_value, (0, 0, 0))

    def read(self, key: bytes) -> bytes | None:
        """Return the value of cache key ``key`` in the store behind the cache, or None if there is none."""
        return self._behind.get(self.key_time(key), key[SEGMENT.size :])

    def write(self, key: bytes, data: bytes | None) -> None:
        """Set the value of cache key ``key`` in the store behind the cache, unless the entry has expired."""
        if not self._behind.put(self.key_time(key), key[SEGMENT.size :], data):
            self._context.count_expired(self.name)

    def decode_value(self, data: bytes) -> Any:
        """Deserialize a value."""
        raise NotImplementedError

    def decode_key(self, key: bytes) -> Windowed:
        """Decode a cache key, and return the record key with its window or session."""
        return self.decode_windowed(key[SEGMENT.size :])

    def decode_windowed(self, raw: bytes) -> Windowed:
        """Decode a store key, and return the record key with its window or session."""
        raise NotImplementedError


class CachedWindowStore(_CachedSegmentedStore, WindowStore[V]):
    """A window store with a record cache."""

    LAYOUT: ClassVar[str | None] = "WindowStore"

    def first_readable_after(self, _start_ms: int) -> int:
        """Return the lowest readable window start; a put to the cache does not hide windows in Kafka Streams."""
        return self._segments.live_from

    def key_time(self, key: bytes) -> int:
        """Return the window start in a cache key."""
        return int.from_bytes(key[-12:-4], "big")

    def decode_windowed(self, raw: bytes) -> Windowed:
        """Decode a store key, and return the record key with its window."""
        return self._create_windowed(raw[:-12], int.from_bytes(raw[-12:-4], "big"))

    def decode_value(self, data: bytes) -> V:
        """Deserialize a value."""
        return self._decode_value(data)


class CachedTimestampedWindowStore(CachedWindowStore[ValueAndTimestamp], TimestampedWindowStore):
    """A ``CachedWindowStore`` whose values are ``ValueAndTimestamp``."""

    LAYOUT = "TimestampedWindowStore"


class CachedSessionStore(_CachedSegmentedStore, SessionStore[V]):
    """A session store with a record cache."""

    LAYOUT: ClassVar[str | None] = "SessionStore"

    def key_time(self, key: bytes) -> int:
        """Return the session end in a cache key."""
        return int.from_bytes(key[-16:-8], "big")

    def decode_windowed(self, raw: bytes) -> Windowed:
        """Decode a store key, and return the record key with its session."""
        start, end = int.from_bytes(raw[-8:], "big"), int.from_bytes(raw[-16:-8], "big")
        return Windowed(self._deserialize_key(raw[:-16]), start, end)

    def decode_value(self, data: bytes) -> Any:
        """Deserialize an aggregate."""
        return self._deserialize_value(data)
