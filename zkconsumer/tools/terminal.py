"""Formatting for a terminal with rich. Without the extra ``cli``, the tools print the same text without formatting."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

#: Minimum width of a column with text, in characters, if the numbers are kept on one line.
_MIN_TEXT_WIDTH = 8

#: Spaces between two columns.
_GAP = 2


class Severity(enum.Enum):
    """Severity of a line; the value is its style, without colors if ``NO_COLOR`` is set."""

    GOOD = "green"
    WARNING = "yellow"
    ERROR = "bold red"


def create_console(*, stderr: bool = False) -> Any:
    """Return a ``rich`` console, or None if the extra ``cli`` is not installed."""
    try:
        from rich.console import Console
    except ImportError:
        return None
    return Console(stderr=stderr, highlight=False)


def styled(text: str, severity: Severity) -> Any:
    """Return a text with the style of a severity, without markup."""
    from rich.text import Text

    return Text(text, style=severity.value)


def create_table(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int, title: str | None = None) -> Any:
    """Return a table without borders. Text that does not fit is folded, never truncated.

    Args:
        columns: column names.
        rows: text of each cell.
        width: width of the terminal, in characters.
        title: line above the table.
    """
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0))
    if title is not None:
        table.title, table.title_justify, table.title_style = Text(title), "left", "bold"
    numeric = [
        all(row[index].lstrip("-").isdigit() or row[index] == "-" for row in rows) for index in range(len(columns))
    ]
    widths = [max(map(len, (name, *(row[index] for row in rows)))) for index, name in enumerate(columns)]
    needed = sum(
        size if is_number else min(size, _MIN_TEXT_WIDTH) for size, is_number in zip(widths, numeric, strict=True)
    )
    is_wide = needed + _GAP * len(columns) <= width
    for name, is_number in zip(columns, numeric, strict=True):
        table.add_column(Text(name), overflow="fold", no_wrap=is_number and is_wide)
    for row in rows:
        table.add_row(*map(Text, row))
    return table
