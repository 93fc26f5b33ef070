"""Functions that read pages, and functions that create the errors that ``PagedMap`` raises.

The compiled and the pure-Python version of ``PagedMap`` use these functions, and therefore report the same errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from zkconsumer.errors import StreamsError
from zkconsumer.topology.stores.directory import Directory
from zkconsumer.topology.stores.page_format import CorruptPageError, MapHeader, NewerFormatError, Page

#: Page id of the header. Entry pages have positive ids, and directory pages have negative ids.
HEADER_ID = 0

#: Maximum number of directory pages per read, so that a corrupt header cannot exhaust memory.
_DIRECTORY_PAGES = 1_024


class ReadablePages(Protocol):
    """The part of a ``PageStore`` that is needed to read pages."""

    @property
    def location(self) -> str:
        """Location of the pages, used in error messages."""

    def read(self, page_ids: Sequence[int]) -> list[bytes | None]:
        """Return the pages in the order of ``page_ids``; None for a page that does not exist."""


def read_error(store: str, location: str, what: str, error: ValueError) -> StreamsError:
    """Return the error for a corrupt page, or for a page in the format of a later release.

    Args:
        store: name of the store.
        location: location of its pages, for example a file.
        what: description of the page, for example ``page 1``.
        error: error raised by the decoder.
    """
    if isinstance(error, NewerFormatError):
        return StreamsError(f"store {store!r}: {what} in {location} has {error}; upgrade zkconsumer")
    return StreamsError(f"store {store!r}: {what} in {location} is corrupt: {error}; restore it from a backup")


def read_only_error(store: str) -> StreamsError:
    """Return the error for a write to a read-only map."""
    return StreamsError(f"global store {store!r} is read-only: only its own processor can update it")


def reentrant_error(store: str) -> StreamsError:
    """Return the error for a call to a map during another call to the same map."""
    return StreamsError(f"store {store!r} was used by its page store, or by another thread, during another call")


def read_pages(pages: ReadablePages, store: str, page_ids: Sequence[int]) -> list[bytes | None]:
    """Return the pages in the order of ``page_ids``; None for a page that does not exist.

    Raises:
        StreamsError: the page store did not return bytes or None for each page.
        CorruptPageError: a page is corrupt.
    """
    found = list(pages.read(page_ids)) if page_ids else []
    if len(found) != len(page_ids):
        raise StreamsError(f"store {store!r}: the page store must return {len(page_ids)} pages, got {len(found)}")
    for data in found:
        if data is not None and type(data) is not bytes:
            raise StreamsError(f"store {store!r}: the page store must return bytes or None, got {type(data).__name__}")
    return found


def read_entry_pages(pages: ReadablePages, store: str, page_ids: Sequence[int]) -> list[bytes | None]:
    """Return entry pages, like ``read_pages``. The error for a corrupt page contains the page id.

    Raises:
        StreamsError: a page is corrupt, or the page store did not return bytes or None for each page.
    """
    try:
        return read_pages(pages, store, page_ids)
    except CorruptPageError as error:
        raise read_error(store, pages.location, f"page {error.page_id}", error) from error


def decode_page(
    pages: ReadablePages, store: str, page_id: int, data: bytes | None, first_key: bytes, stop: bytes | None
) -> Page:
    """Decode an entry page whose keys must be between ``first_key`` and ``stop`` (exclusive); None means no bound.

    Raises:
        StreamsError: the page does not exist, is corrupt, has keys outside this range, or is in the format of a later
            release.
    """
    try:
        page = Page.decode(_require(page_id, data))
        page.check_range(first_key, stop)
    except ValueError as error:
        raise read_error(store, pages.location, f"page {page_id}", error) from error
    return page


def load_directory(pages: ReadablePages, store: str, layout: str) -> tuple[Directory, int] | None:
    """Return the directory and the entry count as of the last commit; None if there was no commit.

    Raises:
        StreamsError: the pages are corrupt, have a different layout, or are in the format of a later release.
    """
    try:
        [data] = read_pages(pages, store, [HEADER_ID])
        if data is None:
            return None
        header = MapHeader.decode(data)
        if header.layout != layout:
            raise StreamsError(
                f"store {store!r}: the entries in {pages.location} have layout {header.layout!r}, expected {layout!r}; "
                "restore the store's previous declaration"
            )
        found: list[bytes] = []
        page_ids = Directory.page_ids(header.directory_pages)
        for first in range(0, len(page_ids), _DIRECTORY_PAGES):
            wanted = page_ids[first : first + _DIRECTORY_PAGES]
            found += map(_require, wanted, read_pages(pages, store, wanted))
        return Directory.decode(found, header.next_id), header.entries
    except ValueError as error:
        raise read_error(store, pages.location, "the directory", error) from error


def _require(page_id: int, data: bytes | None) -> bytes:
    if data is None:
        raise ValueError(f"page {page_id} does not exist")
    return data
