"""Versioned key-value stores.

Source: Kafka 3.9 org.apache.kafka.streams.state.VersionedKeyValueStore and its RocksDB implementation
(RocksDBVersionedStore).
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

#: Returned by ``put`` if the version is the latest version of its key.
VALID_TO_UNDEFINED = -1

#: Returned by ``put`` if it dropped a version older than the history retention. Source: VersionedKeyValueStore.
NOT_PUT = -(1 << 63)

_TIME = struct.Struct(">Q")
#: Prefix of an old version's data: end of validity, and whether the version has a value.
_OLD = struct.Struct(">Q?")
#: Key prefix of latest versions. It sorts them after the old versions, whose keys start with a segment number.
_LATEST = b"\xf0"


class VersionedRecord(NamedTuple):
    """A value and its validity interval, in milliseconds.

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
    """A store of versioned values. A version is valid until the next version, which can be a deletion.

    An old version is kept in the segment that contains the end of its validity, and expires together with this segment.
    Latest versions never expire. For the latest version, ``put`` and ``get`` access one or two pages. For an older
    time, they read the versions of the key in all segments since that time.

    Args:
        name: name of the store.
        history_ms: history retention of old versions and grace period for late puts, in milliseconds.
        segment_interval_ms: segment interval, in milliseconds.
        serdes: key and value serdes.
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
        """Add a version of ``key``.

        Args:
            key: key of the version.
            value: value of the version; None deletes the key as of ``timestamp``.
            timestamp: start of the validity, in milliseconds since the epoch.

        Returns:
            the end of the validity, in milliseconds since the epoch; ``VALID_TO_UNDEFINED`` if the new version is the
            latest; ``NOT_PUT`` if it was dropped.

        Raises:
            ValueError: ``timestamp`` is negative or not an integer.
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
        """Delete ``key`` as of ``timestamp``, and return the version that was valid at that time, or None."""
        raw_key = self._serialize_key(key)
        is_late = timestamp < self._segments.stream_time_ms - self._retention_ms
        found = None if is_late else self._to_record(self._find(raw_key, timestamp))
        self.put(key, None, timestamp)
        return found

    def get(self, key: Any, as_of: int | None = None) -> VersionedRecord | None:
        """Return the version that was valid at ``as_of`` (in milliseconds), or None if there is none.

        If ``as_of`` is None, return the latest version.
        """
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
        """Add a version that is older than the latest version, or whose key has no latest version."""
        versions = self._scan_old(raw_key, timestamp)
        same = next((v for v in versions if v.start == timestamp), None)
        if same is not None and same.end > same.start:
            self._put_old(raw_key, same._replace(data=data))
            return same.end
        starts = [v.start for v in versions if v.start > timestamp] + ([latest.start] if latest else [])
        # A deletion is recorded either as the end of the previous version or as a separate entry.
        ends = [v.end for v in versions if v.end > timestamp]
        end = min([*starts, *ends], default=None)
        before = next((v for v in versions if v.start < timestamp < v.end), None)
        if before is not None:
            self._remove_old(raw_key, before)
            self._put_old(raw_key, before._replace(end=timestamp))
        if end is None and data is not None:
            self._put_latest(raw_key, data, timestamp)  # as in Kafka Streams, a deletion with this timestamp is kept
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
        """Return a key's old versions and deletions that ended at ``from_ms`` or later, sorted by segment and start."""
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
