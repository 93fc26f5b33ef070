"""The format of a byte map: its pages, directory and header."""

from __future__ import annotations

import struct
from bisect import bisect_left, insort
from itertools import accumulate, chain, islice
from operator import lt
from typing import NamedTuple

#: Format version: the first byte of each entry page and of the header.
FORMAT = 1

#: Size of the format version and entry count at the start of a page, in bytes.
HEAD_BYTES = 5

#: Size of the key length and value length of an entry, in bytes.
LENGTHS_BYTES = 8

_HEADER = struct.Struct("<BqqI")

#: Maximum value of the numbers in a valid header. Arithmetic with larger numbers could overflow 64 bits.
_MAX_NUMBER = 1 << 62


class NewerFormatError(ValueError):
    """Raised for a page in the format of a later release."""


class CorruptPageError(ValueError):
    """Raised by a page store for a corrupt page.

    Args:
        page_id: id of the page.
        reason: description of the problem, for example ``checksum mismatch``.
    """

    def __init__(self, page_id: int, reason: str) -> None:
        super().__init__(reason)
        self.page_id = page_id


class Page:
    """The entries of a key range.

    Attributes:
        entries: dict from keys to values.
        order: sorted keys.
        size: size of the encoded page, in bytes.
        is_sorted: whether ``entries`` is sorted by key, so that ``encode`` need not sort its values.
    """

    __slots__ = ("entries", "is_sorted", "order", "size")

    def __init__(self, entries: dict[bytes, bytes], order: list[bytes], size: int) -> None:
        self.entries, self.order, self.size = entries, order, size
        self.is_sorted = True

    @classmethod
    def decode(cls, data: bytes) -> Page:
        """Decode a page. The format is: version, entry count, key lengths, value lengths, keys, values.

        Raises:
            ValueError: the page is corrupt.
            NewerFormatError: the page has the format of a later release.
        """
        _check_length(data, HEAD_BYTES)
        _check_format(data)
        (count,) = struct.unpack_from("<I", data, 1)
        start = HEAD_BYTES + LENGTHS_BYTES * count
        _check_length(data, start)
        lengths = struct.unpack_from(f"<{2 * count}I", data, HEAD_BYTES)
        ends = list(accumulate(chain((start,), lengths)))
        if ends[-1] != len(data):
            raise ValueError(f"expected {ends[-1]} bytes, got {len(data)}")
        parts = [data[ends[i] : ends[i + 1]] for i in range(2 * count)]
        order = parts[:count]
        _check_order(order)
        return cls(dict(zip(order, parts[count:], strict=True)), order, len(data))

    def check_range(self, first_key: bytes, stop: bytes | None) -> None:
        """Raise ValueError if a key is less than ``first_key``, or not less than ``stop``; None means no bound."""
        if self.order and (self.order[0] < first_key or (stop is not None and self.order[-1] >= stop)):
            raise ValueError("a key is outside the key range of the page")

    def encode(self) -> bytes:
        """Return the page in the format that ``decode`` reads."""
        order = self.order
        if not self.is_sorted:
            self.entries = dict(zip(order, map(self.entries.__getitem__, order), strict=True))
            self.is_sorted = True
        values = self.entries.values()
        head = struct.pack(f"<BI{2 * len(order)}I", FORMAT, len(order), *map(len, order), *map(len, values))
        return b"".join((head, *order, *values))

    def put(self, key: bytes, value: bytes) -> bytes | None:
        """Set the value of ``key``, and return the previous value, or None if there was none."""
        old = self.entries.get(key)
        self.entries[key] = value
        if old is not None:
            self.size += len(value) - len(old)
            return old
        insort(self.order, key)
        self.is_sorted = self.is_sorted and self.order[-1] is key
        self.size += LENGTHS_BYTES + len(key) + len(value)
        return None

    def delete(self, key: bytes) -> bytes | None:
        """Delete ``key``, and return its value, or None if there was none."""
        old = self.entries.pop(key, None)
        if old is not None:
            del self.order[bisect_left(self.order, key)]
            self.size -= LENGTHS_BYTES + len(key) + len(old)
        return old

    def scan(self, start: bytes, stop: bytes | None) -> list[tuple[bytes, bytes]]:
        """Return the entries whose keys are between ``start`` and ``stop`` (exclusive); None means no bound."""
        entries, order = self.entries, self.order
        high = len(order) if stop is None else bisect_left(order, stop)
        return [(key, entries[key]) for key in order[bisect_left(order, start) : high]]

    def discard(self, start: bytes, stop: bytes) -> list[tuple[bytes, bytes]]:
        """Remove the entries whose keys are between ``start`` and ``stop`` (exclusive), and return them."""
        low, high = bisect_left(self.order, start), bisect_left(self.order, stop)
        removed = [(key, self.entries.pop(key)) for key in self.order[low:high]]
        self.size -= sum(LENGTHS_BYTES + len(key) + len(value) for key, value in removed)
        del self.order[low : max(low, high)]
        return removed

    def split(self) -> Page:
        """Move the second half of the data to a new page, and return it. The page must have at least two entries."""
        sizes = list(accumulate(LENGTHS_BYTES + len(key) + len(self.entries[key]) for key in self.order))
        middle = min(max(bisect_left(sizes, self.size // 2), 1), len(self.order) - 1)
        moved = self.order[middle:]
        del self.order[middle:]
        new = Page({key: self.entries.pop(key) for key in moved}, moved, self.size - sizes[middle - 1])
        self.size = HEAD_BYTES + sizes[middle - 1]
        return new

    def join(self, right: Page) -> None:
        """Append the entries of the next page, ``right``."""
        self.entries.update(right.entries)
        self.order += right.order
        self.is_sorted = self.is_sorted and right.is_sorted
        self.size += right.size - HEAD_BYTES


class MapHeader(NamedTuple):
    """The header of a byte map. It is stored in a page of its own.

    Attributes:
        next_id: id of the next new page.
        entries: number of entries.
        directory_pages: number of directory pages.
        layout: description of the key and value format.
    """

    next_id: int
    entries: int
    directory_pages: int
    layout: str

    @classmethod
    def decode(cls, data: bytes) -> MapHeader:
        """Decode a header. For the errors, see ``Page.decode``."""
        _check_length(data, _HEADER.size)
        _check_format(data)
        _, next_id, entries, directory_pages = _HEADER.unpack_from(data)
        if next_id > _MAX_NUMBER or abs(entries) > _MAX_NUMBER:
            raise ValueError(f"entry count {entries} or next page id {next_id} is out of range")
        return cls(next_id, entries, directory_pages, data[_HEADER.size :].decode())

    def encode(self) -> bytes:
        """Return the header in the format that ``decode`` reads."""
        return _HEADER.pack(FORMAT, *self[:3]) + self.layout.encode()


def encode_directory(first_keys: list[bytes], ids: list[int], page_bytes: int) -> list[bytes]:
    """Encode a directory, and return its pages.

    Args:
        first_keys: first key of each entry page.
        ids: id of each entry page.
        page_bytes: maximum size of a directory page, in bytes.
    """
    lengths = struct.pack(f"<I{len(ids)}I", len(ids), *map(len, first_keys))
    data = b"".join((lengths, struct.pack(f"<{len(ids)}q", *ids), *first_keys))
    return [data[i : i + page_bytes] for i in range(0, len(data), page_bytes)]


def decode_directory(data: bytes, next_id: int) -> tuple[list[bytes], list[int]]:
    """Decode a directory, and return the first keys and the ids of all entry pages.

    Args:
        data: directory pages, concatenated.
        next_id: id of the next new page, which is greater than all page ids.

    Raises:
        ValueError: the directory is corrupt.
    """
    _check_length(data, 4)
    (count,) = struct.unpack_from("<I", data)
    start = 4 + 12 * count
    _check_length(data, start)
    lengths = struct.unpack_from(f"<{count}I", data, 4)
    ids = list(struct.unpack_from(f"<{count}q", data, 4 + 4 * count))
    ends = list(accumulate(chain((start,), lengths)))
    if ends[-1] != len(data):
        raise ValueError(f"expected {ends[-1]} bytes, got {len(data)}")
    first_keys = [data[ends[i] : ends[i + 1]] for i in range(count)]
    _check_order(first_keys)
    if first_keys[:1] != [b""] or len(set(ids)) != count or not all(0 < page_id < next_id for page_id in ids):
        raise ValueError(f"the first key must be empty, and page ids must be unique and between 1 and {next_id - 1}")
    return first_keys, ids


def _check_length(data: bytes, minimum: int) -> None:
    if len(data) < minimum:
        raise ValueError(f"expected at least {minimum} bytes, got {len(data)}")


def _check_format(data: bytes) -> None:
    if data[0] > FORMAT:
        raise NewerFormatError(f"format {data[0]}, which is newer than the supported format {FORMAT}")
    if data[0] != FORMAT:
        raise ValueError(f"unknown format {data[0]}")


def _check_order(keys: list[bytes]) -> None:
    if not all(map(lt, keys, islice(keys, 1, None))):
        raise ValueError("keys are not sorted")
