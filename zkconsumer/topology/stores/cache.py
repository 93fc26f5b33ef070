"""Record caches: the latest changes of a store, of which only the last one of each key is written and forwarded.

Source: Kafka 3.9 ThreadCache, NamedCache and LRUCacheEntry.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from zkconsumer.topology.errors import FatalError, FlushError
from zkconsumer.topology.headers import Header
from zkconsumer.topology.loop import Record, RunState
from zkconsumer.topology.records import Change
from zkconsumer.topology.stores.native import PagedMap
from zkconsumer.topology.stores.pages import PageLimits

#: Bytes that Kafka Streams counts for each entry besides key, value, topic and headers: three references of the list of
#: least recently used entries, the flag of changed ones, and timestamp, offset and partition.
_ENTRY_BYTES = 3 * 8 + 1 + 8 + 8 + 4

#: Called with the last change of a key, whose value is a ``Change``.
FlushListener = Callable[[Record], object]

#: Columns and row of the source record of a change, its timestamp and its headers.
_Origin = tuple[Any, int, int, Sequence[Header]]


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


class Backing(Protocol):
    """The store behind a cache. Keys are those of the cache."""

    def read(self, key: bytes) -> bytes | None:
        """Return the value of a key."""

    def write(self, key: bytes, data: bytes | None) -> None:
        """Set the value of a key; None deletes it."""

    def decode_key(self, key: bytes) -> Any:
        """Return the object of a key."""

    def decode_value(self, data: bytes) -> Any:
        """Return the object of a value."""


class StoreCache:
    """The record cache of a store: serialized entries in the order of their last use.

    A change stays in the cache until it is flushed, at a commit or because an entry has to be evicted. A flush writes
    the changes of all keys to the store and passes them to the flush listener, in the order of the last put of each
    key. If a changed entry is evicted, all are flushed, with the evicted one first.

    Args:
        store: name of the store.
        shared: counts the bytes of all caches.
        state: the current record of the task.
        backing: the store behind the cache.

    Attributes:
        listener: called with each change; None if there is none.
        sends_old_values: whether the listener gets the old value of the store.
    """

    def __init__(self, store: str, shared: RecordCache, state: RunState, backing: Backing) -> None:
        self.listener: FlushListener | None = None
        self.sends_old_values = False
        self._store, self._shared, self._state, self._backing = store, shared, state, backing
        #: Value and bytes of each entry; the least recently used one is the first.
        self._entries: OrderedDict[bytes, tuple[bytes | None, int]] = OrderedDict()
        self._dirty: dict[bytes, _Origin] = {}
        self._index: PagedMap | None = None  # the keys in their order; created at the first scan
        self._failure: BaseException | None = None

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def is_dirty(self) -> bool:
        """Whether there are changes that were not flushed."""
        return bool(self._dirty)

    def find(self, key: bytes) -> tuple[bytes | None, int] | None:
        """Return value and bytes of an entry, which becomes the most recently used one; None if there is none."""
        entry = self._entries.get(key)
        if entry is not None:
            self._entries.move_to_end(key)
        return entry

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key. One that is read from the store is added to the cache."""
        entry = self._entries.get(key)
        if entry is not None:
            self._entries.move_to_end(key)
            return entry[0]
        data = self._backing.read(key)
        if data is not None:
            size = len(key) + len(data) + _ENTRY_BYTES
            self._add(key, (data, size))
            if self._shared.size_bytes > self._shared.max_bytes:
                self._evict()
        return data

    def put(self, key: bytes, data: bytes | None) -> None:
        """Set the value of a key; None deletes it from the store at the flush."""
        state, entries, dirty = self._state, self._entries, self._dirty
        source, record = state.source, state.record
        size = len(key) + _ENTRY_BYTES
        if data is not None:
            size += len(data)
        if source is not None:
            size += len(source.topic)
        if record is None:
            origin: _Origin = (source, 0, 0, ())
        else:
            headers = record.headers
            if headers:
                size += count_header_bytes(headers)
            origin = (source, state.row, record.timestamp, headers)
        entry = entries.get(key)
        if entry is None:
            self._add(key, (data, size))
        else:
            entries[key] = (data, size)
            entries.move_to_end(key)
            self._shared.size_bytes += size - entry[1]
        dirty.pop(key, None)
        dirty[key] = origin
        if self._shared.size_bytes > self._shared.max_bytes:
            self._evict()

    def scan(self, start: bytes, stop: bytes | None, reverse: bool) -> list[tuple[bytes, bytes | None]]:
        """Return the entries from ``start`` up to ``stop``, exclusive, which become the most recently used ones."""
        if self._index is None:
            self._index = PagedMap(None, self._store, "cache", PageLimits())
            for key in self._entries:
                self._index.put(key, b"")
        entries = self._entries
        keys = [key for key, _ in self._index.scan(start, stop, reverse)]
        for key in keys:
            entries.move_to_end(key)
        return [(key, entries[key][0]) for key in keys]

    def flush(self) -> None:
        """Write and forward all changes.

        Raises:
            FlushError: the store or the flush listener failed, now or in an earlier call.
        """
        if self._failure is not None:
            raise FlushError(self._store, self._failure) from self._failure
        self._flush([])
        if self._index is not None:  # it keeps what a rollback needs until its own commit
            self._index.finish_commit(self._index.collect_changes())

    def clear(self) -> None:
        """Discard all entries."""
        self._shared.size_bytes -= sum(size for _, size in self._entries.values())
        self._entries.clear()
        self._dirty.clear()
        self._index = None

    def _add(self, key: bytes, entry: tuple[bytes | None, int]) -> None:
        self._entries[key] = entry
        self._shared.size_bytes += entry[1]
        if self._index is not None:
            self._index.put(key, b"")

    def _remove(self, key: bytes, size: int) -> None:
        """Subtract an entry that was removed."""
        self._shared.size_bytes -= size
        if self._index is not None and key not in self._entries:
            self._index.delete(key)

    def _evict(self) -> None:
        """Remove the least recently used entries of this store until all caches together are small enough."""
        shared, entries = self._shared, self._entries
        while entries and shared.size_bytes > shared.max_bytes:
            key, (data, size) = entries.popitem(last=False)
            origin = self._dirty.pop(key, None)
            try:
                if origin is not None:
                    self._flush([(key, data, origin)])
            finally:  # as in Kafka Streams, other caches that are used during the flush still count the entry
                self._remove(key, size)

    def _flush(self, changes: list[tuple[bytes, bytes | None, _Origin]]) -> None:
        """Write and forward some changes, and those of all other keys after them."""
        dirty, entries = self._dirty, self._entries
        deleted = []
        for key, origin in dirty.items():
            data = entries[key][0]
            changes.append((key, data, origin))
            if data is None:
                deleted.append(key)
        dirty.clear()  # before the listener is called, which may put new changes
        if changes:
            self._write(changes)
        for key in deleted:
            entry = entries.get(key)
            if entry is not None and entry[0] is None and key not in dirty:
                del entries[key]
                self._remove(key, entry[1])

    def _write(self, changes: list[tuple[bytes, bytes | None, _Origin]]) -> None:
        state, write = self._state, self._backing.write
        before = state.source, state.row, state.record, state.is_processing
        try:
            state.is_processing = True
            if self.listener is not None:
                self._forward(changes, self.listener)
                return
            for key, data, (state.source, state.row, _, _) in changes:
                write(key, data)
        except BaseException as error:
            self._failure = error
            if not isinstance(error, Exception) or isinstance(error, FatalError):
                raise
            raise FlushError(self._store, error) from error
        finally:
            state.source, state.row, state.record, state.is_processing = before

    def _forward(self, changes: list[tuple[bytes, bytes | None, _Origin]], listener: FlushListener) -> None:
        """Write changes and call the listener; a key that the store does not have is not deleted."""
        state, sends_old, backing = self._state, self.sends_old_values, self._backing
        read, write, decode_key, decode = backing.read, backing.write, backing.decode_key, backing.decode_value
        for key, data, (source, row, timestamp, headers) in changes:
            old = read(key) if data is None or sends_old else None
            if data is None and old is None:
                continue
            state.source, state.row = source, row
            change = Change(
                None if data is None else decode(data), decode(old) if sends_old and old is not None else None
            )
            state.record = record = Record(decode_key(key), change, timestamp, headers)
            write(key, data)
            listener(record)


def count_header_bytes(headers: Sequence[Header]) -> int:
    """Return the bytes that Kafka Streams counts for headers: the characters of names, and the bytes of values."""
    return sum(len(name.encode("utf-16-le")) // 2 + len(value or b"") for name, value in headers)


def merge(
    found: list[tuple[bytes, bytes]], cached: list[tuple[bytes, bytes | None]], reverse: bool
) -> list[tuple[bytes, bytes]]:
    """Return the entries of a store with the changes in its cache, in the order of the keys."""
    if not cached:
        return found
    merged: dict[bytes, bytes | None] = dict(found)
    merged.update(cached)
    return sorted(((key, data) for key, data in merged.items() if data is not None), reverse=reverse)
