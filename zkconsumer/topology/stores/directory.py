"""The page directory of a byte map: the first key and id of each entry page."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from zkconsumer.topology.stores.page_format import decode_directory, encode_directory


class EncodedDirectory:
    """The encoded pages of a directory.

    Args:
        pages: encoded pages of the last commit.
    """

    def __init__(self, pages: list[bytes]) -> None:
        self._committed = self._encoded = pages

    def __len__(self) -> int:
        """Return the number of directory pages as of the last commit."""
        return len(self._committed)

    def update(self, first_keys: list[bytes], ids: list[int], page_bytes: int) -> tuple[int, dict[int, bytes | None]]:
        """Encode a directory. Return its page count, and the pages that changed; None deletes a page.

        Args:
            first_keys: first key of each entry page.
            ids: id of each entry page.
            page_bytes: maximum size of a directory page, in bytes.
        """
        self._encoded = encode_directory(first_keys, ids, page_bytes)
        pairs = enumerate(zip_longest(self._committed, self._encoded))
        return len(self._encoded), {-1 - number: new for number, (old, new) in pairs if new != old}

    def finish_commit(self) -> None:
        """Mark the result of ``update`` as committed."""
        self._committed = self._encoded


class Directory:
    """The first key and id of each entry page, sorted by key. The directory's own pages have negative ids.

    A new directory has one entry page, with id 1.

    Attributes:
        first_keys: first key of each entry page. All keys of a page are less than the first key of the next page.
        ids: id of each entry page.
        next_id: id of the next new page.
        is_changed: whether entry pages were added or removed since the last commit.
        encoded: encoded pages of the directory.
    """

    def __init__(self) -> None:
        self.first_keys, self.ids = [b""], [1]
        self.next_id = 2
        self.is_changed = False
        self.encoded = EncodedDirectory([])

    @classmethod
    def decode(cls, pages: list[bytes], next_id: int) -> Directory:
        """Decode a directory from its pages.

        Raises:
            ValueError: the directory is corrupt.
        """
        directory = cls()
        directory.first_keys, directory.ids = decode_directory(b"".join(pages), next_id)
        directory.next_id = next_id
        directory.encoded = EncodedDirectory(pages)
        return directory

    @staticmethod
    def page_ids(count: int) -> Sequence[int]:
        """Return the page ids of a directory that has ``count`` pages."""
        return range(-1, -1 - count, -1)

    def __len__(self) -> int:
        """Return the number of entry pages."""
        return len(self.ids)

    def key_range(self, index: int) -> tuple[bytes, bytes | None]:
        """Return the first key of an entry page, and the first key of the next page (None for the last page)."""
        return self.first_keys[index], self.first_keys[index + 1] if index + 1 < len(self.ids) else None

    def insert(self, index: int, first_key: bytes) -> int:
        """Insert an entry page at ``index``, and return its id."""
        page_id = self.next_id
        self.first_keys.insert(index, first_key)
        self.ids.insert(index, page_id)
        self.next_id += 1
        self.is_changed = True
        return page_id

    def remove(self, first: int, stop: int) -> list[int]:
        """Remove entry pages ``first`` to ``stop`` (exclusive), and return their ids. At least one page must remain."""
        removed = self.ids[first:stop]
        del self.ids[first:stop], self.first_keys[first:stop]
        self.first_keys[0] = b""
        self.is_changed = True
        return removed

    def encode(self, page_bytes: int) -> tuple[int, dict[int, bytes | None]]:
        """Return the directory's page count, and the pages that changed since the last commit; None deletes a page.

        Args:
            page_bytes: maximum size of a directory page, in bytes.
        """
        if len(self.encoded) and not self.is_changed:
            return len(self.encoded), {}
        return self.encoded.update(self.first_keys, self.ids, page_bytes)

    def finish_commit(self) -> None:
        """Mark the result of ``encode`` as committed."""
        self.encoded.finish_commit()
        self.is_changed = False
