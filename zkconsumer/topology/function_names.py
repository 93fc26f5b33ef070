"""Names of functions, for descriptions and errors."""

from __future__ import annotations

from functools import partial
from typing import Any


def function_name(function: Any) -> str:
    """Return the name of a function or class, or of the class of another object that can be called.

    An object with a text of its own is described by it. The default text of Python, which contains a memory address, is
    not used, because it differs from run to run.
    """
    name = getattr(function, "__qualname__", None)
    if isinstance(name, str):
        return name
    if isinstance(function, partial):
        return function_name(function.func)
    text = str(function)
    return type(function).__qualname__ if text == object.__repr__(function) else text


def qualified_name(function: Any) -> str:
    """Return the module and the name of a function or class; see ``function_name``."""
    inner = function.func if isinstance(function, partial) else function
    module = getattr(inner, "__module__", None)
    return f"{module}.{function_name(inner)}" if isinstance(module, str) else function_name(inner)
