"""How values of options are read."""

from __future__ import annotations

import re
from collections.abc import Callable

from zkconsumer.errors import ConfigurationError

#: Returns the text of an option, once, or None where it is not given.
Take = Callable[[str], str | None]


def number(take: Take, name: str, default: int | None, least: int = 1) -> int | None:
    """Return a whole number from ``least`` on.

    Raises:
        ConfigurationError: it is something else.
    """
    text = take(name)
    if text is None:
        return default
    if not re.fullmatch(r"\s*[0-9]{1,18}\s*", text) or int(text) < least:
        raise ConfigurationError(f"option {name} = {text!r}: a whole number from {least} on is expected")
    return int(text)
