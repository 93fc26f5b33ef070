"""Ordered maps of bytes, as pages of about 4 to 16 KB. A larger entry has a page of its own.

A store is one ``PagedMap``. It reads a page when a key of it is used, and writes the changed pages at a commit, so each
page is read and written at most once between two commits.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Mapping
from itertools import accumulate, islice, zip_longest
from typing import Protocol

from zkconsumer.errors import StreamsError
from zkconsumer.topology.stores.page_format import (
    HEAD_BYTES,
    LENGTHS_BYTES,
    Header,
    NewerFormatError,
    Page,
    decode_directory,
    encode_directory,
)

#: Bytes above which a page is split, and below which a changed page joins a neighbor.
SPLIT_BYTES, JOIN_BYTES = 16_384, 4_096

#: Id of the header. The ids of directory pages are -1, -2, …
_HEADER_ID = 0

#: Number of pages of a map that stay in memory after a commit: 64 MB, encoded.
_CACHED_PAGES = 4_096


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

    def page_ids(self) -> Iterator[int]:
        """Return the ids of all pages, in any order."""


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

    def page_ids(self) -> Iterator[int]:
        """Return the ids of all pages."""
        return iter(self)


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
        is_read_only: whether changes raise an error.

    Raises:
        StreamsError: the pages are corrupt, or have another layout or the format of a later release. All methods can
            raise it.
    """

    def __init__(self, pages: PageStore, store: str = "", layout: str = "") -> None:
        self._pages, self._store, self._layout = pages, store, layout
        self.is_read_only = False
        self._load()

    def _load(self) -> None:
        self._loaded: dict[int, Page] = {}
        self._changed: set[int] = set()
        self._deleted: list[int] = []
        self._first_keys, self._ids = [b""], [1]
        self._next_id = 2
        self._count = 0
        self._directory: list[bytes] = []
        self._new_directory = self._directory
        self._is_directory_changed = False
        try:
            data = self._pages.get(_HEADER_ID)
            if data is None:
                self._loaded[1] = Page({}, [], HEAD_BYTES)
            else:
                self._read_directory(Header.decode(data))
        except ValueError as error:
            raise self._read_error("the directory", error) from error

    def __len__(self) -> int:
        """Return the number of entries; it is estimated after ``discard``."""
        return max(self._count, 0)

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, or None."""
        return self._page(bisect_right(self._first_keys, key) - 1).entries.get(key)

    def put(self, key: bytes, value: bytes) -> None:
        """Set the value of a key."""
        if self.is_read_only:
            self.require_writable()
        index = bisect_right(self._first_keys, key) - 1
        page = self._page(index)
        old = page.entries.get(key)
        if old is None:
            insort(page.order, key)
            page.is_sorted = page.is_sorted and page.order[-1] is key
            page.size += LENGTHS_BYTES + len(key) + len(value)
            self._count += 1
        else:
            page.size += len(value) - len(old)
        page.entries[key] = value
        self._changed.add(self._ids[index])
        if page.size > SPLIT_BYTES and len(page.order) > 1:
            self._split(index, page)

    def delete(self, key: bytes) -> bytes | None:
        """Remove a key, and return its value, or None if there was none."""
        self.require_writable()
        index = bisect_right(self._first_keys, key) - 1
        page = self._page(index)
        old = page.entries.pop(key, None)
        if old is not None:
            del page.order[bisect_left(page.order, key)]
            page.size -= LENGTHS_BYTES + len(key) + len(old)
            self._changed.add(self._ids[index])
            self._count -= 1
            if not page.order and len(self._ids) > 1:
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
        index = bisect_right(self._first_keys, start) - 1
        while index < len(self._ids) and (stop is None or self._first_keys[index] < stop):
            page = self._page(index)
            order, entries = page.order, page.entries
            low = bisect_left(order, start)
            high = len(order) if stop is None else bisect_left(order, stop)
            found += [(key, entries[key]) for key in order[low:high]]
            index += 1
        if reverse:
            found.reverse()
        return found

    def discard(self, start: bytes, stop: bytes) -> None:
        """Remove all keys from ``start`` up to ``stop``, exclusive. Pages in between are not read."""
        self.require_writable()
        first = bisect_right(self._first_keys, start) - 1
        last = bisect_left(self._first_keys, stop) - 1
        for index in {first, last} if last >= first else ():
            self._discard_within(index, start, stop)
        if last - first > 1:
            average = self._count // len(self._ids)
            pages = [self._loaded.get(page_id) for page_id in self._ids[first + 1 : last]]
            self._count -= sum(average if page is None else len(page.order) for page in pages)
            self._remove(first + 1, last)
            last = first + 1
        for index in sorted({first, last}, reverse=True) if last >= first else ():
            if len(self._ids) > 1 and not self._page(index).order:
                self._remove(index, index + 1)

    def collect_changes(self) -> dict[int, bytes | None]:
        """Return the pages to write, and None for those to delete. They count as changed until ``finish_commit``."""
        if not (self._changed or self._is_directory_changed):
            return {}
        self._join_small_pages()
        changes: dict[int, bytes | None] = dict.fromkeys(self._deleted)
        changes |= {page_id: self._loaded[page_id].encode() for page_id in self._changed}
        if self._is_directory_changed or not self._directory:
            self._new_directory = encode_directory(self._first_keys, self._ids)
            changes |= self._directory_changes()
        header = Header(self._next_id, self._count, len(self._new_directory), self._layout)
        changes[_HEADER_ID] = header.encode()
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
        self._directory, self._is_directory_changed = self._new_directory, False
        for page_id in list(islice(self._loaded, max(len(self._loaded) - _CACHED_PAGES, 0))):
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

    # ---- pages ---------------------------------------------------------------------------------------------

    def _page(self, index: int) -> Page:
        page_id = self._ids[index]
        page = self._loaded.get(page_id)
        if page is None:
            try:
                page = Page.decode(self._read(page_id))
                self._check_range(index, page.order)
            except ValueError as error:
                raise self._read_error(f"page {page_id}", error) from error
            self._loaded[page_id] = page
        return page

    def _check_range(self, index: int, order: list[bytes]) -> None:
        stop = self._first_keys[index + 1] if index + 1 < len(self._ids) else None
        if order and (order[0] < self._first_keys[index] or (stop is not None and order[-1] >= stop)):
            raise ValueError("it has keys of another page")

    def _read(self, page_id: int) -> bytes:
        data = self._pages.get(page_id)
        if data is None:
            raise ValueError("it is missing")
        return data

    def _read_error(self, what: str, error: ValueError) -> StreamsError:
        where = self._pages.location
        if isinstance(error, NewerFormatError):
            return StreamsError(f"store {self._store!r}: {what} in {where} has {error}; upgrade zkconsumer")
        return StreamsError(f"store {self._store!r}: {what} in {where} is corrupt: {error}; restore it from a backup")

    def _discard_within(self, index: int, start: bytes, stop: bytes) -> None:
        page = self._page(index)
        low, high = bisect_left(page.order, start), bisect_left(page.order, stop)
        for key in page.order[low:high]:
            page.size -= LENGTHS_BYTES + len(key) + len(page.entries.pop(key))
        if low < high:
            del page.order[low:high]
            self._count -= high - low
            self._changed.add(self._ids[index])

    def _split(self, index: int, page: Page) -> None:
        """Move the second half of a page's bytes to a new page after it."""
        sizes = list(accumulate(LENGTHS_BYTES + len(key) + len(page.entries[key]) for key in page.order))
        middle = min(max(bisect_left(sizes, page.size // 2), 1), len(page.order) - 1)
        moved = page.order[middle:]
        del page.order[middle:]
        new = Page({key: page.entries.pop(key) for key in moved}, moved, page.size - sizes[middle - 1])
        page.size = HEAD_BYTES + sizes[middle - 1]
        self._changed.add(self._next_id)
        self._loaded[self._next_id] = new
        self._first_keys.insert(index + 1, moved[0])
        self._ids.insert(index + 1, self._next_id)
        self._next_id += 1
        self._is_directory_changed = True

    def _remove(self, first: int, stop: int) -> None:
        """Remove the pages with these indexes, but not the only one."""
        for page_id in self._ids[first:stop]:
            self._loaded.pop(page_id, None)
            self._changed.discard(page_id)
            self._deleted.append(page_id)
        del self._ids[first:stop], self._first_keys[first:stop]
        self._first_keys[0] = b""
        self._is_directory_changed = True

    def _join_small_pages(self) -> None:
        """Join changed pages that are small with a neighbor that is in memory."""
        for page_id in list(self._changed):
            page = self._loaded.get(page_id)
            if page is not None and page.order and page.size < JOIN_BYTES:
                index = bisect_right(self._first_keys, page.order[0]) - 1
                if not self._join(index):
                    self._join(index - 1)

    def _join(self, index: int) -> bool:
        """Join a page with the next one, if both are in memory and fit in one page, and return whether they did."""
        if index < 0 or index + 1 >= len(self._ids):
            return False
        left, right = self._loaded.get(self._ids[index]), self._loaded.get(self._ids[index + 1])
        if left is None or right is None or left.size + right.size > SPLIT_BYTES - JOIN_BYTES:
            return False
        left.entries.update(right.entries)
        left.order += right.order
        left.is_sorted = left.is_sorted and right.is_sorted
        left.size += right.size - HEAD_BYTES
        self._changed.add(self._ids[index])
        self._remove(index + 1, index + 2)
        return True

    def _directory_changes(self) -> dict[int, bytes | None]:
        pairs = enumerate(zip_longest(self._directory, self._new_directory))
        return {-1 - number: new for number, (old, new) in pairs if new != old}

    def _read_directory(self, header: Header) -> None:
        if header.layout != self._layout:
            raise StreamsError(
                f"store {self._store!r}: the {self._pages.location} has entries of another kind, {header.layout!r} "
                f"instead of {self._layout!r}; declare the store as before, or give it another name"
            )
        self._directory = self._new_directory = [self._read(-1 - number) for number in range(header.directory_pages)]
        self._first_keys, self._ids = decode_directory(b"".join(self._directory), header.next_id)
        self._next_id, self._count = header.next_id, header.entries
