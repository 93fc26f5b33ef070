"""State files, which contain the pages of persistent stores."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Callable, Mapping, Sequence
from os import PathLike, fspath
from typing import Any, TypeVar

from zkconsumer.errors import StreamsError
from zkconsumer.topology.stores.page_format import CorruptPageError
from zkconsumer.topology.stores.pages import PageStore

T = TypeVar("T")

#: Maximum seconds to wait for the transactions of other objects that share the file.
_WAIT_S = 600.0

_LOCK = "PRAGMA locking_mode = EXCLUSIVE"
_OPEN = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = NORMAL",
    "CREATE TABLE IF NOT EXISTS pages (store TEXT, id INTEGER, data BLOB, checksum INTEGER, PRIMARY KEY (store, id))",
    "CREATE TABLE IF NOT EXISTS snapshots (name TEXT PRIMARY KEY, data BLOB)",
)

_WRITE = "INSERT OR REPLACE INTO pages (store, id, data, checksum) VALUES (?, ?, ?, ?)"

#: Maps a word in an SQLite error message to a remedy.
_REMEDIES = {
    "locked": "; close the test driver or process that uses it",
    "malformed": "; restore it from a backup",
}


class StateFile:
    """An SQLite file that contains the pages of several stores. Commits are atomic.

    A commit survives even if the process is killed. The file is not synced to disk on each commit, so the last commits
    can be lost after a power failure, but a commit is never partially lost.

    Args:
        path: path of the file, which is created if it does not exist.
        is_shared: whether several objects can open the file at the same time. They wait for each other's transactions,
            which must be started with an explicit BEGIN statement. If False, only one object can open the file.

    Raises:
        StreamsError: the file cannot be opened, is in use, or is not a database.
    """

    def __init__(self, path: str | PathLike[str], *, is_shared: bool = False) -> None:
        self._path = fspath(path)
        self.location = f"state file {self._path}"
        self._connection = self._call(lambda: sqlite3.connect(self._path, timeout=_WAIT_S if is_shared else 0))
        try:
            for statement in _OPEN if is_shared else (_LOCK, *_OPEN):
                self.execute(statement)
        except StreamsError:
            self._connection.close()
            raise

    def pages(self, store: str) -> PageStore:
        """Return the page store for ``store``."""
        return _FilePages(self, store)

    def read_snapshot(self, name: str) -> bytes | None:
        """Return the snapshot ``name`` that was written with ``write_snapshot``, or None if there is none.

        Raises:
            StreamsError: the file cannot be read.
        """
        rows = self.execute("SELECT data FROM snapshots WHERE name = ?", (name,))
        return bytes(rows[0][0]) if rows else None

    def write_snapshot(self, name: str, data: bytes) -> None:
        """Write a snapshot of state that is not in the stores. The snapshot is committed together with the stores.

        Raises:
            StreamsError: the file cannot be written.
        """
        self.execute("INSERT OR REPLACE INTO snapshots (name, data) VALUES (?, ?)", (name, data))

    def clear(self) -> None:
        """Delete all pages and snapshots.

        Raises:
            StreamsError: the file cannot be written.
        """
        for table in ("pages", "snapshots"):
            self.execute(f"DELETE FROM {table}")

    def commit(self) -> None:
        """Commit all changes atomically.

        Raises:
            StreamsError: the file cannot be written.
        """
        self._call(self._connection.commit)

    def rollback(self) -> None:
        """Discard the changes since the last commit.

        Raises:
            StreamsError: the file cannot be used.
        """
        self._call(self._connection.rollback)

    def close(self) -> None:
        """Discard the changes since the last commit, and close the file."""
        self._connection.close()

    def execute(self, statement: str, values: tuple[object, ...] = ()) -> list[Any]:
        """Run an SQL statement, and return its rows.

        Raises:
            StreamsError: the file cannot be read or written.
        """
        return self._call(lambda: self._connection.execute(statement, values).fetchall())

    def _call(self, function: Callable[[], T]) -> T:
        try:
            return function()
        except sqlite3.Error as error:
            remedies = (remedy for symptom, remedy in _REMEDIES.items() if symptom in str(error))
            raise StreamsError(f"{self.location} cannot be used: {error}{next(remedies, '')}") from error


class _FilePages:
    """The pages of one store in a ``StateFile``."""

    def __init__(self, file: StateFile, store: str) -> None:
        self._execute, self._store = file.execute, store
        self.location = file.location

    def read(self, page_ids: Sequence[int]) -> list[bytes | None]:
        """Return the pages in the order of ``page_ids``; None for a page that does not exist.

        Raises:
            CorruptPageError: a page is not a BLOB, or its checksum does not match.
        """
        return [self._read(page_id) for page_id in page_ids]

    def _read(self, page_id: int) -> bytes | None:
        statement = "SELECT data, checksum FROM pages WHERE store = ? AND id = ?"
        for data, checksum in self._execute(statement, (self._store, page_id)):
            if not isinstance(data, bytes):
                raise CorruptPageError(page_id, f"data must be a BLOB, got {type(data).__name__}")
            if checksum != self._checksum(page_id, data):
                raise CorruptPageError(page_id, "checksum mismatch")
            return data
        return None

    def write(self, changes: Mapping[int, bytes | None]) -> None:
        """Write pages to the file; None deletes a page."""
        for page_id, data in changes.items():
            if data is None:
                self._execute("DELETE FROM pages WHERE store = ? AND id = ?", (self._store, page_id))
            else:
                self._execute(_WRITE, (self._store, page_id, data, self._checksum(page_id, data)))

    def _checksum(self, page_id: int, data: bytes) -> int:
        """Return the CRC-32 of the store name, page id and page data. The checksum also detects swapped pages."""
        return zlib.crc32(data, zlib.crc32(f"{self._store}/{page_id}".encode()))

    def finish_commit(self, changes: Mapping[int, bytes | None]) -> None:
        """Do nothing: ``write`` already wrote the pages to the file."""
