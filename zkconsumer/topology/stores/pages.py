"""Ordered maps of bytes, as pages of about 4 to 16 KB. A larger entry has a page of its own.

A store is one ``PagedMap``. It reads a page when a key of it is used, and writes the changed pages at a commit, so each
page is read and written at most once between two commits.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from itertools import islice
from typing import Protocol

from zkconsumer.errors import StreamsError
from zkconsumer.topology.stores.directory import Directory
from zkconsumer.topology.stores.page_format import HEAD_BYTES, Header, NewerFormatError, Page

#: Maximum bytes of a page with several entries; a larger one is split.
SPLIT_BYTES = 16_384

#: Minimum bytes of a changed page; a smaller one joins a neighbor if both fit.
JOIN_BYTES = 4_096

#: Id of the header. Pages of entries have positive ids, and those of the directory negative ones.
_HEADER_ID = 0


class PageStore(Protocol):
    """Where pages are kept: a dictionary, a file, or the state of a Spark task.

    A commit calls ``write`` once for each changed store, then ``TaskRuntime.commit``, then ``finish_commit`` for each
    changed store. If one of them fails, the task calls ``TaskRuntime.rollback``, and reads the pages again.

    Attributes:
        location: where they are kept, for errors, such as ``state file /tmp/counts``.
    """

    @property
    def location(self) -> str:
        """Where the pages are kept."""

    def get(self, page_id: int) -> bytes | None:
        """Return a page, or None.

        Raises:
            ValueError: the page is corrupt.
        """

    def write(self, changes: Mapping[int, bytes | None]) -> None:
        """Write pages to the storage; None deletes one if it exists. ``TaskRuntime.commit`` makes this permanent."""

    def finish_commit(self, changes: Mapping[int, bytes | None]) -> None:
        """Apply changes that need no storage, after those of all other stores have been committed."""


class MemoryPages(dict[int, bytes]):
    """Pages in a dictionary, for stores that are not persistent and for tests."""

    location = "memory"

    def write(self, _changes: Mapping[int, bytes | None]) -> None:
        """Do nothing: until the stores in a storage are committed, the dictionary has the pages of the last commit."""

    def finish_commit(self, changes: Mapping[int, bytes | None]) -> None:
        """Apply the changes."""
        for page_id, data in changes.items():
            if data is None:
                self.pop(page_id, None)
            else:
                self[page_id] = data


class _ClosedPages(MemoryPages):
    """Takes the place of the pages of a store that was closed."""

    def __init__(self, store: str) -> None:
        super().__init__()
        self._store = store

    def get(self, _page_id: int, _default: object = None) -> bytes:
        raise StreamsError(f"store {self._store!r} is closed")


class PagedMap:
    """A map from bytes to bytes that is ordered by key.

    Args:
        pages: where the pages are kept.
        store: name of the store, for errors.
        layout: describes the keys and values; pages that were written with another layout are rejected.

    Attributes:
        cached_pages: maximum number of pages that stay in memory after a commit, 64 MB encoded.
        is_read_only: whether changes raise an error.

    Raises:
        StreamsError: the pages are corrupt, or have another layout or the format of a later release. All methods can
            raise it.
    """

    cached_pages = 4_096

    def __init__(self, pages: PageStore, store: str = "", layout: str = "") -> None:
        self._pages, self._store, self._layout = pages, store, layout
        self.is_read_only = False
        self._load()

    def _load(self) -> None:
        self._loaded: dict[int, Page] = {}
        self._changed: set[int] = set()
        self._deleted: list[int] = []
        self._count = 0
        self._directory = Directory()
        try:
            data = self._pages.get(_HEADER_ID)
            if data is None:
                self._loaded[self._directory.ids[0]] = Page({}, [], HEAD_BYTES)
                return
            header = Header.decode(data)
            if header.layout != self._layout:
                raise StreamsError(
                    f"store {self._store!r}: the {self._pages.location} has entries of another kind, {header.layout!r} "
                    f"instead of {self._layout!r}; declare the store as before, or give it another name"
                )
            pages = [_read_page(self._pages, page_id) for page_id in Directory.page_ids(header.directory_pages)]
            self._directory, self._count = Directory.decode(pages, header.next_id), header.entries
        except ValueError as error:
            raise self._read_error("the directory", error) from error

    def __len__(self) -> int:
        """Return the number of entries; it is estimated after ``discard``."""
        return max(self._count, 0)

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, or None."""
        directory = self._directory
        index = bisect_right(directory.first_keys, key) - 1
        page = self._loaded.get(directory.ids[index]) or self._page(index)
        return page.entries.get(key)

    def put(self, key: bytes, value: bytes) -> None:
        """Set the value of a key."""
        if self.is_read_only:
            self.require_writable()
        directory = self._directory
        index = bisect_right(directory.first_keys, key) - 1
        page_id = directory.ids[index]
        page = self._loaded.get(page_id) or self._page(index)
        if page.put(key, value):
            self._count += 1
        self._changed.add(page_id)
        if page.size > SPLIT_BYTES and len(page.order) > 1:
            new = page.split()
            new_id = directory.insert(index + 1, new.order[0])
            self._loaded[new_id] = new
            self._changed.add(new_id)

    def delete(self, key: bytes) -> bytes | None:
        """Remove a key, and return its value, or None if there was none."""
        self.require_writable()
        directory = self._directory
        index = bisect_right(directory.first_keys, key) - 1
        page = self._page(index)
        old = page.delete(key)
        if old is not None:
            self._count -= 1
            self._changed.add(directory.ids[index])
            if not page.order and len(directory) > 1:
                self._remove(index, index + 1)
        return old

    def scan(self, start: bytes = b"", stop: bytes | None = None, reverse: bool = False) -> list[tuple[bytes, bytes]]:
        """Return the entries with keys from ``start`` up to ``stop``, exclusive, as they are now.

        Args:
            start: first key.
            stop: key after the last one; None for no limit.
            reverse: whether the last entry comes first.
        """
        found: list[tuple[bytes, bytes]] = []
        if stop is not None and stop <= start:
            return found
        first_keys = self._directory.first_keys
        index = bisect_right(first_keys, start) - 1
        while index < len(first_keys) and (stop is None or first_keys[index] < stop):
            found += self._page(index).scan(start, stop)
            index += 1
        if reverse:
            found.reverse()
        return found

    def discard(self, start: bytes, stop: bytes) -> None:
        """Remove all keys from ``start`` up to ``stop``, exclusive. Pages in between are not read."""
        self.require_writable()
        directory = self._directory
        first = bisect_right(directory.first_keys, start) - 1
        last = bisect_left(directory.first_keys, stop) - 1
        for index in {first, last} if last >= first else ():
            removed = self._page(index).discard(start, stop)
            if removed:
                self._count -= removed
                self._changed.add(directory.ids[index])
        if last - first > 1:
            average = self._count // len(directory)
            pages = [self._loaded.get(page_id) for page_id in directory.ids[first + 1 : last]]
            self._count -= sum(average if page is None else len(page.order) for page in pages)
            self._remove(first + 1, last)
            last = first + 1
        for index in sorted({first, last}, reverse=True) if last >= first else ():
            if len(directory) > 1 and not self._page(index).order:
                self._remove(index, index + 1)

    def collect_changes(self) -> dict[int, bytes | None]:
        """Return the pages to write, and None for those to delete. They count as changed until ``finish_commit``."""
        if not (self._changed or self._directory.is_changed):
            return {}
        self._join_small_pages()
        changes: dict[int, bytes | None] = dict.fromkeys(self._deleted)
        changes |= {page_id: self._loaded[page_id].encode() for page_id in self._changed}
        directory_pages, directory_changes = self._directory.encode()
        changes |= directory_changes
        changes[_HEADER_ID] = Header(self._directory.next_id, self._count, directory_pages, self._layout).encode()
        return changes

    def write(self, changes: Mapping[int, bytes | None]) -> None:
        """Write what ``collect_changes`` returned to the storage of the pages."""
        if changes:
            self._pages.write(changes)

    def finish_commit(self, changes: Mapping[int, bytes | None]) -> None:
        """Mark what ``collect_changes`` returned as committed, and drop the oldest pages from memory."""
        if changes:
            self._pages.finish_commit(changes)
        self._changed.clear()
        self._deleted.clear()
        self._directory.finish_commit()
        for page_id in list(islice(self._loaded, max(len(self._loaded) - self.cached_pages, 0))):
            del self._loaded[page_id]

    def rollback(self) -> None:
        """Read the pages again, which contain the last commit. If that fails, the map is closed."""
        try:
            self._load()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Discard all changes since the last commit. Every later use raises StreamsError."""
        self._pages = _ClosedPages(self._store)
        self._loaded.clear()
        self._changed.clear()

    def require_writable(self) -> None:
        """Raise an error if the map is read-only."""
        if self.is_read_only:
            raise StreamsError(f"store {self._store!r} is global: only its own processor can change it")

    def _page(self, index: int) -> Page:
        page_id = self._directory.ids[index]
        page = self._loaded.get(page_id)
        if page is None:
            try:
                page = Page.decode(_read_page(self._pages, page_id))
                self._directory.check_range(index, page)
            except ValueError as error:
                raise self._read_error(f"page {page_id}", error) from error
            self._loaded[page_id] = page
        return page

    def _read_error(self, what: str, error: ValueError) -> StreamsError:
        where = self._pages.location
        if isinstance(error, NewerFormatError):
            return StreamsError(f"store {self._store!r}: {what} in {where} has {error}; upgrade zkconsumer")
        return StreamsError(f"store {self._store!r}: {what} in {where} is corrupt: {error}; restore it from a backup")

    def _remove(self, first: int, stop: int) -> None:
        """Remove the pages with these indexes, but not the only one."""
        for page_id in self._directory.remove(first, stop):
            self._loaded.pop(page_id, None)
            self._changed.discard(page_id)
            self._deleted.append(page_id)

    def _join_small_pages(self) -> None:
        """Join changed pages that are small with a neighbor that is in memory."""
        for page_id in list(self._changed):
            page = self._loaded.get(page_id)
            if page is not None and page.order and page.size < JOIN_BYTES:
                index = bisect_right(self._directory.first_keys, page.order[0]) - 1
                if not self._join(index):
                    self._join(index - 1)

    def _join(self, index: int) -> bool:
        """Join a page with the next one, if both are in memory and fit in one page, and return whether they did."""
        ids = self._directory.ids
        if index < 0 or index + 1 >= len(ids):
            return False
        left, right = self._loaded.get(ids[index]), self._loaded.get(ids[index + 1])
        if left is None or right is None or left.size + right.size > SPLIT_BYTES - JOIN_BYTES:
            return False
        left.join(right)
        self._changed.add(ids[index])
        self._remove(index + 1, index + 2)
        return True


def _read_page(pages: PageStore, page_id: int) -> bytes:
    data = pages.get(page_id)
    if data is None:
        raise ValueError("it is missing")
    return data
