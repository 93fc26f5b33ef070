"""Function names for topology descriptions, fingerprints and error messages."""

from __future__ import annotations

from functools import partial
from typing import Any


def function_name(function: Any) -> str:
    """Return the name of a function or class; for any other callable object, its ``str`` or its class name.

    The name of a ``functools.partial`` is the name of its function. The class name is used if the object has Python's
    default representation, because that contains a memory address and differs between runs.
    """
    name = getattr(function, "__qualname__", None)
    if isinstance(name, str):
        return name
    if isinstance(function, partial):
        return function_name(function.func)
    text = str(function)
    return type(function).__qualname__ if text == object.__repr__(function) else text


def qualified_name(function: Any) -> str:
    """Return the name of a function or class, including its module; see ``function_name``."""
    inner = function.func if isinstance(function, partial) else function
    module = getattr(inner, "__module__", None)
    return f"{module}.{function_name(inner)}" if isinstance(module, str) else function_name(inner)
