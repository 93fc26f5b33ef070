"""The buffer of a stream-table join with a grace period: stream records that wait for late table changes.

Source: Kafka 3.9 RocksDBTimeOrderedKeyValueBuffer.
"""

from __future__ import annotations

import struct

from zkconsumer.topology.dsl.origin import Origin
from zkconsumer.topology.loop.records import Record, RecordMetadata
from zkconsumer.topology.serdes import Serde
from zkconsumer.topology.stores.base import SerdeStore, StoreContext
from zkconsumer.topology.stores.builder import StoreBuilder

_TIME = struct.Struct(">Q")
_NUMBER = struct.Struct(">I")
_STATE = struct.Struct(">qI")
_STATE_KEY = b"\xff" * 9
_LAST_NUMBER = 0x7FFFFFFF


class JoinBuffer(SerdeStore):
    """Buffers records, sorted by timestamp and then by serialized key.

    Args:
        name: name of the store.
        serdes: key and value serdes.
        grace_ms: grace period, in milliseconds of stream time.
        is_persistent: see ``StateStore``.
    """

    def __init__(self, name: str, serdes: tuple[Serde, Serde], grace_ms: int, is_persistent: bool) -> None:
        super().__init__(name, serdes, is_persistent)
        self._grace_ms, self._observed_ms, self._number = grace_ms, -1, 0
        self._written = (-1, 0)

    def init(self, context: StoreContext) -> None:
        """Open the store."""
        self._map = context.byte_map(self.name)
        self._read()

    def rollback(self) -> None:
        """Discard changes since the last commit."""
        self._read()

    def flush(self) -> None:
        """Write the observed stream time and the last sequence number, if they changed."""
        if self._written != (self._observed_ms, self._number):
            self._written = self._observed_ms, self._number
            self._map.put(_STATE_KEY, _STATE.pack(*self._written))

    def put(self, record: Record, metadata: RecordMetadata) -> bool:
        """Add a record; return False if its grace period is already over.

        Args:
            record: record to buffer.
            metadata: topic, partition and offset of the source record.
        """
        if self._observed_ms - self._grace_ms > record.timestamp:
            return False
        self._observed_ms = max(self._observed_ms, record.timestamp)
        self._number = (self._number + 1) & _LAST_NUMBER
        raw = _TIME.pack(record.timestamp) + self._serialize_key(record.key) + _NUMBER.pack(self._number)
        origin, value = Origin(metadata, record.headers).encode(), self._serialize_value(record.value)
        self._map.put(raw, _NUMBER.pack(len(origin)) + origin + value)
        return True

    def take_due(self) -> list[tuple[Record, RecordMetadata]]:
        """Remove the records whose grace period is over, and return them in order, with their metadata."""
        due_ms = self._observed_ms - self._grace_ms
        if due_ms < 0:
            return []
        found = self._map.scan(b"", _TIME.pack(due_ms + 1))
        for raw, _ in found:
            self._map.delete(raw)
        return [self._decode(raw, data) for raw, data in found]

    def _decode(self, raw: bytes, data: bytes) -> tuple[Record, RecordMetadata]:
        (timestamp,), (size,) = _TIME.unpack_from(raw), _NUMBER.unpack_from(data)
        start = _NUMBER.size
        metadata, headers = Origin.decode(data[start : start + size])
        key = self._deserialize_key(raw[_TIME.size : -_NUMBER.size])
        return Record(key, self._deserialize_value(data[start + size :]), timestamp, headers), metadata

    def _read(self) -> None:
        state = self._map.get(_STATE_KEY)
        observed_ms, number = _STATE.unpack(state) if state is not None else (-1, 0)
        self._observed_ms, self._number = int(observed_ms), int(number)
        self._written = self._observed_ms, self._number


def build_join_buffer(name: str, key: Serde | None, value: Serde | None, grace_ms: int) -> StoreBuilder:
    """Return a builder for a ``JoinBuffer``; a serde of None is replaced by the application's default."""
    return StoreBuilder(name, JoinBuffer, {"serdes": (key, value), "grace_ms": grace_ms, "is_persistent": True})
