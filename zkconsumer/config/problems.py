"""Problems: collects configuration errors, so that all of them can be reported at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from zkconsumer.config.properties_file import FileValue
from zkconsumer.errors import ConfigurationError

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Problems:
    """The configuration errors found so far.

    Args:
        path: path of the properties file, shown with problems that do not belong to a single value; empty if there is
            no file.
    """

    def __init__(self, path: str = "") -> None:
        self._path = path
        self._found: dict[str, tuple[int, str]] = {}  # displayed text -> (line number, problem)

    def add(self, problem: object, value: object = None) -> None:
        """Add a problem.

        Args:
            value: the invalid value. If it was read from a file, its path and line number precede the problem.
        """
        if isinstance(value, FileValue):
            self._found.setdefault(f"{value.place}: {problem}", (value.line, str(problem)))
        else:
            shown = f"{self._path}: {problem}" if self._path and value is None else str(problem)
            self._found.setdefault(shown, (0, str(problem)))

    def attempt(self, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T | None:
        """Call a function; if it raises ``ConfigurationError``, add the error and return None."""
        try:
            return function(*args, **kwargs)
        except ConfigurationError as error:
            self.add(error)
            return None

    def check(self) -> None:
        """Raise one ``ConfigurationError`` for all problems, if any: one line per problem, ordered by line number."""
        if self._found:
            found = sorted(self._found.items(), key=lambda item: item[1][0])
            error = ConfigurationError("\n".join(shown for shown, _ in found))
            error.problems = tuple(problem for _, problem in found)
            raise error
