"""The store for unmatched records from both sides of a left or outer stream-stream join.

Source: Kafka 3.9 OuterStreamJoinStoreFactory, ListValueStore, TimestampedKeyAndJoinSide and
KStreamImplJoin.TimeTracker.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from zkconsumer.topology.serdes import Serde, choose_serde
from zkconsumer.topology.stores.base import (
    SerdeStore,
    StoreContext,
    deserializer,
    value_serializer,
)
from zkconsumer.topology.stores.builder import StoreBuilder

_KEY = struct.Struct(">QB")
_LENGTH = struct.Struct(">I")
_TIMES = struct.Struct(">qqq")
_STATE_KEY = b"\xff" * 10
_MAX_TIME = (1 << 63) - 1


class WaitingRecord(NamedTuple):
    """A record that has no match yet.

    Attributes:
        raw: key of the record in the store.
        timestamp: record timestamp, in milliseconds since the epoch.
        is_left: whether the record belongs to the left stream, on which the join was called.
        key: record key.
        value: record value.
    """

    raw: bytes
    timestamp: int
    is_left: bool
    key: Any
    value: Any


class JoinStore(SerdeStore):
    """A store for the unmatched records of a join, and for the times that both sides share.

    Args:
        name: name of the store.
        serdes: key serde, and value serde of the left stream.
        other: value serde of the right stream.
        is_persistent: see ``StateStore``.

    Attributes:
        stream_time_ms: highest record timestamp on either side; -1 before the first record.
        min_time_ms: lower bound for the timestamps of unmatched records.
        next_search_ms: earliest wall-clock time of the next search for closed windows, in milliseconds since the epoch.
    """

    def __init__(self, name: str, serdes: tuple[Serde, Serde], other: Serde, is_persistent: bool) -> None:
        super().__init__(name, serdes, is_persistent)
        self.stream_time_ms, self.min_time_ms, self.next_search_ms = -1, _MAX_TIME, 0
        self._written = (-1, _MAX_TIME, 0)
        self._serialize_other = value_serializer(name, other)
        self._deserialize_other = deserializer(name, other, "value")

    def init(self, context: StoreContext) -> None:
        """Open the store."""
        self._map = context.byte_map(self.name)
        self._read()

    def rollback(self) -> None:
        """Discard changes since the last commit."""
        self._read()

    def flush(self) -> None:
        """Write the times that both sides share, if they changed."""
        times = self.stream_time_ms, self.min_time_ms, self.next_search_ms
        if times != self._written:
            self._map.put(_STATE_KEY, _TIMES.pack(*times))
            self._written = times

    def add(self, timestamp: int, is_left: bool, key: Any, value: Any) -> None:
        """Add an unmatched record."""
        raw = self.encode_key(timestamp, is_left, key)
        serialize = self._serialize_value if is_left else self._serialize_other
        data = serialize(value)
        self._map.put(raw, (self._map.get(raw) or b"") + _LENGTH.pack(len(data)) + data)

    def encode_key(self, timestamp: int, is_left: bool, key: Any) -> bytes:
        """Return the store key of the records with this timestamp, side and record key."""
        return _KEY.pack(timestamp, is_left) + self._serialize_key(key)

    def remove(self, raw: bytes) -> None:
        """Remove the records with store key ``raw``, if there are any; see ``encode_key``."""
        if self._map.get(raw) is not None:
            self._map.delete(raw)

    def all(self) -> Iterator[WaitingRecord]:
        """Yield all records, sorted by timestamp. At equal timestamps, records of the right stream come first."""
        for raw, data in self._map.scan(b"", _STATE_KEY):
            timestamp, is_left = _KEY.unpack_from(raw)
            key = self._deserialize_key(raw[_KEY.size :])
            deserialize = self._deserialize_value if is_left else self._deserialize_other
            position = 0
            while position < len(data):
                (length,) = _LENGTH.unpack_from(data, position)
                position += _LENGTH.size
                value = deserialize(data[position : position + length])
                yield WaitingRecord(raw, timestamp, bool(is_left), key, value)
                position += length

    def _read(self) -> None:
        state = self._map.get(_STATE_KEY)
        stream, lowest, search = _TIMES.unpack(state) if state is not None else (-1, _MAX_TIME, 0)
        self.stream_time_ms, self.min_time_ms, self.next_search_ms = int(stream), int(lowest), int(search)
        self._written = self.stream_time_ms, self.min_time_ms, self.next_search_ms

    def reset_min_time(self) -> None:
        """Reset ``min_time_ms``, as if there were no unmatched records."""
        self.min_time_ms = _MAX_TIME


class JoinStoreBuilder(StoreBuilder):
    """Builder for a ``JoinStore``, which has three serdes."""

    def with_default_serdes(self, key: Serde, value: Serde) -> StoreBuilder:
        """Return a copy in which the given serdes replace missing ones."""
        chosen = super().with_default_serdes(key, value)
        parameters = {**chosen.parameters, "other": choose_serde(chosen.parameters["other"], value)}
        return StoreBuilder(chosen.name, chosen.kind, parameters, chosen.logging, chosen.caching)

    def __reduce__(self) -> tuple[Any, ...]:
        return JoinStoreBuilder, (self.name, self.kind, dict(self.parameters), self.logging, self.caching)


def build_join_store(name: str, key: Serde | None, value: Serde | None, other: Serde | None) -> StoreBuilder:
    """Return a builder for a ``JoinStore``; a serde of None is replaced by the application's default."""
    parameters = {"serdes": (key, value), "other": other, "is_persistent": True}
    return JoinStoreBuilder(name, JoinStore, parameters)
