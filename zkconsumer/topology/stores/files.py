"""Pages of persistent stores in a file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from os import PathLike, fspath
from typing import Any

from zkconsumer.errors import StreamsError
from zkconsumer.topology.stores.pages import PageStore

_OPEN = (
    "PRAGMA locking_mode = EXCLUSIVE",
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = NORMAL",
    "CREATE TABLE IF NOT EXISTS pages (store TEXT, id INTEGER, data BLOB, PRIMARY KEY (store, id))",
)


class StateFile:
    """The pages of several stores in one SQLite file. All changes between two commits are written, or none.

    Args:
        path: the file; it is created if it does not exist. One object at a time can have it open.

    Raises:
        StreamsError: the file cannot be opened, is in use, or is something else.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self._path = fspath(path)
        try:
            self._connection = sqlite3.connect(self._path, timeout=0)
        except sqlite3.Error as error:
            raise self._failed(error) from error
        try:
            for statement in _OPEN:
                self.execute(statement)
        except StreamsError:
            self._connection.close()
            raise

    def pages(self, store: str) -> PageStore:
        """Return the pages of a store."""
        return _FilePages(self, store)

    def commit(self) -> None:
        """Make the changes permanent.

        Raises:
            StreamsError: the file cannot be written.
        """
        try:
            self._connection.commit()
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def rollback(self) -> None:
        """Discard the changes since the last commit.

        Raises:
            StreamsError: the file cannot be used.
        """
        try:
            self._connection.rollback()
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def close(self) -> None:
        """Discard the changes since the last commit, and close the file."""
        self._connection.close()

    def execute(self, statement: str, values: tuple[object, ...] = ()) -> list[Any]:
        """Run an SQL statement, and return its rows.

        Raises:
            StreamsError: the file cannot be read or written.
        """
        try:
            return self._connection.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def _failed(self, error: sqlite3.Error) -> StreamsError:
        remedy = "; close the driver or process that uses it" if "locked" in str(error) else ""
        return StreamsError(f"state file {self._path} cannot be used: {error}{remedy}")


class _FilePages:
    """The pages of one store of a ``StateFile``."""

    def __init__(self, file: StateFile, store: str) -> None:
        self._execute, self._store = file.execute, store

    def get(self, page_id: int) -> bytes | None:
        """Return a page, or None."""
        rows = self._execute("SELECT data FROM pages WHERE store = ? AND id = ?", (self._store, page_id))
        return rows[0][0] if rows else None

    def write(self, changes: Mapping[int, bytes | None]) -> None:
        """Write pages to the file; None deletes one."""
        for page_id, data in changes.items():
            if data is None:
                self._execute("DELETE FROM pages WHERE store = ? AND id = ?", (self._store, page_id))
            else:
                self._execute("INSERT OR REPLACE INTO pages VALUES (?, ?, ?)", (self._store, page_id, data))

    def finish_commit(self, changes: Mapping[int, bytes | None]) -> None:
        """Do nothing: the pages are in the file."""

    def page_ids(self) -> Iterator[int]:
        """Return the ids of all pages, in any order."""
        return (row[0] for row in self._execute("SELECT id FROM pages WHERE store = ?", (self._store,)))
