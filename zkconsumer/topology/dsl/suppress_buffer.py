"""The buffer of ``suppress``: the last change of each key, ordered by the time of its first change, then by key.

Source: Kafka 3.9 InMemoryTimeOrderedKeyValueChangeBuffer, BufferValue and ProcessorRecordContext.
"""

from __future__ import annotations

import struct
from bisect import insort
from collections.abc import Callable
from typing import Any, NamedTuple

from zkconsumer.topology.headers import Header, decode_headers, encode_headers
from zkconsumer.topology.records import Record
from zkconsumer.topology.serdes import Serde
from zkconsumer.topology.stores.base import SerdeStore, StoreContext
from zkconsumer.topology.stores.builder import StoreBuilder

_TIMES = struct.Struct(">qqq")
_LENGTH = struct.Struct(">I")
_MAX_TIME = (1 << 63) - 1

#: Bytes of the time of a change, and of timestamp, offset and partition of its record.
_FIXED_BYTES = 8 + 8 + 8 + 4


class BufferedChange(NamedTuple):
    """A change that leaves the buffer.

    Attributes:
        key: the key.
        new: the new value, or None.
        old: the old value of the last change, or None.
        timestamp: milliseconds since the epoch.
        headers: headers of the record.
    """

    key: Any
    new: Any
    old: Any
    timestamp: int
    headers: list[Header]


class _Entry(NamedTuple):
    """A change with serialized values; ``size`` is what Kafka Streams counts for it."""

    prior: bytes | None
    old: bytes | None
    new: bytes | None
    timestamp: int
    headers: list[Header]
    size: int


class SuppressBuffer(SerdeStore):
    """The buffer. A task that is continued reads it completely.

    Attributes:
        records: number of keys.
        bytes: their size.
        min_time_ms: lowest time in the buffer, in milliseconds.
    """

    def __init__(self, name: str, serdes: tuple[Serde, Serde], is_persistent: bool) -> None:
        super().__init__(name, serdes, is_persistent)
        self._entries: dict[bytes, tuple[int, _Entry]] = {}
        self._order: list[tuple[int, bytes]] = []
        self._dirty: set[bytes] = set()
        self.bytes = 0

    @property
    def records(self) -> int:
        """Number of keys."""
        return len(self._order)

    @property
    def min_time_ms(self) -> int:
        """Lowest time in the buffer, in milliseconds."""
        return self._order[0][0] if self._order else _MAX_TIME

    def init(self, context: StoreContext) -> None:
        """Read the changes."""
        self._map = context.byte_map(self.name)
        self._read()

    def rollback(self) -> None:
        """Discard changes since the last commit."""
        self._read()

    def flush(self) -> None:
        """Write changes."""
        for key in self._dirty:
            found = self._entries.get(key)
            if found is None:
                self._map.delete(key)
            else:
                self._map.put(key, _encode(*found))
        self._dirty.clear()

    def put(self, time_ms: int, record: Record, topic: str | None) -> None:
        """Add a change, or replace that of the key, whose place stays the same.

        Args:
            time_ms: place of a new key.
            record: the change.
            topic: topic of the source record, whose name counts as bytes.
        """
        key, change = self._serialize_key(record.key), record.value
        old = None if change.old is None else self._serialize_value(change.old)
        new = None if change.new is None else self._serialize_value(change.new)
        found = self._entries.get(key)
        prior = old if found is None else found[1].prior
        headers = record.headers
        size = _FIXED_BYTES + len(key) + len(topic or "") + sum(len(n) + len(v or b"") for n, v in headers)
        size += len(prior or b"") + (0 if old == prior else len(old or b"")) + len(new or b"")
        if found is None:
            insort(self._order, (time_ms, key))
        else:
            time_ms = found[0]
            self.bytes -= found[1].size
        self._entries[key] = time_ms, _Entry(prior, old, new, record.timestamp, list(headers), size)
        self.bytes += size
        self._dirty.add(key)

    def evict_while(self, condition: Callable[[], bool], emit: Callable[[BufferedChange], None]) -> None:
        """Remove the first changes while a condition is true; ``emit`` is called with each."""
        while self._order and condition():
            _, key = self._order[0]
            _, entry = self._entries[key]
            emit(
                BufferedChange(
                    self._deserialize_key(key),
                    self._decode(entry.new),
                    self._decode(entry.old),
                    entry.timestamp,
                    entry.headers,
                )
            )
            del self._order[0], self._entries[key]
            self.bytes -= entry.size
            self._dirty.add(key)

    def has(self, key: Any) -> bool:
        """Return whether a change of a key is held back."""
        return self._serialize_key(key) in self._entries

    def get_prior(self, key: Any) -> Any:
        """Return the value of a key before the changes that are held back."""
        return self._decode(self._entries[self._serialize_key(key)][1].prior)

    def _decode(self, data: bytes | None) -> Any:
        return None if data is None else self._deserialize_value(data)

    def _read(self) -> None:
        self._entries = {key: _decode(data) for key, data in self._map.scan()}
        self._order = sorted((time_ms, key) for key, (time_ms, _) in self._entries.items())
        self.bytes = sum(entry.size for _, entry in self._entries.values())
        self._dirty.clear()


def _encode(time_ms: int, entry: _Entry) -> bytes:
    values = (b"" if one is None else b"\1" + one for one in (entry.prior, entry.old, entry.new))
    parts = (encode_headers(entry.headers), *values)
    times = _TIMES.pack(time_ms, entry.timestamp, entry.size)
    return times + b"".join(_LENGTH.pack(len(part)) + part for part in parts)


def _decode(data: bytes) -> tuple[int, _Entry]:
    position, parts = _TIMES.size, []
    time_ms, timestamp, size = _TIMES.unpack_from(data)
    while position < len(data):
        (length,) = _LENGTH.unpack_from(data, position)
        position += _LENGTH.size
        parts.append(data[position : position + length])
        position += length
    prior, old, new = (part[1:] if part else None for part in parts[1:])
    return time_ms, _Entry(prior, old, new, timestamp, decode_headers(parts[0]), size)


def build_suppress_buffer(name: str, key: Serde | None, value: Serde | None) -> StoreBuilder:
    """Return a builder of a ``SuppressBuffer``; None for the serde of the application."""
    return StoreBuilder(name, SuppressBuffer, {"serdes": (key, value), "is_persistent": True})
