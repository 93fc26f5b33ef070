"""The buffer of ``suppress``: the last change of each key, sorted by the time of the key's first change, then by key.

Source: Kafka 3.9 InMemoryTimeOrderedKeyValueChangeBuffer, BufferValue and ProcessorRecordContext.
"""

from __future__ import annotations

import struct
from bisect import insort
from collections.abc import Callable
from typing import Any, NamedTuple

from zkconsumer.topology.dsl.origin import Origin
from zkconsumer.topology.dsl.table_store import TableChange
from zkconsumer.topology.loop.records import Record, RecordMetadata
from zkconsumer.topology.serdes import Serde
from zkconsumer.topology.stores.base import SerdeStore, StoreContext
from zkconsumer.topology.stores.builder import StoreBuilder

_TIMES = struct.Struct(">qqq")
_TIME = struct.Struct(">Q")
_LENGTH = struct.Struct(">I")
_MAX_TIME = (1 << 63) - 1

#: Key prefixes in the byte map: changes by key, index by time and key, total size in bytes.
_CHANGE, _ORDER, _SIZE = b"c", b"o", b"s"
_AFTER_ORDER = b"p"

#: Size of a change's time and of its record's timestamp, offset and partition, in bytes.
_FIXED_BYTES = 8 + 8 + 8 + 4


class _BufferedChange(NamedTuple):
    """A change with serialized values. ``size`` is its size in bytes, as computed by Kafka Streams."""

    prior: bytes | None
    old: bytes | None
    new: bytes | None
    timestamp: int
    origin: Origin
    size: int


class SuppressBuffer(SerdeStore):
    """Buffers the last change of each key. ``init`` reads only times and keys; changes are read on demand.

    Attributes:
        records: number of buffered keys.
        bytes: total size of the buffered changes, in bytes.
        min_time_ms: lowest time in the buffer, in milliseconds.
    """

    def __init__(self, name: str, serdes: tuple[Serde, Serde], is_persistent: bool) -> None:
        super().__init__(name, serdes, is_persistent, "SuppressBuffer indexed by time")
        #: Updates since the last commit, by serialized key; None for an evicted change.
        self._used: dict[bytes, tuple[int, _BufferedChange] | None] = {}
        #: Serialized time and key of each change, sorted. Entries before ``_first`` were evicted.
        self._order: list[bytes] = []
        self._first = 0
        self.bytes = 0

    @property
    def records(self) -> int:
        """Number of buffered keys."""
        return len(self._order) - self._first

    @property
    def min_time_ms(self) -> int:
        """Lowest time in the buffer, in milliseconds."""
        return int(_TIME.unpack_from(self._order[self._first])[0]) if self.records else _MAX_TIME

    def init(self, context: StoreContext) -> None:
        """Read the times and keys of the buffered changes."""
        self._map = context.byte_map(self.name)
        self._read()

    def rollback(self) -> None:
        """Discard changes since the last commit."""
        self._read()

    def flush(self) -> None:
        """Write the updates since the last commit."""
        for key, found in self._used.items():
            if found is None:
                self._map.delete(_CHANGE + key)
            else:
                self._map.put(_CHANGE + key, _encode(*found))
        if self._used:
            self._map.put(_SIZE, _TIME.pack(self.bytes))
        self._used.clear()

    def put(self, time_ms: int, record: Record, metadata: RecordMetadata) -> None:
        """Add a change; a buffered change of the same key is replaced, but its position is kept.

        Args:
            time_ms: time by which a new key is sorted, in milliseconds.
            record: record whose value is the change.
            metadata: topic, partition and offset of the source record. The topic name counts toward ``bytes``.
        """
        key, change = self._serialize_key(record.key), record.value
        old = None if change.old is None else self._serialize_value(change.old)
        new = None if change.new is None else self._serialize_value(change.new)
        found = self._find(key)
        prior = old if found is None else found[1].prior
        headers = record.headers
        size = _FIXED_BYTES + len(key) + len(metadata.topic or "") + sum(len(n) + len(v or b"") for n, v in headers)
        size += len(prior or b"") + (0 if old == prior else len(old or b"")) + len(new or b"")
        if found is None:
            place = _TIME.pack(time_ms) + key
            insort(self._order, place, self._first)
            self._map.put(_ORDER + place, b"")
        else:
            time_ms = found[0]
            self.bytes -= found[1].size
        self._used[key] = (
            time_ms,
            _BufferedChange(prior, old, new, record.timestamp, Origin(metadata, list(headers)), size),
        )
        self.bytes += size

    def evict_while(self, condition: Callable[[], bool], emit: Callable[[Record, RecordMetadata], None]) -> None:
        """While ``condition()`` is true, remove the first change, and call ``emit`` with it and its metadata."""
        while self.records and condition():
            place = self._order[self._first]
            key = place[_TIME.size :]
            _, entry = self._get(key)
            change = TableChange(self._decode(entry.new), self._decode(entry.old))
            metadata, headers = entry.origin
            emit(Record(self._deserialize_key(key), change, entry.timestamp, headers), metadata)
            self._map.delete(_ORDER + place)
            self._first += 1
            self._used[key] = None
            self.bytes -= entry.size
        if self._first > self.records:  # amortizes the cost of deleting from the front
            del self._order[: self._first]
            self._first = 0

    def has(self, key: Any) -> bool:
        """Return whether a change of ``key`` is held back."""
        return self._find(self._serialize_key(key)) is not None

    def get_prior(self, key: Any) -> Any:
        """Return the value that ``key`` had before the held-back changes, or None if it had none."""
        return self._decode(self._get(self._serialize_key(key))[1].prior)

    def _decode(self, data: bytes | None) -> Any:
        return None if data is None else self._deserialize_value(data)

    def _find(self, key: bytes) -> tuple[int, _BufferedChange] | None:
        """Return the time and the buffered change of ``key``, or None if there is none."""
        if key in self._used:
            return self._used[key]
        data = self._map.get(_CHANGE + key)
        return None if data is None else _decode(data)

    def _get(self, key: bytes) -> tuple[int, _BufferedChange]:
        found = self._find(key)
        assert found is not None
        return found

    def _read(self) -> None:
        self._order = [key[len(_ORDER) :] for key, _ in self._map.scan(_ORDER, _AFTER_ORDER)]
        self._first = 0
        size = self._map.get(_SIZE)
        self.bytes = 0 if size is None else int(_TIME.unpack(size)[0])
        self._used.clear()


def _encode(time_ms: int, entry: _BufferedChange) -> bytes:
    values = (b"" if one is None else b"\1" + one for one in (entry.prior, entry.old, entry.new))
    parts = (entry.origin.encode(), *values)
    times = _TIMES.pack(time_ms, entry.timestamp, entry.size)
    return times + b"".join(_LENGTH.pack(len(part)) + part for part in parts)


def _decode(data: bytes) -> tuple[int, _BufferedChange]:
    position, parts = _TIMES.size, []
    time_ms, timestamp, size = _TIMES.unpack_from(data)
    while position < len(data):
        (length,) = _LENGTH.unpack_from(data, position)
        position += _LENGTH.size
        parts.append(data[position : position + length])
        position += length
    prior, old, new = (part[1:] if part else None for part in parts[1:])
    return time_ms, _BufferedChange(prior, old, new, timestamp, Origin.decode(parts[0]), size)


def build_suppress_buffer(name: str, key: Serde | None, value: Serde | None) -> StoreBuilder:
    """Return a builder for a ``SuppressBuffer``; a serde of None is replaced by the application's default."""
    return StoreBuilder(name, SuppressBuffer, {"serdes": (key, value), "is_persistent": True})
