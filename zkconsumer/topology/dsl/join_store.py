"""The store of the records that wait for a match, of both sides of a left or outer join of streams.

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
    """A record that waits.

    Attributes:
        raw: its key in the store.
        timestamp: milliseconds since the epoch.
        is_left: whether it is one of the stream on which the join was called.
        key: its key.
        value: its value.
    """

    raw: bytes
    timestamp: int
    is_left: bool
    key: Any
    value: Any


class JoinStore(SerdeStore):
    """The records that wait for a match, and the times that both sides share.

    Args:
        name: name of the store.
        serdes: serdes of keys and of the values of the left stream.
        other: serde of the values of the right stream.
        is_persistent: see ``StateStore``.

    Attributes:
        stream_time_ms: the highest timestamp of both sides; -1 before the first record.
        min_time_ms: the lowest timestamp of the waiting records.
        next_search_ms: wall-clock time of the next search for closed windows.
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
        """Write the times."""
        times = self.stream_time_ms, self.min_time_ms, self.next_search_ms
        if times != self._written:
            self._map.put(_STATE_KEY, _TIMES.pack(*times))
            self._written = times

    def add(self, timestamp: int, is_left: bool, key: Any, value: Any) -> None:
        """Add a record."""
        raw = self.encode_key(timestamp, is_left, key)
        serialize = self._serialize_value if is_left else self._serialize_other
        data = serialize(value)
        self._map.put(raw, (self._map.get(raw) or b"") + _LENGTH.pack(len(data)) + data)

    def encode_key(self, timestamp: int, is_left: bool, key: Any) -> bytes:
        """Return the key of the records with a timestamp, side and key."""
        return _KEY.pack(timestamp, is_left) + self._serialize_key(key)

    def remove(self, raw: bytes) -> None:
        """Remove the records with a key of ``encode_key``, if there are any."""
        if self._map.get(raw) is not None:
            self._map.delete(raw)

    def all(self) -> Iterator[WaitingRecord]:
        """Return all records, by timestamp, with those of the right stream first."""
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
        """Forget the lowest timestamp."""
        self.min_time_ms = _MAX_TIME


class JoinStoreBuilder(StoreBuilder):
    """Declaration of a ``JoinStore``, which has three serdes."""

    def with_default_serdes(self, key: Serde, value: Serde) -> StoreBuilder:
        """Return a builder with these serdes where it has none."""
        chosen = super().with_default_serdes(key, value)
        parameters = {**chosen.parameters, "other": choose_serde(chosen.parameters["other"], value)}
        return StoreBuilder(chosen.name, chosen.kind, parameters, chosen.logging, chosen.caching)

    def __reduce__(self) -> tuple[Any, ...]:
        return JoinStoreBuilder, (self.name, self.kind, dict(self.parameters), self.logging, self.caching)


def build_join_store(name: str, key: Serde | None, value: Serde | None, other: Serde | None) -> StoreBuilder:
    """Return a builder of a ``JoinStore``; None for the serde of the application."""
    parameters = {"serdes": (key, value), "other": other, "is_persistent": True}
    return JoinStoreBuilder(name, JoinStore, parameters)
