"""Formatting for a terminal with rich. Without the extra ``cli``, the tools print the same text without formatting."""

from __future__ import annotations

import contextlib
import enum
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

_Step = TypeVar("_Step")

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


@contextlib.contextmanager
def show_progress(description: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on standard error if it is a terminal and the extra ``cli`` is installed.

    Args:
        description: what is processed.
        total: number of steps; None if it is unknown.

    Yields:
        Function that sets the number of finished steps.
    """
    console = create_console(stderr=True) if sys.stderr is not None and sys.stderr.isatty() else None
    if console is None:
        yield lambda _done: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    # Standard output may be a file.
    with Progress(*columns, console=console, transient=True, redirect_stdout=False) as progress:
        task = progress.add_task(description, total=total)
        yield lambda done: progress.update(task, completed=done)


def count_steps(description: str, steps: Sequence[_Step]) -> Iterator[_Step]:
    """Yield each step, and show the number of finished steps; see ``show_progress``."""
    with show_progress(description, len(steps)) as update:
        for number, step in enumerate(steps, 1):
            yield step
            update(number)
