"""Versioned key-value stores.

Source: Kafka 3.9 org.apache.kafka.streams.state.VersionedKeyValueStore, with RocksDB: RocksDBVersionedStore.
"""

from __future__ import annotations

import struct
from typing import Any, Generic, NamedTuple, TypeVar

from zkconsumer.topology.serdes import Serde
from zkconsumer.topology.stores.base import StoreContext
from zkconsumer.topology.stores.key_value_store import next_prefix
from zkconsumer.topology.stores.pages import PagedMap
from zkconsumer.topology.stores.segments import SegmentedStore, check_time
from zkconsumer.topology.stores.time_map import MAX_TIME

V = TypeVar("V")

#: Result of a put whose version is the latest one of its key.
VALID_TO_UNDEFINED = -1

#: Result of a put that was dropped, because its time is older than the history. Source: VersionedKeyValueStore.
NOT_PUT = -(1 << 63)

_TIME = struct.Struct(">Q")
#: Valid until, and whether there is a value.
_OLD = struct.Struct(">Q?")
#: Keys of latest versions follow those of old ones, whose first byte is the start of a segment's number.
_LATEST = b"\xf0"


class VersionedRecord(NamedTuple):
    """A value and the interval in which it is valid, in milliseconds.

    ``valid_to`` is exclusive, and None for the latest version.
    """

    value: Any
    timestamp: int
    valid_to: int | None = None


class _Version(NamedTuple):
    start: int
    end: int
    data: bytes | None


