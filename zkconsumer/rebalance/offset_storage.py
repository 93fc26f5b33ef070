"""OffsetStorage: the offset storage of a group member, which can be switched while the member runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from zkconsumer.errors import ClosedError
from zkconsumer.offsets.base import Offsets

T = TypeVar("T")


class OffsetStorage:
    """Holds the storage in use, and during a switch also the target.

    Used by the broker request thread; any thread may call ``close``.

    Args:
        open_offsets: function that opens an offset storage, given ``offsets.storage`` and ``dual.commit.enabled``.
        storage: value of ``offsets.storage``.
        dual_commit: value of ``dual.commit.enabled``.

    Attributes:
        offsets: storage in use.
    """

    def __init__(self, open_offsets: Callable[[str, bool], Offsets], storage: str, dual_commit: bool) -> None:
        self._open_offsets = open_offsets
        self.offsets = open_offsets(storage, dual_commit)
        self._opened: tuple[Offsets, ...] = (self.offsets,)  # storages to close; replaced as a whole
        self._is_closed = False

    def switch(self, storage: str, dual_commit: bool, copy: Callable[[Offsets], T]) -> T:
        """Open another storage, copy the offsets to it, and use it from now on; return the result of ``copy``.

        If ``copy`` raises an exception, the old storage remains in use.

        Raises:
            ClosedError: ``close`` was called.
        """
        previous, target = self.offsets, self._open_offsets(storage, dual_commit)
        self._opened = (previous, target)
        if self._is_closed:  # checked after _opened is set, so that either close() or this method closes the target
            target.close()
            raise ClosedError("the consumer was shut down")
        try:
            result = copy(target)
        except BaseException:
            self._opened = (previous,)
            target.close()
            raise
        self.offsets, self._opened = target, (target,)
        previous.close()
        return result

    def close(self) -> None:
        """Close all opened storages, which aborts their running requests."""
        self._is_closed = True
        for offsets in self._opened:
            offsets.close()
