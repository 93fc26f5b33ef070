"""How values of options are read."""

from __future__ import annotations

import re
from collections.abc import Callable

from zkconsumer.errors import ConfigurationError

#: The largest number that an option may have.
LARGEST = (1 << 63) - 1

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}

#: Returns the text of an option, once, or None where it is not given.
OptionReader = Callable[[str], str | None]


def number(take: OptionReader, name: str, default: int | None, least: int = 1) -> int | None:
    """Return a whole number from ``least`` on.

    Raises:
        ConfigurationError: it is something else.
    """
    text = take(name)
    if text is None:
        return default
    digits = re.fullmatch(r"\s*([0-9]{1,19})\s*", text)
    if digits is None or not least <= int(digits[1]) <= LARGEST:
        raise ConfigurationError(f"option {name} = {text!r}: a whole number from {least} on is expected")
    return int(digits[1])


def duration(take: OptionReader, name: str, default: str | None) -> float | None:
    """Return seconds from a duration as Spark writes it, such as 15m, 90s or 500ms; a number alone is milliseconds.

    Raises:
        ConfigurationError: it is something else.
    """
    text = take(name) or default
    if text is None:
        return None
    parts = re.fullmatch(r"\s*([0-9]{1,12})\s*(ms|s|m|min|h|d)?\s*", text.lower())
    if parts is None:
        raise ConfigurationError(f"option {name} = {text!r}: a duration is expected, such as 15m, 90s or 500ms")
    return int(parts[1]) * _UNITS[parts[2] or "ms"]
