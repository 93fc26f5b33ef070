"""Reads option values, and parses them as declared in ``options/table.py``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from zkconsumer.config.name_hints import FOREIGN_PROPERTIES, hint
from zkconsumer.spark.options.table import BY_NAME, FOREIGN_OPTIONS


class OptionReader:
    """Reads options by name. Options that remain unread are consumer properties.

    Names are case-insensitive.

    Args:
        options: unparsed option values by name.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._given = {name.lower(): text for name, text in options.items()}
        self._read: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        """Return the value of option ``name``, or its declared default if it is not set.

        Raises:
            ConfigurationError: the value is invalid.
        """
        return self.get(name)

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of option ``name``, or a default if it is not set.

        Args:
            default: default value; None for the declared default.

        Raises:
            ConfigurationError: the value is invalid.
        """
        declared = BY_NAME[name.lower()]
        self._read.add(name.lower())
        if self.given(name):
            return declared.parse(self._given[name.lower()], "option")
        return declared.parse_default() if default is None else default

    def given(self, name: str) -> bool:
        """Return whether the user set option or property ``name``."""
        return name.lower() in self._given

    def with_prefix(self, prefix: str) -> dict[str, str]:
        """Read all options whose names start with ``prefix``.

        Returns:
            The values by option name. The names are sorted, in lower case and without the prefix.
        """
        names = sorted(name for name in self._given if name.startswith(prefix))
        self._read.update(names)
        return {name.removeprefix(prefix): self._given[name] for name in names}

    def unread(self) -> dict[str, str]:
        """Return the options that were not read, with lowercase names."""
        return {name: text for name, text in self._given.items() if name not in self._read}


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a hint that names the option or property that the user probably meant, or an empty string."""
    candidates = [*known, *(option.name for option in BY_NAME.values() if not option.name.endswith("*"))]
    return hint(name, candidates, {**FOREIGN_PROPERTIES, **FOREIGN_OPTIONS})
