"""Checks of names, functions and lists in the declaration of a topology."""

from __future__ import annotations

from typing import Any

from zkconsumer.errors import TopologyError


def check_name(what: str, name: Any) -> None:
    """Raise TopologyError unless ``name`` is a non-empty str."""
    check_text(f"the name of a {what}", name)


def check_text(what: str, text: Any) -> None:
    """Raise TopologyError unless ``text`` is a non-empty str."""
    if not isinstance(text, str) or not text:
        raise TopologyError(f"{what} must be a non-empty str, got {text!r}")


def to_tuple(what: str, items: Any) -> tuple[Any, ...]:
    """Return ``items`` as a tuple, or raise TopologyError if it is not iterable."""
    try:
        return tuple(items)
    except TypeError:
        raise TopologyError(f"the {what} must be a list, got {items!r}") from None


def check_functions(where: str, **functions: Any) -> None:
    """Raise TopologyError if one of ``functions`` is neither callable nor None."""
    for name, function in functions.items():
        if function is not None and not callable(function):
            raise TopologyError(f"{where}: {name} must be a function, got {function!r}")
