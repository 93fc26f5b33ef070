"""Function names for topology descriptions, fingerprints and error messages."""

from __future__ import annotations

from functools import partial
from typing import Any

#: Modules that were renamed, with the names that the fingerprints of existing checkpoints contain.
_FIRST_NAMES = {"zkconsumer.topology.windowed_serdes": "zkconsumer.topology.dsl.windowed_serdes"}


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
    """Return the name of a function or class, including its module; see ``function_name``.

    A module of zkconsumer keeps its first name, so that a fingerprint does not change when the module is renamed.
    """
    inner = function.func if isinstance(function, partial) else function
    module = getattr(inner, "__module__", None)
    if not isinstance(module, str):
        return function_name(inner)
    return f"{_FIRST_NAMES.get(module, module)}.{function_name(inner)}"
