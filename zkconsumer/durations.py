"""Durations in milliseconds, which applications can also pass as a ``timedelta``."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from zkconsumer.argument_checks import to_integer

#: Argument for a duration: a number of milliseconds, or a ``timedelta`` of whole milliseconds.
Milliseconds = int | timedelta

_MILLISECOND = timedelta(milliseconds=1)

if TYPE_CHECKING:
    # The descriptors tell type checkers that the constructor of a dataclass takes ``Milliseconds``, and that the
    # attribute is an int, to which ``check_fields`` converts it.

    class Duration:
        """Type of a dataclass field for a duration. The field must have a default, set with ``default_ms``."""

        def __get__(self, instance: object, owner: type) -> int: ...
        def __set__(self, instance: object, value: Milliseconds) -> None: ...

    class OptionalDuration:
        """Type of a dataclass field for a duration that can be None; see ``Duration``."""

        def __get__(self, instance: object, owner: type) -> int | None: ...
        def __set__(self, instance: object, value: Milliseconds | None) -> None: ...
else:
    Duration, OptionalDuration = int, int | None


def default_ms(duration: int | None) -> Any:
    """Return the default of a dataclass field of type ``Duration``, without a type that checkers would compare."""
    return duration


def to_milliseconds(value: Any) -> int | None:
    """Return a duration in milliseconds as an int; None unless it is an integer or a ``timedelta`` of whole ones."""
    if isinstance(value, timedelta):
        number, rest = divmod(value, _MILLISECOND)
        return None if rest else number
    return to_integer(value)


def milliseconds(duration: Milliseconds) -> int:
    """Return a valid duration in milliseconds as an int, for callers whose types do not show the conversion."""
    return duration // _MILLISECOND if isinstance(duration, timedelta) else duration
