"""Output of the tools: lines of text, JSON objects and tables."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TextIO

#: Maximum number of characters in a table cell. Only ids written by other programs are longer.
_MAX_CELL_LENGTH = 600


def printable(text: object) -> str:
    """Return ``text`` as a string in which each unprintable character is replaced with an escape sequence.

    Znodes can contain terminal control sequences, and line breaks that would forge output lines.
    """
    line = str(text)
    if line.isprintable():
        return line
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


def count(number: int, noun: str) -> str:
    """Return a number with its noun in the singular or plural."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def cell(value: object) -> str:
    """Return the text of a table cell: ``-`` for None; control characters are escaped, and long text is truncated."""
    text = "-" if value is None else printable(value)
    return text if len(text) <= _MAX_CELL_LENGTH else f"{text[:_MAX_CELL_LENGTH]}..."


class OutputClosedError(Exception):
    """Raised when a line cannot be written to standard output. An unwritten message's offset must not be committed."""


def echo(line: object = "", file: TextIO | None = None, *, flush: bool = False) -> None:
    """Print one line. All tools print text with this function, ``print_table``, ``print_json`` or ``report``."""
    _write(printable(line), file, flush=flush)


def print_json(content: Mapping[str, object]) -> None:
    """Print an object as one line of JSON, and flush. Keys are in camel case, except property names."""
    _write(json.dumps(content), None, flush=True)


def report(options: argparse.Namespace, content: Mapping[str, object], lines: Iterable[str]) -> None:
    """Print the result of a tool: a JSON object with ``--json``, otherwise lines of text."""
    if options.json:
        print_json(content)
        return
    for line in lines:
        echo(line, flush=True)


def _write(line: str, file: TextIO | None, *, flush: bool) -> None:
    """Write a line.

    Raises:
        BrokenPipeError: the reader of the pipe exited.
        OutputClosedError: the line cannot be written, for example because the disk is full.
    """
    try:
        print(line, file=file, flush=flush)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputClosedError from error


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table: with rich on a terminal, as aligned text otherwise."""
    texts = [[cell(value) for value in row] for row in rows]
    if sys.stdout.isatty() and (table := rich_table(columns, texts)) is not None:
        from rich.console import Console

        Console().print(table)
        return
    widths = [max(map(len, column)) for column in zip(columns, *texts, strict=True)]
    for row in (columns, *texts):
        echo("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())


def rich_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Any:
    """Return a ``rich`` table without markup, or None if the extra ``cli`` is not installed."""
    try:
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        return None
    table = Table(*columns)
    for row in rows:
        table.add_row(*map(Text, row))
    return table