class VersionedKeyValueStore(SegmentedStore, Generic[V]):
    """Values by key and time. A value is valid until the time of the next one, which may be a deletion.

    Old versions expire by segments of the time at which they ended, the latest one never. ``put`` and ``get`` of the
    latest version use one or two pages; calls with an older time read the versions of the key in all segments after
    that time.

    Args:
        name: name of the store.
        history_ms: milliseconds for which old versions are kept, and for which versions may be put late.
        segment_interval_ms: milliseconds of a segment.
        serdes: serdes of keys and values.
        is_persistent: see ``StateStore``.
    """

    def __init__(
        self, name: str, history_ms: int, segment_interval_ms: int, serdes: tuple[Serde, Serde], is_persistent: bool
    ) -> None:
        super().__init__(name, serdes, is_persistent, history_ms, segment_interval_ms)
        self._map: PagedMap

    def init(self, context: StoreContext) -> None:
        """Open the store."""
        super().init(context)
        self._map = context.byte_map(self.name)

    def put(self, key: Any, value: V | None, timestamp: int) -> int:
        """Add a version, and return the time until which it is valid, ``VALID_TO_UNDEFINED`` or ``NOT_PUT``.

        Args:
            key: the key.
            value: the value; None deletes the key from ``timestamp`` on.
            timestamp: milliseconds since the epoch.

        Raises:
            ValueError: the timestamp is negative.
        """
        check_time(self.name, timestamp)
        raw_key = self._serialize_key(key)
        data = None if value is None else self._serialize_value(value)
        self._map.require_writable()
        if timestamp < self._segments.stream_time_ms - self._retention_ms:
            self._context.count_expired(self.name)
            return NOT_PUT
        self._segments.advance_stream_time(timestamp)
        latest = self._read_latest(raw_key)
        if latest is None or timestamp < latest.start:
            return self._put_late(raw_key, data, timestamp, latest)
        if timestamp > latest.start:
            self._put_old(raw_key, latest._replace(end=timestamp))
        self._put_latest(raw_key, data, timestamp)
        return VALID_TO_UNDEFINED

    def delete(self, key: Any, timestamp: int) -> VersionedRecord | None:
        """Delete a key from a time on, and return the version that was valid then, or None."""
        raw_key = self._serialize_key(key)
        is_late = timestamp < self._segments.stream_time_ms - self._retention_ms
        found = None if is_late else self._to_record(self._find(raw_key, timestamp))
        self.put(key, None, timestamp)
        return found

    def get(self, key: Any, as_of: int | None = None) -> VersionedRecord | None:
        """Return the latest version, or that which was valid at a time, in milliseconds; None if there is none."""
        raw_key = self._serialize_key(key)
        return self._to_record(self._read_latest(raw_key) if as_of is None else self._find(raw_key, as_of))

    def _find(self, raw_key: bytes, as_of: int) -> _Version | None:
        latest = self._read_latest(raw_key)
        if latest is not None and latest.start <= as_of:
            return latest
        if as_of < self._segments.stream_time_ms - self._retention_ms:
            return None
        return next((v for v in self._scan_old(raw_key, as_of) if v.start <= as_of < v.end), None)

    def _put_late(self, raw_key: bytes, data: bytes | None, timestamp: int, latest: _Version | None) -> int:
        """Add a version before the latest one, or to a key that has none or was deleted."""
        versions = self._scan_old(raw_key, timestamp)
        same = next((v for v in versions if v.start == timestamp), None)
        if same is not None and same.end > same.start:
            self._put_old(raw_key, same._replace(data=data))
            return same.end
        starts = [v.start for v in versions if v.start > timestamp] + ([latest.start] if latest else [])
        # A deletion is only known by the end of the version before it, or by an entry of its own.
        ends = [v.end for v in versions if v.end > timestamp]
        end = min([*starts, *ends], default=None)
        before = next((v for v in versions if v.start < timestamp < v.end), None)
        if before is not None:
            self._remove_old(raw_key, before)
            self._put_old(raw_key, before._replace(end=timestamp))
        if end is None and data is not None:
            self._put_latest(raw_key, data, timestamp)  # like Kafka Streams, keep an earlier deletion at this time
        else:
            if same is not None:
                self._remove_old(raw_key, same)
            self._put_old(raw_key, _Version(timestamp, timestamp if end is None else end, data))
        return VALID_TO_UNDEFINED if end is None else end

    # ---- entries ----

    def _read_latest(self, raw_key: bytes) -> _Version | None:
        data = self._map.get(_LATEST + raw_key)
        return None if data is None else _Version(_TIME.unpack_from(data)[0], MAX_TIME, data[_TIME.size :])

    def _put_latest(self, raw_key: bytes, data: bytes | None, timestamp: int) -> None:
        if data is not None:
            self._map.put(_LATEST + raw_key, _TIME.pack(timestamp) + data)
        else:
            self._map.delete(_LATEST + raw_key)

    def _scan_old(self, raw_key: bytes, from_ms: int) -> list[_Version]:
        """Return the old versions of a key that ended at a time or later, deletions included, by segment and start."""
        prefix = _TIME.pack(len(raw_key)) + raw_key
        return [
            _Version(_TIME.unpack_from(raw, len(raw) - _TIME.size)[0], end, data[_OLD.size :] if has_value else None)
            for raw, data in self._segments.scan(from_ms, MAX_TIME, prefix, next_prefix(prefix))
            for end, has_value in [_OLD.unpack_from(data)]
        ]

    def _put_old(self, raw_key: bytes, version: _Version) -> None:
        has_value = version.data is not None
        data = _OLD.pack(version.end, has_value) + (version.data or b"")
        self._segments.put(version.end, self._encode_old_key(raw_key, version), data)

    def _remove_old(self, raw_key: bytes, version: _Version) -> None:
        self._segments.put(version.end, self._encode_old_key(raw_key, version), None)

    def _encode_old_key(self, raw_key: bytes, version: _Version) -> bytes:
        return _TIME.pack(len(raw_key)) + raw_key + _TIME.pack(version.start)

    def _to_record(self, version: _Version | None) -> VersionedRecord | None:
        if version is None or version.data is None:
            return None
        value = self._deserialize_value(version.data)
        return VersionedRecord(value, version.start, None if version.end == MAX_TIME else version.end)
