"""Problems: collects the errors in a configuration, so that all of them are reported together."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from zkconsumer.config.properties_file import FileValue
from zkconsumer.errors import ConfigurationError

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Problems:
    """The problems that were found so far.

    Args:
        path: path of the file to which problems without a value belong; empty if there is none.
    """

    def __init__(self, path: str = "") -> None:
        self._path = path
        self._found: list[tuple[int, str]] = []

    def add(self, problem: object, value: object = None) -> None:
        """Add a problem.

        Args:
            value: the value that has the problem. If it is that of a file, its line precedes the problem.
        """
        if isinstance(value, FileValue):
            self._found.append((value.line, f"{value.place}: {problem}"))
        else:
            self._found.append((0, f"{self._path}: {problem}" if self._path and value is None else str(problem)))

    def attempt(self, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T | None:
        """Call a function; return None and add its error if it raises ``ConfigurationError``."""
        try:
            return function(*args, **kwargs)
        except ConfigurationError as error:
            self.add(error)
            return None

    def check(self) -> None:
        """Raise one error with all problems, one on each line, in the order of the lines of the file."""
        if self._found:
            lines = [text for _, text in sorted(self._found, key=lambda found: found[0])]
            raise ConfigurationError("\n".join(dict.fromkeys(lines)))
