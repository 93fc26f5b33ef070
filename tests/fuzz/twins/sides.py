"""Equal calls of a compiled module and of its twin in Python."""

from __future__ import annotations

import hashlib
import random
import struct
from collections import ChainMap
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

from zkconsumer.errors import StreamsError

from .values import StopError


def join_modules(*modules: ModuleType) -> Any:
    """Return one object with the classes and functions of several modules."""
    return SimpleNamespace(**ChainMap(*map(vars, modules)))


def find_difference(left: Any, right: Any) -> tuple[Any, Any]:
    """Return the first parts of two results that are not equal."""
    if isinstance(left, list | tuple) and isinstance(right, list | tuple) and len(left) == len(right):
        for items in zip(left, right, strict=True):
            if items[0] != items[1]:
                return find_difference(*items)
    return left, right


class Side:
    """The objects of one implementation, and what they did.

    Args:
        module: the implementation.
    """

    def __init__(self, module: Any) -> None:
        self.module = module
        self.trace: list[Any] = []

    def outcome(self, call: Callable[[], Any]) -> Any:
        """Return the result of a call, or its error."""
        try:
            return self.plain(call())
        except (Exception, StopError) as error:
            if error.__cause__ is not None or (error.__context__ is not None and isinstance(error, StreamsError)):
                return type(error).__name__, str(error), type(error.__context__).__name__
            return type(error).__name__, self.text(error)

    @staticmethod
    def text(error: BaseException) -> str:
        """Return the message of an error; an empty one for errors whose text depends on the interpreter."""
        text = str(error).replace("zkconsumer.topology.loop.records.", "")
        return "" if type(error) in (TypeError, BufferError) else text

    def plain(self, result: Any) -> Any:
        """Return a result in a form that can be compared with that of the other implementation."""
        record_class: Any = getattr(self.module, "Record", ())
        if isinstance(result, record_class):
            attributes = [self.plain(getattr(result, name, "missing")) for name in result.__match_args__]
            return ["Record", *attributes]
        match result:
            case list() | tuple():
                return [self.plain(item) for item in result]
            case float():
                return struct.pack(">d", result)
            case bool() | int() | str() | bytes() | None:
                return type(result).__mro__[-2].__name__, result
        return type(result).__name__


class Calls:
    """Makes the same random calls of two implementations.

    Args:
        compiled: the compiled module.
        twin: the one in Python.
        rng: random numbers.

    Attributes:
        count: number of calls.
        digest: of the results.
    """

    def __init__(self, compiled: Any, twin: Any, rng: random.Random) -> None:
        self.modules = compiled, twin
        self.rng = rng
        self.count = 0
        self.digest = hashlib.blake2b(digest_size=8)

    def run(self, count: int) -> None:
        """Make calls.

        Raises:
            AssertionError: the implementations differ.
        """
        raise NotImplementedError

    def compare(self, call: Callable[[Side], Any]) -> None:
        """Call a function with both implementations."""
        self.count += 1
        results = []
        for module in self.modules:
            side = Side(module)
            results.append(side.outcome(lambda side=side: call(side)))  # type: ignore[misc]
        if results[0] != results[1]:
            raise AssertionError("{!r} instead of {!r}".format(*find_difference(*results)))
        self.digest.update(repr(results[0]).encode(errors="backslashreplace"))
