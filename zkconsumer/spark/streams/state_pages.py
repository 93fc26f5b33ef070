"""Stores a task's store pages in the state of Spark's operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol


class PageState(Protocol):
    """The methods of Spark's ``MapState`` that pages need. A key consists of a store number and a page number."""

    def getValue(self, key: tuple[int, int]) -> tuple[bytes] | None:
        """Return the value for ``key``, or None if there is none."""

    def updateValue(self, key: tuple[int, int], value: tuple[bytes]) -> None:
        """Set the value for ``key``."""

    def removeKey(self, key: tuple[int, int]) -> None:
        """Remove ``key`` and its value."""


class StatePages:
    """The pages of one store. Each page that is read or written requires a round trip to the JVM.

    Spark discards all changes of a failed batch, so pages are written immediately.

    See docs/decisions/32-no-copies-of-pages.rst.

    Args:
        state: the operator's state for a task.
        number: store number.
        store: store name.
        is_new: whether the store has no pages yet. If so, none are read, because Spark logs a warning for each missing
            key.
    """

    def __init__(self, state: PageState, number: int, store: str, is_new: bool) -> None:
        self._state, self._number, self.is_new = state, number, is_new
        self.location = f"the state of the query, store {store!r}"

    def read(self, page_ids: Sequence[int]) -> list[bytes | None]:
        """Return the pages in the order of ``page_ids``; None for each page that does not exist."""
        if self.is_new:
            return [None] * len(page_ids)
        found = [self._state.getValue((self._number, page_id)) for page_id in page_ids]
        return [None if value is None else bytes(value[0]) for value in found]

    def write(self, changes: Mapping[int, bytes | None]) -> None:
        """Write pages; a value of None deletes the page."""
        for page_id, data in changes.items():
            if data is not None:
                self._state.updateValue((self._number, page_id), (data,))
            elif not self.is_new:
                self._state.removeKey((self._number, page_id))

    def finish_commit(self, _changes: Mapping[int, bytes | None]) -> None:
        """Record that the store has pages. Spark commits the state with the batch."""
        self.is_new = False
