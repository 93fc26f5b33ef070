"""Record cache entries: pure-Python versions of the classes in ``_loop.c``.

Source: Kafka 3.9 ThreadCache, NamedCache and LRUCacheEntry.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from zkconsumer.topology.loop.headers import Header, count_header_bytes
from zkconsumer.topology.loop.loop_py import Record, RunState

#: Overhead that Kafka Streams counts for each entry in addition to key, value, topic and headers, in bytes: three
#: references of the LRU list, the dirty flag, timestamp, offset and partition.
_ENTRY_BYTES = 3 * 8 + 1 + 8 + 8 + 4


class CachedChange(NamedTuple):
    """A change in a record cache.

    Attributes:
        key: serialized key.
        data: serialized value; None if the key is deleted.
        source: columns that contain the source record; None if no source record was being processed.
        row: row number of the source record in ``source``.
        timestamp: timestamp of the record that the node was processing, in milliseconds; 0 if there was none.
        headers: headers of that record at the time of the put; None if there were none.
    """

    key: bytes
    data: bytes | None
    source: Any
    row: int
    timestamp: int
    headers: Sequence[Header] | None


class RecordCache:
    """Size limit shared by the record caches of one or more tasks, which must run in the same thread.

    Args:
        max_bytes: maximum total size in bytes; 0 disables caching.

    Attributes:
        max_bytes: see above.
        size_bytes: total size of the cached entries, in bytes.
    """

    __slots__ = ("max_bytes", "size_bytes")

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.size_bytes = 0


class CacheEntries:
    """Serialized cache entries in LRU order, and unflushed changes in the order of their last put.

    Args:
        shared: total size and size limit of the caches.
        state: run state of the task, which contains the current record.
        conversions: key and value conversions; see ``Conversions``.
        miss: function that returns the stored value of a key that is not cached, or None.
        evict: function without arguments, called when the total cache size exceeds the limit.

    Attributes:
        added: list to which newly cached keys are appended, or None.
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
        #: Value and size in bytes of each entry, least recently used first.
        self._entries: OrderedDict[bytes, tuple[bytes | None, int]] = OrderedDict()
        self._dirty: dict[bytes, tuple[Any, int, int, Sequence[Header] | None]] = {}
        self.added: list[bytes] | None = None

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def is_dirty(self) -> bool:
        """Whether the cache contains changes that have not been flushed."""
        return bool(self._dirty)

    def get(self, key: Any) -> Any:
        """Return the deserialized value for ``key``, or None; see ``get_raw``."""
        data = self.get_raw(self._conversions[0](key))
        return None if data is None else self._conversions[2](data)

    def put(self, key: Any, value: Any) -> None:
        """Serialize and set the value for ``key``; see ``put_raw``."""
        self.put_raw(self._conversions[0](key), None if value is None else self._conversions[1](value))

    def find(self, key: bytes) -> tuple[bytes, bytes | None] | None:
        """Return a cached key and its value, and mark the entry as most recently used; return None on a cache miss."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._entries.move_to_end(key)
        return key, entry[0]

    def get_raw(self, key: bytes) -> bytes | None:
        """Return the value for ``key``, or None. After a cache miss, the value from the store is added to the cache."""
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
        """Set the value for ``key``, with the current record as its source; None deletes the key on the next flush."""
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
        """Return all changes, and mark them as flushed. Their entries stay cached."""
        found = []
        while self._dirty:  # finalizers that run here can change the dictionary
            key, entries = next(iter(self._dirty)), self._entries
            origin = self._dirty.pop(key, None)
            if origin is not None:
                found.append(CachedChange(key, entries[key][0], *origin))
        return found

    def pop_oldest(self) -> tuple[bytes, int, CachedChange | None] | None:
        """Remove the least recently used entry, and return its key, its size and its unflushed change or None.

        Returns None if the cache is empty. The size is not subtracted from the total cache size.
        """
        if not self._entries:
            return None
        key, (data, size) = self._entries.popitem(last=False)
        origin = self._dirty.pop(key, None)
        return key, size, None if origin is None else CachedChange(key, data, *origin)

    def drop_deleted(self, key: bytes) -> int:
        """Remove the entry of a deleted key if it has no unflushed change, and return its size, or 0.

        The size is not subtracted from the total cache size.
        """
        entry = self._entries.get(key)
        if entry is None or entry[0] is not None or key in self._dirty:
            return 0
        del self._entries[key]
        return entry[1]

    def keys(self) -> list[bytes]:
        """Return the keys, least recently used first."""
        return list(self._entries)

    def clear(self) -> None:
        """Remove all entries, and subtract their sizes from the total cache size."""
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
    """Write and forward changes. Deletions of keys that are not in the store are skipped.

    Args:
        state: run state of the task; each change becomes its current record.
        changes: changes to write.
        backing: ``read``, ``write``, ``decode_key`` and ``decode_value`` functions of the store behind the cache.
        listener: function that is called for each change, with a record whose value is the change.
        change_type: named tuple class of a change, which consists of new value and old value.
        sends_old_values: whether changes include the old value.
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
