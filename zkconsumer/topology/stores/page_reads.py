"""Reading of pages, and errors of pages.

The compiled ``PagedMap`` calls these functions, too, so that both report the same errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from zkconsumer.errors import StreamsError
from zkconsumer.topology.stores.directory import Directory
from zkconsumer.topology.stores.page_format import CorruptPageError, Header, NewerFormatError, Page

#: Id of the header. Pages of entries have positive ids, and those of the directory negative ones.
HEADER_ID = 0

#: Maximum number of directory pages that one call reads, so that a corrupt header does not use up the memory.
_DIRECTORY_PAGES = 1_024


class ReadablePages(Protocol):
    """The methods of a ``PageStore`` for reading."""

    @property
    def location(self) -> str:
        """Where the pages are kept."""

    def read(self, page_ids: Sequence[int]) -> list[bytes | None]:
        """Return pages in the order of their ids; None for one that does not exist."""


def read_error(store: str, location: str, what: str, error: ValueError) -> StreamsError:
    """Return the error about a corrupt page, or a page with a later format.

    Args:
        store: name of the store.
        location: where its pages are kept.
        what: the page.
        error: the reason.
    """
    if isinstance(error, NewerFormatError):
        return StreamsError(f"store {store!r}: {what} in {location} has {error}; upgrade zkconsumer")
    return StreamsError(f"store {store!r}: {what} in {location} is corrupt: {error}; restore it from a backup")


def read_only_error(store: str) -> StreamsError:
    """Return the error about a change of a read-only map."""
    return StreamsError(f"global store {store!r} is read-only: only its own processor can update it")


def reentrant_error(store: str) -> StreamsError:
    """Return the error about a call of a map during another call of it."""
    return StreamsError(f"store {store!r} was used by its page store, or by another thread, during another call")


def read_pages(pages: ReadablePages, store: str, page_ids: Sequence[int]) -> list[bytes | None]:
    """Return pages in the order of their ids; None for one that does not exist.

    Raises:
        StreamsError: the page store returned something else.
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
    """Return pages of entries, as ``read_pages``; a corrupt page is reported with its id.

    Raises:
        StreamsError: a page is corrupt, or the page store returned something else.
    """
    try:
        return read_pages(pages, store, page_ids)
    except CorruptPageError as error:
        raise read_error(store, pages.location, f"page {error.page_id}", error) from error


def decode_page(
    pages: ReadablePages, store: str, page_id: int, data: bytes | None, first_key: bytes, stop: bytes | None
) -> Page:
    """Return a page of entries whose keys are between ``first_key`` and ``stop``, exclusive; None means no limit.

    Raises:
        StreamsError: the page does not exist or is corrupt, or has keys outside of this range.
    """
    try:
        page = Page.decode(_require(data))
        page.check_range(first_key, stop)
    except ValueError as error:
        raise read_error(store, pages.location, f"page {page_id}", error) from error
    return page


def load_directory(pages: ReadablePages, store: str, layout: str) -> tuple[Directory, int] | None:
    """Return the directory and the number of entries of the last commit; None if there is none.

    Raises:
        StreamsError: the pages are corrupt, or have another layout or the format of a later release.
    """
    try:
        [data] = read_pages(pages, store, [HEADER_ID])
        if data is None:
            return None
        header = Header.decode(data)
        if header.layout != layout:
            raise StreamsError(
                f"store {store!r}: the {pages.location} has entries with layout {header.layout!r}, expected "
                f"{layout!r}; declare the store as before, or rename it"
            )
        found: list[bytes] = []
        page_ids = Directory.page_ids(header.directory_pages)
        for first in range(0, len(page_ids), _DIRECTORY_PAGES):
            found += map(_require, read_pages(pages, store, page_ids[first : first + _DIRECTORY_PAGES]))
        return Directory.decode(found, header.next_id), header.entries
    except ValueError as error:
        raise read_error(store, pages.location, "the directory", error) from error


def _require(data: bytes | None) -> bytes:
    if data is None:
        raise ValueError("the page does not exist")
    return data
