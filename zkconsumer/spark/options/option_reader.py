"""Reads the values of options, by their type in the table of options."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from zkconsumer.config.name_hints import FOREIGN_PROPERTIES, hint, suggest
from zkconsumer.errors import ConfigurationError
from zkconsumer.excerpt import excerpt
from zkconsumer.spark.options.table import BY_NAME, FOREIGN_OPTIONS, SourceOption

#: Maximum value of an integer option of Spark.
_LONG_MAX = (1 << 63) - 1

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


class OptionReader:
    """Reads each option once. The options that are unread at the end are properties of the consumer.

    Names are case-insensitive. Defaults, valid values and minima are those of the table of options.

    Args:
        options: values as text, by name.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._unread = {name.lower(): text for name, text in options.items()}

    def __contains__(self, name: str) -> bool:
        """Whether an option is given and has not been read."""
        return name.lower() in self._unread

    def read_similar_to(self, names: Collection[str]) -> str:
        """Read an option whose name is similar to one of the names, and return a hint; an empty string if none is."""
        for given in self._unread:
            if meant := suggest(given, names):
                del self._unread[given]
                return f"; did you mean {meant!r} instead of {given!r}?"
        return ""

    def peek(self, name: str) -> str | None:
        """Return the text of an option without reading it."""
        return self._unread.get(name.lower())

    def text(self, name: str) -> str | None:
        """Return the text of an option, or None if it is absent."""
        return self._unread.pop(name.lower(), None)

    def choice(self, name: str, default: str | None = None) -> str:
        """Return one of the valid values of an option, in lower case.

        Args:
            default: instead of the default in the table.

        Raises:
            ConfigurationError: the value is not valid.
        """
        option = _option(name)
        text = self.text(name) or default or option.default
        assert text is not None, f"{name} has no default"
        if text.lower() not in option.choices:
            raise invalid(name, join_words(map(repr, option.choices), "or"), text)
        return text.lower()

    def flag(self, name: str) -> bool:
        """Return the value of a boolean option.

        Raises:
            ConfigurationError: the value is neither ``true`` nor ``false`` (case-insensitive).
        """
        return self.choice(name) == "true"

    def optional_integer(self, name: str) -> int | None:
        """Return the value of an integer option, or None if it is absent and has no default.

        Raises:
            ConfigurationError: the value is not an integer in the valid range.
        """
        option = _option(name)
        text = self.text(name)
        if text is None:
            return None if option.default is None else int(option.default)
        digits = re.fullmatch(r"\s*([0-9]+)\s*", text)
        if digits is not None and (len(digits[1]) > 19 or int(digits[1]) > _LONG_MAX):
            raise invalid(name, f"an integer of at most {_LONG_MAX}", text)
        if digits is None or int(digits[1]) < option.minimum:
            raise invalid(name, f"an integer of at least {option.minimum}", text)
        return int(digits[1])

    def integer(self, name: str) -> int:
        """Return the value of an integer option that has a default; raises as ``optional_integer`` does."""
        value = self.optional_integer(name)
        assert value is not None, f"{name} has no default"
        return value

    def optional_duration(self, name: str) -> float | None:
        """Return a duration in seconds, or None if the option is absent and has no default.

        The text is as in Spark's options, such as 15m, 90s or 500ms. A number without a unit is milliseconds.

        Raises:
            ConfigurationError: the value is not a duration.
        """
        text = self.text(name) or _option(name).default
        if text is None:
            return None
        parts = re.fullmatch(r"\s*([0-9]{1,12})\s*(ms|s|m|min|h|d)?\s*", text.lower())
        if parts is None:
            raise invalid(name, "a duration such as 15m, 90s or 500ms", text)
        return int(parts[1]) * _SECONDS[parts[2] or "ms"]

    def duration(self, name: str) -> float:
        """Return a duration in seconds of an option that has a default; raises as ``optional_duration`` does."""
        value = self.optional_duration(name)
        assert value is not None, f"{name} has no default"
        return value

    def with_prefix(self, prefix: str) -> dict[str, str]:
        """Read all options with a prefix; return them sorted by name, in lower case and without the prefix."""
        names = sorted(name for name in self._unread if name.startswith(prefix))
        return {name.removeprefix(prefix): self._unread.pop(name) for name in names}

    def unread(self) -> dict[str, str]:
        """Return the options that have not been read, with names in lower case."""
        return dict(self._unread)


def invalid(name: str, expected: str, text: str) -> ConfigurationError:
    """Return the error for a value that is not valid.

    Args:
        expected: what the value must be.
    """
    return ConfigurationError(f"option {name} must be {expected}, got {excerpt(text)}")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a hint with the option or property that the user may have meant, or an empty string."""
    candidates = [*known, *(option.name for option in BY_NAME.values() if not option.name.endswith("*"))]
    return hint(name, candidates, {**FOREIGN_PROPERTIES, **FOREIGN_OPTIONS})


def as_written(name: str) -> str:
    """Return the name of an option in upper and lower case as documented, such as ``startingOffsets``."""
    option = BY_NAME.get(name.lower())
    return name if option is None else option.name


def join_words(words: Iterable[str], conjunction: str) -> str:
    """Return words as ``a, b or c``."""
    *first, last = words
    return f"{', '.join(first)} {conjunction} {last}" if first else last


def _option(name: str) -> SourceOption:
    return BY_NAME[name.lower()]
