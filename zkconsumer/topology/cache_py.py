"""Entries of record caches, in Python; ``_loop.c`` has the same classes.

Source: Kafka 3.9 ThreadCache, NamedCache and LRUCacheEntry.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from zkconsumer.topology.headers import Header, count_header_bytes
from zkconsumer.topology.loop_py import Record, RunState

#: Bytes that Kafka Streams counts for each entry besides key, value, topic and headers: three references of the list of
#: least recently used entries, the flag of changed ones, and timestamp, offset and partition.
_ENTRY_BYTES = 3 * 8 + 1 + 8 + 8 + 4


class CachedChange(NamedTuple):
    """A change in a record cache.

    Attributes:
        key: serialized key.
        data: serialized value; None if the key is deleted.
        source: columns with the source record; None in punctuations.
        row: its row.
        timestamp: timestamp of the record that the node had received, in milliseconds.
        headers: its headers at the time of the put; None if there were none.
    """

    key: bytes
    data: bytes | None
    source: Any
    row: int
    timestamp: int
    headers: Sequence[Header] | None


class RecordCache:
    """The bytes of the record caches of all stores whose tasks share it. They belong to one thread.

    Args:
        max_bytes: maximum number of bytes. With 0, no store is cached.

    Attributes:
        max_bytes: see above.
        size_bytes: bytes of the entries in all caches.
    """

    __slots__ = ("max_bytes", "size_bytes")

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.size_bytes = 0


class CacheEntries:
    """Serialized entries in the order of their last use, and the changes in the order of their last put.

    Args:
        shared: counts the bytes of all caches.
        state: the current record of the task.
        conversions: ``Conversions`` of keys and values.
        miss: called with a key that has no entry; returns the value in the store, or None.
        evict: called without arguments if the caches are larger than the maximum after a call.

    Attributes:
        added: list to which new keys are appended, or None.
    """

    __slots__ = ("_conversions", "_dirty", "_entries", "_evict", "_miss", "_shared", "_state", "added")

    def __init__(
        self,
        shared: RecordCache,
        state: RunState,
        conversions: tuple[Callable[[Any], bytes], Callable[[Any], bytes | None], Callable[[bytes], Any], Any],
        miss: Callable[[bytes], bytes | None],
        evict: Callable[[], object],
    ) -> None:
        self._shared, self._state, self._conversions = shared, state, conversions
        self._miss, self._evict = miss, evict
        #: Value and bytes of each entry; the least recently used one is the first.
        self._entries: OrderedDict[bytes, tuple[bytes | None, int]] = OrderedDict()
        self._dirty: dict[bytes, tuple[Any, int, int, Sequence[Header] | None]] = {}
        self.added: list[bytes] | None = None

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def is_dirty(self) -> bool:
        """Whether there are changes."""
        return bool(self._dirty)

    def get(self, key: Any) -> Any:
        """Return the object of a key, or None; see ``get_raw``."""
        data = self.get_raw(self._conversions[0](key))
        return None if data is None else self._conversions[2](data)

    def put(self, key: Any, value: Any) -> None:
        """Set the object of a key; see ``put_raw``."""
        self.put_raw(self._conversions[0](key), None if value is None else self._conversions[1](value))

    def find(self, key: bytes) -> tuple[bytes, bytes | None] | None:
        """Return key and value of an entry, which becomes the most recently used one; None if there is none."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._entries.move_to_end(key)
        return key, entry[0]

    def get_raw(self, key: bytes) -> bytes | None:
        """Return the value of a key. A value from the store is added to the cache."""
        entry = self._entries.get(key)
        if entry is not None:
            self._entries.move_to_end(key)
            return entry[0]
        data = self._miss(key)
        if data is not None:
            if key not in self._entries:
                self._add(key, data, len(key) + len(data) + _ENTRY_BYTES)
            if self._shared.size_bytes > self._shared.max_bytes:
                self._evict()
        return data

    def put_raw(self, key: bytes, data: bytes | None) -> None:
        """Set the value of a key as a change of the current record; None deletes it from the store at the flush."""
        state, source, record = self._state, self._state.source, self._state.record
        headers = () if record is None else tuple(record.headers)
        size = len(key) + _ENTRY_BYTES + len(data or b"") + count_header_bytes(headers)
        if source is not None:
            size += len(source.topic)
        old = self._entries.get(key)
        if old is None:
            self._add(key, data, size)
        else:
            self._shared.size_bytes += size - old[1]
            self._entries[key] = data, size
            self._entries.move_to_end(key)
        self._dirty.pop(key, None)
        origin = (0, 0, None) if record is None else (state.row, record.timestamp, headers or None)
        self._dirty[key] = source, *origin
        if self._shared.size_bytes > self._shared.max_bytes:
            self._evict()

    def take_dirty(self) -> list[CachedChange]:
        """Return all changes. Their entries remain."""
        found = []
        while self._dirty:  # finalizers that run here can change it
            key, entries = next(iter(self._dirty)), self._entries
            origin = self._dirty.pop(key, None)
            if origin is not None:
                found.append(CachedChange(key, entries[key][0], *origin))
        return found

    def pop_oldest(self) -> tuple[bytes, int, CachedChange | None] | None:
        """Remove the least recently used entry, and return its key, its bytes and its change, if it is one.

        Its bytes are not subtracted.
        """
        if not self._entries:
            return None
        key, (data, size) = self._entries.popitem(last=False)
        origin = self._dirty.pop(key, None)
        return key, size, None if origin is None else CachedChange(key, data, *origin)

    def drop_deleted(self, key: bytes) -> int:
        """Remove an entry without a value that is not a change, and return its bytes, which are not subtracted."""
        entry = self._entries.get(key)
        if entry is None or entry[0] is not None or key in self._dirty:
            return 0
        del self._entries[key]
        return entry[1]

    def keys(self) -> list[bytes]:
        """Return the keys, the least recently used one first."""
        return list(self._entries)

    def clear(self) -> None:
        """Remove all entries, and subtract their bytes."""
        entries = self._entries
        self._entries, self._dirty = OrderedDict(), {}
        self._shared.size_bytes -= sum(size for _, size in entries.values())

    def _add(self, key: bytes, data: bytes | None, size: int) -> None:
        self._entries[key] = data, size
        self._shared.size_bytes += size
        if self.added is not None:
            self.added.append(key)


def forward_changes(
    state: RunState,
    changes: list[CachedChange],
    backing: tuple[
        Callable[[bytes], bytes | None],
        Callable[[bytes, bytes | None], object],
        Callable[[bytes], Any],
        Callable[[bytes], Any],
    ],
    listener: Callable[[Record], object],
    change_type: Callable[[Any, Any], Any],
    sends_old_values: bool,
) -> None:
    """Write changes, and call a listener with each; a key that the store does not have is not deleted.

    Args:
        state: the current record of the task.
        changes: the changes.
        backing: ``read``, ``write``, ``decode_key`` and ``decode_value`` of the store behind the cache.
        listener: called with a record whose value is a change.
        change_type: class of changes, a named tuple of the new and the old value.
        sends_old_values: whether the changes have their old values.
    """
    read, write, decode_key, decode = backing
    for change in changes:
        key, data = change.key, change.data
        old = read(key) if data is None or sends_old_values else None
        if data is None and old is None:
            continue
        state.source, state.row = change.source, change.row
        old_value = decode(old) if sends_old_values and old is not None else None
        values = change_type(None if data is None else decode(data), old_value)
        state.record = record = Record(decode_key(key), values, change.timestamp, change.headers or ())
        write(key, data)
        listener(record)
