"""Byte maps, which are sorted by key and divided into pages.

Each store has one ``PagedMap``. It reads a page when a key in the page is accessed, and writes the changed pages on
commit. A page is therefore read and written at most once between two commits, unless the pages exceed their memory
limit. An entry can be larger than the maximum page size.

See docs/decisions/26-ordered-pages.rst.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from zkconsumer.errors import StreamsError
from zkconsumer.topology.stores.directory import Directory
from zkconsumer.topology.stores.page_format import HEAD_BYTES, MapHeader, Page
from zkconsumer.topology.stores.page_reads import (
    HEADER_ID,
    decode_page,
    load_directory,
    read_entry_pages,
    read_only_error,
)

#: Maximum number of pages that a scan reads per call to the page store.
_SCAN_PAGES = 16


class PageLimits(NamedTuple):
    """Page size and memory limits of a store.

    Attributes:
        page_bytes: maximum size of a page with several entries, in bytes. A larger page is split. A page that is
            smaller than a quarter of this size is joined with a neighbor, if possible.
        memory_bytes: maximum encoded size of the pages in memory, in bytes. Pages that changed since the last commit
            always stay in memory.
    """

    page_bytes: int = 16_384
    memory_bytes: int = 64 << 20


class PageStore(Protocol):
    """Storage for pages: a dictionary, a file, or the state of a Spark task.

    A commit calls ``write`` once for each changed store, then ``TaskRuntime.commit``, then ``finish_commit`` for each
    changed store. If one of these calls fails, the task calls ``TaskRuntime.rollback``, and reads the pages again. The
    methods must not use the map that calls them.

    Attributes:
        location: location of the pages, used in error messages, for example ``state file /tmp/counts``.
    """

    @property
    def location(self) -> str:
        """Location of the pages, used in error messages."""

    def read(self, page_ids: Sequence[int]) -> list[bytes | None]:
        """Return the pages in the order of ``page_ids``; None for a page that does not exist.

        Raises:
            CorruptPageError: a page is corrupt.
        """

    def write(self, changes: Mapping[int, bytes | None]) -> None:
        """Write pages; None deletes a page, if it exists. ``TaskRuntime.commit`` makes the changes permanent."""

    def finish_commit(self, changes: Mapping[int, bytes | None]) -> None:
        """Apply changes that ``write`` did not apply. Called after ``TaskRuntime.commit``."""


class MemoryPages(dict[int, bytes]):
    """A page store in memory."""

    location = "memory"

    def read(self, page_ids: Sequence[int]) -> list[bytes | None]:
        """Return the pages in the order of ``page_ids``; None for a page that does not exist."""
        return [self.get(page_id) for page_id in page_ids]

    def write(self, _changes: Mapping[int, bytes | None]) -> None:
        """Do nothing: ``finish_commit`` applies the changes after ``TaskRuntime.commit``."""

    def finish_commit(self, changes: Mapping[int, bytes | None]) -> None:
        """Apply the changes."""
        for page_id, data in changes.items():
            if data is None:
                self.pop(page_id, None)
            else:
                self[page_id] = data


#: Default limits of a map.
DEFAULT_LIMITS = PageLimits()


class PagedMap:
    """A byte map, which maps bytes to bytes and is sorted by key.

    Key operations, commits and rollbacks change the same pages and counters, so they are in one class, as in
    ``_pages.c``.

    Args:
        pages: page store. None keeps the entries only in this object, so that commits need not encode pages.
        store: store name, used in error messages.
        layout: description of the key and value format. Pages with a different layout are rejected.
        limits: page size and memory limits.

    Attributes:
        is_read_only: whether writes raise an error.
        memory_bytes: encoded size of the pages in memory, in bytes.
        gets: number of gets and scans.
        puts: number of puts and deletes.
        pages_read: number of entry pages that were read.
        pages_written: number of pages that were written or deleted.

    Raises:
        StreamsError: the pages are corrupt, have a different layout, or are in the format of a later release. All
            methods can raise it.
    """

    __slots__ = (
        "_changed",
        "_count",
        "_deleted",
        "_directory",
        "_join_bytes",
        "_layout",
        "_limits",
        "_pages",
        "_store",
        "_unchanged",
        "_undo",
        "gets",
        "is_read_only",
        "memory_bytes",
        "pages_read",
        "pages_written",
        "puts",
    )

    def __init__(
        self, pages: PageStore | None, store: str = "", layout: str = "", limits: PageLimits = DEFAULT_LIMITS
    ) -> None:
        self._pages, self._store, self._layout = pages, store, layout
        # The empty page of a new map must fit in memory, because it cannot be read before it is written.
        self._limits = limits._replace(memory_bytes=max(limits.memory_bytes, HEAD_BYTES))
        self._join_bytes = limits.page_bytes // 4
        self.is_read_only = False
        self.gets = self.puts = self.pages_read = self.pages_written = 0
        self._load()

    def _load(self) -> None:
        self._unchanged: dict[int, Page] = {}  # the oldest page is evicted first
        self._changed: dict[int, Page] = {}
        self._deleted: list[int] = []
        self._count = self.memory_bytes = 0
        self._directory = Directory()
        # Without a page store: the committed values of all keys that changed since the last commit.
        self._undo: dict[bytes, bytes | None] | None = {} if self._pages is None else None
        found = None if self._pages is None else load_directory(self._pages, self._store, self._layout)
        if found is None:
            self._add_unchanged(self._directory.ids[0], Page({}, [], HEAD_BYTES))
        else:
            self._directory, self._count = found

    def __len__(self) -> int:
        """Return the number of entries; an estimate after ``discard``."""
        return max(self._count, 0)

    def get(self, key: bytes) -> bytes | None:
        """Return the value of ``key``, or None if there is none."""
        self.gets += 1
        directory = self._directory
        index = bisect_right(directory.first_keys, key) - 1
        page_id = directory.ids[index]
        page = self._changed.get(page_id) or self._unchanged.get(page_id)
        if page is None:
            page = self._page(index)
            self._evict()
        return page.entries.get(key)

    def put(self, key: bytes, value: bytes) -> None:
        """Set the value of ``key``."""
        if self.is_read_only:
            self.require_writable()
        self.puts += 1
        directory = self._directory
        index = bisect_right(directory.first_keys, key) - 1
        page = self._changed.get(directory.ids[index]) or self._mark_changed(index)
        size = page.size
        old = page.put(key, value)
        self.memory_bytes += page.size - size
        if old is None:
            self._count += 1
        if self._undo is not None:
            self._undo.setdefault(key, old)
        if page.size > self._limits.page_bytes and len(page.order) > 1:
            new = page.split()
            self._changed[directory.insert(index + 1, new.order[0])] = new
            self.memory_bytes += HEAD_BYTES
        self._evict()

    def delete(self, key: bytes) -> bytes | None:
        """Delete ``key``, and return its value, or None if there was none."""
        self.require_writable()
        self.puts += 1
        directory = self._directory
        index = bisect_right(directory.first_keys, key) - 1
        page = self._page(index)
        if key not in page.entries:
            self._evict()
            return None
        self._mark_changed(index)
        size = page.size
        old = page.delete(key)
        self.memory_bytes += page.size - size
        self._count -= 1
        if self._undo is not None:
            self._undo.setdefault(key, old)
        if not page.order and len(directory) > 1:
            self._remove(index, index + 1)
        self._evict()
        return old

    def scan(self, start: bytes = b"", stop: bytes | None = None, reverse: bool = False) -> list[tuple[bytes, bytes]]:
        """Return a snapshot of the entries whose keys are between ``start`` and ``stop``.

        Args:
            start: lower bound, inclusive.
            stop: upper bound, exclusive; None for no bound.
            reverse: whether to return the entries in descending order.
        """
        found: list[tuple[bytes, bytes]] = []
        if stop is not None and stop <= start:
            return found
        self.gets += 1
        first_keys = self._directory.first_keys
        first = bisect_right(first_keys, start) - 1
        end = len(first_keys) if stop is None else bisect_left(first_keys, stop)
        for low in range(first, end, _SCAN_PAGES):
            for page in self._read_pages(range(low, min(low + _SCAN_PAGES, end))):
                found += page.scan(start, stop)
            self._evict()
        if reverse:
            found.reverse()
        return found

    def discard(self, start: bytes, stop: bytes) -> None:
        """Delete all keys between ``start`` and ``stop`` (exclusive).

        Pages between the first and the last affected page are not read.
        """
        self.require_writable()
        directory = self._directory
        first = bisect_right(directory.first_keys, start) - 1
        last = bisect_left(directory.first_keys, stop) - 1
        if last < first:
            return
        for index in sorted({first, last}):
            self._discard_entries(index, start, stop)
        if last - first > 1:
            average = self._count // len(directory)
            pages = [self._find_in_memory(page_id) for page_id in directory.ids[first + 1 : last]]
            for page in pages:
                if page is not None:
                    self._remember(page.scan(b"", None))
            self._count -= sum(average if page is None else len(page.order) for page in pages)
            self._remove(first + 1, last)
            last = first + 1
        for index in sorted({first, last}, reverse=True):
            if len(directory) > 1 and not self._page(index).order:
                self._remove(index, index + 1)
        self._evict()

    # ---- commits ----

    def collect_changes(self) -> dict[int, bytes | None]:
        """Return the pages to write; None deletes a page. The pages stay marked as changed until ``finish_commit``."""
        if self._pages is None or not (self._changed or self._directory.is_changed):
            return {}
        self._join_small_pages()
        changes: dict[int, bytes | None] = dict.fromkeys(self._deleted)
        changes |= {page_id: page.encode() for page_id, page in self._changed.items()}
        directory_pages, directory_changes = self._directory.encode(self._limits.page_bytes)
        changes |= directory_changes
        changes[HEADER_ID] = MapHeader(self._directory.next_id, self._count, directory_pages, self._layout).encode()
        return changes

    def write(self, changes: Mapping[int, bytes | None]) -> None:
        """Write the result of ``collect_changes`` to the page store."""
        if changes and self._pages is not None:
            self._pages.write(changes)
            self.pages_written += len(changes)

    def finish_commit(self, changes: Mapping[int, bytes | None]) -> None:
        """Mark the result of ``collect_changes`` as committed."""
        if self._pages is None:
            self._undo = {}
        elif changes:
            self._pages.finish_commit(changes)
        self._unchanged |= self._changed
        self._changed.clear()
        self._deleted.clear()
        self._directory.finish_commit()
        self._evict()

    def rollback(self) -> None:
        """Discard all changes since the last commit. If the rollback fails, the map is closed."""
        if self._undo is not None:
            is_read_only, self.is_read_only = self.is_read_only, False
            for key, value in self._undo.items():
                if value is None:
                    self.delete(key)
                else:
                    self.put(key, value)
            self._undo, self.is_read_only = {}, is_read_only
            return
        try:
            self._load()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Discard all changes since the last commit. Any later use raises StreamsError."""
        self._pages, self._undo = ClosedPages(self._store), None
        self._unchanged.clear()
        self._changed.clear()
        self.memory_bytes = 0

    def require_writable(self) -> None:
        """Raise an error if the map is read-only."""
        if self.is_read_only:
            raise read_only_error(self._store)

    # ---- pages ----

    def _find_in_memory(self, page_id: int) -> Page | None:
        return self._changed.get(page_id) or self._unchanged.get(page_id)

    def _page(self, index: int) -> Page:
        return self._find_in_memory(self._directory.ids[index]) or self._read_pages([index])[0]

    def _read_pages(self, indexes: Sequence[int]) -> list[Page]:
        """Return the pages at ``indexes``. Pages that are not in memory are read with one call."""
        ids = self._directory.ids
        missing = [index for index in indexes if self._find_in_memory(ids[index]) is None]
        if missing and self._pages is not None:
            found = read_entry_pages(self._pages, self._store, [ids[index] for index in missing])
            self.pages_read += len(missing)
            for index, data in zip(missing, found, strict=True):
                key_range = self._directory.key_range(index)
                page = decode_page(self._pages, self._store, ids[index], data, *key_range)
                self._add_unchanged(ids[index], page)
        in_memory = [self._find_in_memory(ids[index]) for index in indexes]
        return [page for page in in_memory if page is not None]

    def _add_unchanged(self, page_id: int, page: Page) -> None:
        self._unchanged[page_id] = page
        self.memory_bytes += page.size

    def _mark_changed(self, index: int) -> Page:
        page, page_id = self._page(index), self._directory.ids[index]
        self._unchanged.pop(page_id, None)
        self._changed[page_id] = page
        return page

    def _evict(self) -> None:
        """Evict unchanged pages, oldest first, until the size of the pages in memory is within its limit."""
        while self.memory_bytes > self._limits.memory_bytes and self._unchanged and self._pages is not None:
            self.memory_bytes -= self._unchanged.pop(next(iter(self._unchanged))).size

    def _discard_entries(self, index: int, start: bytes, stop: bytes) -> None:
        page = self._page(index)
        size = page.size
        removed = page.discard(start, stop)
        if removed:
            self._mark_changed(index)
            self.memory_bytes += page.size - size
            self._count -= len(removed)
            self._remember(removed)

    def _remember(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        """Without a page store, keep the removed entries for a rollback."""
        if self._undo is not None:
            for key, value in entries:
                self._undo.setdefault(key, value)

    def _remove(self, first: int, stop: int) -> None:
        """Remove pages ``first`` to ``stop`` (exclusive). At least one page must remain."""
        for page_id in self._directory.remove(first, stop):
            page = self._unchanged.pop(page_id, None) or self._changed.pop(page_id, None)
            self.memory_bytes -= 0 if page is None else page.size
            self._deleted.append(page_id)

    def _join_small_pages(self) -> None:
        """Join small changed pages with a neighbor that is in memory, in the order in which they changed."""
        for page_id in list(self._changed):
            page = self._changed.get(page_id)
            if page is not None and page.order and page.size < self._join_bytes:
                index = bisect_right(self._directory.first_keys, page.order[0]) - 1
                if not self._join(index):
                    self._join(index - 1)

    def _join(self, index: int) -> bool:
        """Join a page with the next page if both are in memory and fit in one page; return whether they were joined."""
        ids = self._directory.ids
        if index < 0 or index + 1 >= len(ids):
            return False
        left, right = self._find_in_memory(ids[index]), self._find_in_memory(ids[index + 1])
        if left is None or right is None or left.size + right.size > self._limits.page_bytes - self._join_bytes:
            return False
        self._mark_changed(index)
        self._remove(index + 1, index + 2)
        size = left.size
        left.join(right)
        self.memory_bytes += left.size - size
        return True


class ClosedPages(MemoryPages):
    """A page store for closed maps. Each read raises an error."""

    def __init__(self, store: str) -> None:
        super().__init__()
        self._store = store

    def read(self, _page_ids: Sequence[int]) -> list[bytes | None]:
        raise StreamsError(f"store {self._store!r} is closed")
