"""Record caches, which write and forward only the last change of each key.

Source: Kafka 3.9 ThreadCache and NamedCache.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from zkconsumer.topology.errors import FatalError, FlushError
from zkconsumer.topology.loop.cache_py import CachedChange
from zkconsumer.topology.loop.native import CacheEntries, Record, RecordCache, RunState, forward_changes
from zkconsumer.topology.loop.records import Change
from zkconsumer.topology.stores.native import PagedMap
from zkconsumer.topology.stores.pages import PageLimits
from zkconsumer.topology.stores.serde_map import Conversions

#: Function that is called with the last change of a key: a ``Record`` whose value is a ``Change``.
FlushListener = Callable[[Record], object]


class Backing(Protocol):
    """The store behind a cache. Store and cache use the same serialized keys."""

    def read(self, key: bytes) -> bytes | None:
        """Return the value of ``key``, or None if there is none."""

    def write(self, key: bytes, data: bytes | None) -> None:
        """Set the value of ``key``; None deletes the key."""

    def conversions(self) -> Conversions:
        """Return the key and value conversions for ``StoreCache.entries``."""

    def decode_key(self, key: bytes) -> Any:
        """Deserialize a key."""

    def decode_value(self, data: bytes) -> Any:
        """Deserialize a value."""


class StoreCache:
    """The record cache of a store, which contains serialized entries in LRU order.

    A change stays in the cache until it is flushed, either by a commit or because an entry is evicted. A flush writes
    all changes to the store and passes them to the flush listener, in the order of each key's last put. If a changed
    entry is evicted, all changes are flushed, and the evicted entry comes first.

    Args:
        store: name of the store.
        shared: total size and size limit of the caches that share it.
        state: run state of the task, which contains the current record.
        backing: the store behind the cache.

    Attributes:
        entries: cached entries.
        listener: flush listener, called with each change; None if there is none.
        sends_old_values: whether changes contain the old value from the store.
    """

    def __init__(self, store: str, shared: RecordCache, state: RunState, backing: Backing) -> None:
        self.listener: FlushListener | None = None
        self.sends_old_values = False
        self._store, self._shared, self._state, self._backing = store, shared, state, backing
        self.entries = CacheEntries(shared, state, backing.conversions(), backing.read, self._evict)
        self._index: PagedMap | None = None  # sorted keys; created by the first scan
        self._failure: BaseException | None = None

    @property
    def is_dirty(self) -> bool:
        """Whether there are changes to flush."""
        return self.entries.is_dirty

    def scan(self, start: bytes, stop: bytes | None, reverse: bool) -> list[tuple[bytes, bytes | None]]:
        """Return the cached entries from ``start`` to ``stop`` (exclusive), and mark them as most recently used."""
        if self._index is None:
            self._index = PagedMap(None, self._store, "cache", PageLimits())
            self.entries.added = self.entries.keys()
        self._update_index(self._index)
        found = map(self.entries.find, [key for key, _ in self._index.scan(start, stop, reverse)])
        return [entry for entry in found if entry is not None]

    def flush(self) -> None:
        """Write and forward all changes.

        Raises:
            FlushError: the store or the flush listener failed, in this call or in an earlier one.
        """
        if self._failure is not None:
            raise FlushError(self._store, self._failure) from self._failure
        self._flush(None)
        if self._index is not None:  # releases the values that the index keeps for a rollback
            self._update_index(self._index)
            self._index.finish_commit(self._index.collect_changes())

    def clear(self) -> None:
        """Discard all entries."""
        self.entries.clear()
        self.entries.added = self._index = None

    def _update_index(self, index: PagedMap) -> None:
        """Add newly cached keys to ``index``."""
        added = self.entries.added
        if added:
            for key in added:
                index.put(key, b"")
            added.clear()

    def _remove_from_index(self, key: bytes) -> None:
        if self._index is not None:
            self._update_index(self._index)
            self._index.delete(key)

    def _evict(self) -> None:
        """Evict the least recently used entries of this store until the total cache size is within its limit."""
        while self._shared.size_bytes > self._shared.max_bytes:
            oldest = self.entries.pop_oldest()
            if oldest is None:
                return
            key, size, change = oldest
            self._remove_from_index(key)
            try:
                if change is not None:
                    self._flush(change)
            finally:  # as in Kafka Streams, the entry counts toward the total cache size until the flush is done
                self._shared.size_bytes -= size

    def _flush(self, evicted: CachedChange | None) -> None:
        """Write and forward all changes, starting with ``evicted`` if it is not None."""
        changes = self.entries.take_dirty()  # taken first, because the listener may add new entries
        deleted = [change.key for change in changes if change.data is None]
        if evicted is not None:
            changes.insert(0, evicted)
        if changes:
            self._write(changes)
        for key in deleted:
            size = self.entries.drop_deleted(key)
            if size:
                self._shared.size_bytes -= size
                self._remove_from_index(key)

    def _write(self, changes: list[CachedChange]) -> None:
        state, write = self._state, self._backing.write
        before = state.source, state.row, state.record, state.is_processing
        try:
            state.is_processing = True
            if self.listener is not None:
                backing = self._backing
                functions = backing.read, write, backing.decode_key, backing.decode_value
                forward_changes(state, changes, functions, self.listener, Change, self.sends_old_values)
                return
            for change in changes:
                state.source, state.row = change.source, change.row
                write(change.key, change.data)
        except BaseException as error:
            self._failure = error
            if not isinstance(error, Exception) or isinstance(error, FatalError):
                raise
            raise FlushError(self._store, error) from error
        finally:
            state.source, state.row, state.record, state.is_processing = before


def merge(
    found: list[tuple[bytes, bytes]], cached: list[tuple[bytes, bytes | None]], reverse: bool
) -> list[tuple[bytes, bytes]]:
    """Apply the ``cached`` changes to the entries that were found in a store, and return the result, sorted by key."""
    if not cached:
        return found
    merged: dict[bytes, bytes | None] = dict(found)
    merged.update(cached)
    return sorted(((key, data) for key, data in merged.items() if data is not None), reverse=reverse)
