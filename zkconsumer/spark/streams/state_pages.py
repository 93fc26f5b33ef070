"""The pages of the stores of a task, in the state of Spark's operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol


class PageState(Protocol):
    """The part of Spark's ``MapState`` that pages need. Keys are numbers of a store and of a page."""

    def getValue(self, key: tuple[int, int]) -> tuple[bytes] | None:
        """Return a value, or None."""

    def updateValue(self, key: tuple[int, int], value: tuple[bytes]) -> None:
        """Set a value."""

    def removeKey(self, key: tuple[int, int]) -> None:
        """Remove a key."""


class StatePages:
    """The pages of one store. Each call is one round trip to the JVM for each page.

    Spark discards all changes of a batch that fails, so pages are written at once.

    Args:
        state: the state of the operator for a task.
        number: number of the store.
        store: its name.
        is_new: whether the store has no pages, so that none is read: Spark logs a warning for each missing key.
    """

    def __init__(self, state: PageState, number: int, store: str, is_new: bool) -> None:
        self._state, self._number, self.is_new = state, number, is_new
        self.location = f"the state of the query, store {store!r}"

    def read(self, page_ids: Sequence[int]) -> list[bytes | None]:
        """Return pages in the order of their ids; None for one that does not exist."""
        if self.is_new:
            return [None] * len(page_ids)
        found = [self._state.getValue((self._number, page_id)) for page_id in page_ids]
        return [None if value is None else bytes(value[0]) for value in found]

    def write(self, changes: Mapping[int, bytes | None]) -> None:
        """Write pages; None deletes one."""
        for page_id, data in changes.items():
            if data is not None:
                self._state.updateValue((self._number, page_id), (data,))
            elif not self.is_new:
                self._state.removeKey((self._number, page_id))

    def finish_commit(self, _changes: Mapping[int, bytes | None]) -> None:
        """Do nothing: Spark commits the state with the batch."""
        self.is_new = False
