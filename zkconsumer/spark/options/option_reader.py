"""OptionReader: the values of options, as their declarations parse them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from zkconsumer.config.name_hints import FOREIGN_PROPERTIES, hint
from zkconsumer.spark.options.table import BY_NAME, FOREIGN_OPTIONS


class OptionReader:
    """Reads options by name. The options that are unread at the end are properties of the consumer.

    Names are case-insensitive.

    Args:
        options: values as text, by name.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._given = {name.lower(): text for name, text in options.items()}
        self._read: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        """Return the value of an option, or its default if it is absent.

        Raises:
            ConfigurationError: the value is not valid.
        """
        return self.get(name)

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of an option.

        Args:
            default: value if the option is absent; None for the declared default.

        Raises:
            ConfigurationError: the value is not valid.
        """
        declared = BY_NAME[name.lower()]
        self._read.add(name.lower())
        if self.given(name):
            return declared.parse(self._given[name.lower()], "option")
        return declared.parse_default() if default is None else default

    def given(self, name: str) -> bool:
        """Whether the user has set an option or property."""
        return name.lower() in self._given

    def with_prefix(self, prefix: str) -> dict[str, str]:
        """Read all options with a prefix; return them sorted by name, in lower case and without the prefix."""
        names = sorted(name for name in self._given if name.startswith(prefix))
        self._read.update(names)
        return {name.removeprefix(prefix): self._given[name] for name in names}

    def unread(self) -> dict[str, str]:
        """Return the options that have not been read, with names in lower case."""
        return {name: text for name, text in self._given.items() if name not in self._read}


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a hint with the option or property that the user may have meant, or an empty string."""
    candidates = [*known, *(option.name for option in BY_NAME.values() if not option.name.endswith("*"))]
    return hint(name, candidates, {**FOREIGN_PROPERTIES, **FOREIGN_OPTIONS})
