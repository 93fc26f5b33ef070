"""Window stores, with and without timestamps.

Source: Kafka 3.9 org.apache.kafka.streams.state.WindowStore and its RocksDB implementation (RocksDBWindowStore,
WindowKeySchema).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, ClassVar, Generic, TypeVar

from zkconsumer.topology.serdes import Codec, Serde
from zkconsumer.topology.stores.key_value_store import (
    ValueAndTimestamp,
    decode_timestamped,
    encode_timestamped,
    next_prefix,
    none_if_empty,
)
from zkconsumer.topology.stores.segments import TimedStore, check_time, segment_interval_ms
from zkconsumer.topology.stores.serde_map import Conversions
from zkconsumer.topology.stores.time_map import MAX_TIME, Windowed

V = TypeVar("V")

_SUFFIX = struct.Struct(">QI")
_LAST_SEQUENCE = 0x7FFFFFFF


class WindowStore(TimedStore, Generic[V]):
    """Stores values by key and window start until they expire.

    A value expires when stream time, which is the latest window start that was put, reaches the start of the value's
    window plus ``retention_ms``. The segment interval is half of the retention period, and at least one minute. A put
    is dropped and counted if all entries of its segment have expired. ``fetch`` and ``put`` access one page. In each
    segment of the time range, ``fetch_times`` reads the pages of the key, and ``fetch_keys`` reads the pages of the key
    range. ``fetch_all`` and ``all`` read whole segments.

    Args:
        name: name of the store.
        retention_ms: retention period, in milliseconds.
        window_size_ms: window size, in milliseconds. It determines the window end in ``Windowed``.
        retain_duplicates: whether each put adds a value instead of replacing the value of its key and window.
        serdes: key and value serdes.
        is_persistent: see ``StateStore``.
    """

    SECOND_BYTES: ClassVar[int] = 4  # the last key part is a sequence number

    def __init__(
        self,
        name: str,
        retention_ms: int,
        window_size_ms: int,
        retain_duplicates: bool,
        serdes: tuple[Serde, Serde],
        is_persistent: bool,
    ) -> None:
        details = ", with duplicates" if retain_duplicates else ""
        super().__init__(name, serdes, is_persistent, retention_ms, segment_interval_ms(retention_ms), details)
        self._window_size_ms, self._retains_duplicates = window_size_ms, retain_duplicates

    def put(self, key: Any, value: V | None, start_ms: int) -> None:
        """Set the value of a key and window. None deletes the value, or has no effect if duplicates are retained.

        Raises:
            ValueError: ``start_ms`` is negative or not an integer.
        """
        if type(start_ms) is not int or start_ms < 0:
            check_time(self.name, start_ms)
        if self._retains_duplicates:
            self._add(key, value, start_ms)
        else:
            self._put(key, start_ms, 0, value)

    def first_readable_after(self, start_ms: int) -> int:
        """Return the lowest window start that is readable after a put to the window that starts at ``start_ms``."""
        return max(start_ms, self._segments.stream_time_ms) - self._retention_ms + 1

    def fetch(self, key: Any, start_ms: int) -> V | None:
        """Return the value of a key and window, or None if there is none.

        If duplicates are retained, only the last value that was put into the store is found.
        """
        if start_ms < 0:
            return None
        return self._get(key, start_ms, self._segments.sequence)  # type: ignore[no-any-return]

    def fetch_times(self, key: Any, first_ms: int, last_ms: int, *, reverse: bool = False) -> Iterator[tuple[int, V]]:
        """Return the start and value of each window of ``key`` that starts between ``first_ms`` and ``last_ms``."""
        raw_key = self._serialize_key(key)
        first_ms = max(first_ms, self._segments.live_from, 0)
        last_ms = min(last_ms, self._segments.stream_time_ms)
        if last_ms < first_ms:
            return iter(())
        start = raw_key + _SUFFIX.pack(first_ms, 0)
        stop = raw_key + _SUFFIX.pack(last_ms, _LAST_SEQUENCE) + b"\0"
        found = self._segments.scan(first_ms, last_ms, start, stop, reverse=reverse)
        entries = ((_decode_start(raw), data) for raw, data in found if raw[: -_SUFFIX.size] == raw_key)
        return ((time, self._decode_value(data)) for time, data in entries if first_ms <= time <= last_ms)

    def fetch_keys(
        self, first: Any, last: Any, first_ms: int, last_ms: int, *, reverse: bool = False
    ) -> Iterator[tuple[Windowed, V]]:
        """Return the windows of a key range that start between ``first_ms`` and ``last_ms``.

        The keys are between ``first`` and ``last``, inclusive; None means no bound. The windows are sorted by segment,
        key and start.
        """
        low = b"" if first is None else self._serialize_key(first)
        high = None if last is None else self._serialize_key(last)
        first_ms = max(first_ms, self._segments.live_from, 0)
        if last_ms < first_ms:
            return iter(())
        stop = None if high is None else next_prefix(high + b"\xff" * _SUFFIX.size)
        found = self._segments.scan(first_ms, last_ms, low, stop, reverse=reverse)
        entries = ((raw[: -_SUFFIX.size], _decode_start(raw), data) for raw, data in found)
        return (
            (self._create_windowed(raw_key, time), self._decode_value(data))
            for raw_key, time, data in entries
            if low <= raw_key and (high is None or raw_key <= high) and first_ms <= time <= last_ms
        )

    def fetch_all(self, first_ms: int, last_ms: int, *, reverse: bool = False) -> Iterator[tuple[Windowed, V]]:
        """Return all windows that start between ``first_ms`` and ``last_ms``, sorted by segment, key and start."""
        return self.fetch_keys(None, None, first_ms, last_ms, reverse=reverse)

    def all(self, *, reverse: bool = False) -> Iterator[tuple[Windowed, V]]:
        """Return all windows, sorted by segment, key and start."""
        return self.fetch_keys(None, None, 0, MAX_TIME, reverse=reverse)

    def _add(self, key: Any, value: V | None, start_ms: int) -> None:
        """Add a value to the existing values of its key and window."""
        raw_key = self._serialize_key(key)
        data = None if value is None else self._encode_value(value)
        self._segments.require_writable()
        if data is None:
            return
        key_with_time = raw_key + _SUFFIX.pack(start_ms, self._segments.next_sequence())
        if not self._segments.put(start_ms, key_with_time, data):
            self._context.count_expired(self.name)

    def _create_windowed(self, raw_key: bytes, start_ms: int) -> Windowed:
        end_ms = min(start_ms + self._window_size_ms, MAX_TIME)
        return Windowed(self._deserialize_key(raw_key), start_ms, end_ms)

    def _decode_value(self, data: bytes) -> V:
        return self._deserialize_value(data)  # type: ignore[no-any-return]

    def _encode_value(self, value: V) -> bytes | None:
        return self._serialize_value(value)


class TimestampedWindowStore(WindowStore[ValueAndTimestamp]):
    """A window store of ``ValueAndTimestamp``. A ``ValueAndTimestamp`` whose value is None deletes the window."""

    def _conversions(self) -> Conversions:
        key, serialize, deserialize = self._codecs
        codecs = (key, serialize + Codec.TIMESTAMPED, deserialize + Codec.TIMESTAMPED)
        return Conversions(self._serialize_key, self._encode_value, self._decode_value, codecs)

    def _decode_value(self, data: bytes) -> ValueAndTimestamp:
        return decode_timestamped(data, self._deserialize_value)

    def _encode_value(self, value: ValueAndTimestamp) -> bytes | None:
        checked = none_if_empty(self.name, value)
        return None if checked is None else encode_timestamped(checked, self._serialize_value)


def _decode_start(raw: bytes) -> int:
    return int(_SUFFIX.unpack_from(raw, len(raw) - _SUFFIX.size)[0])
