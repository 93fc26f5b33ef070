"""Output of the tools: lines of text, JSON objects and tables."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from zkconsumer.tools import terminal
from zkconsumer.tools.terminal import Severity

#: Maximum number of characters in a table cell. Only ids written by other programs are longer.
_MAX_CELL_LENGTH = 600

#: Set when the reader of standard output has exited.
_closed = threading.Event()


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


class OutputError(Exception):
    """Raised when standard output cannot be written. The offset of an unwritten message must not be committed."""

    def __init__(self, reason: str) -> None:
        """Create an error.

        Args:
            reason: why the output cannot be written, for example ``No space left on device``.
        """
        super().__init__(f"cannot write to standard output: {reason}")


class OutputClosedError(OutputError):
    """Raised when the process that reads standard output, such as ``head``, exited. This is a normal end."""

    def __init__(self) -> None:
        super().__init__("the pipe is closed")


def is_terminal() -> bool:
    """Return whether standard output is a terminal."""
    return sys.stdout is not None and sys.stdout.isatty()


def reset() -> None:
    """Assume that standard output has a reader; called before a tool runs, because ``main`` may be called again."""
    _closed.clear()


def is_closed() -> bool:
    """Return whether the reader of standard output has exited; all further output is discarded."""
    return _closed.is_set()


@contextlib.contextmanager
def writing() -> Iterator[None]:
    """Handle errors of writes to standard output in the block.

    If the reader of the pipe exited, the output is discarded, so that the tool ends with the exit code of its result.

    Raises:
        OutputError: the output cannot be written, for example because the disk is full.
    """
    if sys.stdout is None:  # the process was started without standard output
        raise OutputError("it is closed")
    try:
        yield
    except ConnectionError:
        _closed.set()
        _discard()
    except OSError as error:
        _discard()
        raise OutputError(error.strerror or str(error)) from error


def _discard() -> None:
    """Discard buffered and further output, so that the interpreter's final flush does not fail."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def flush() -> None:
    """Write buffered output.

    Raises:
        OutputError: the output cannot be written.
    """
    if sys.stdout is not None:  # otherwise, nothing was printed
        with writing():
            sys.stdout.flush()


def echo(line: object = "", *, flush: bool = False) -> None:
    """Print one line. All tools print results with this function, ``print_table``, ``print_json`` or ``report``."""
    with writing():
        print(printable(line), flush=flush)


def note(line: object) -> None:
    """Print one line to standard error. It is lost if standard error cannot be written."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            print(printable(line), file=sys.stderr, flush=True)


def print_json(content: Mapping[str, object]) -> None:
    """Print an object as one line of JSON, and flush. Keys are in camel case, except property names."""
    with writing():
        print(json.dumps(content), flush=True)


class Line(NamedTuple):
    """A line of text with a severity."""

    text: str
    severity: Severity


def report(options: argparse.Namespace, content: Mapping[str, object], lines: Iterable[str | Line]) -> None:
    """Print the result of a tool: a JSON object with ``--json``, otherwise lines of text."""
    if options.json:
        print_json(content)
        return
    for line in lines:
        if isinstance(line, Line):
            _print_styled(line.text, line.severity)
        else:
            echo(line, flush=True)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table: with rich on a terminal, as aligned text otherwise."""
    texts = [[cell(value) for value in row] for row in rows]
    if is_terminal() and (console := terminal.create_console()) is not None:
        with writing():
            console.print(terminal.create_table(columns, texts, console.width))
        return
    widths = [max(map(len, column)) for column in zip(columns, *texts, strict=True)]
    for row in (columns, *texts):
        echo("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())


def _print_styled(line: object, severity: Severity) -> None:
    """Print one line; on a terminal, in the color of its severity."""
    if is_terminal() and (console := terminal.create_console()) is not None:
        with writing():
            console.print(terminal.styled(printable(line), severity), soft_wrap=True)
    else:
        echo(line, flush=True)
