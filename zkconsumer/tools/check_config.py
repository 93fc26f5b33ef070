"""The tool ``check-config``: shows how a consumer interprets a properties file, and reports all problems."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from zkconsumer.config.consumer_config import ConsumerConfig
from zkconsumer.config.properties import ALIASES, PROPERTIES, WITHOUT_EFFECT
from zkconsumer.config.properties_file import FileValue, parse_entries
from zkconsumer.errors import ConfigurationError
from zkconsumer.tools import common, output
from zkconsumer.tools.arguments import ToolParser

_DETAILS = """\
Print each property with the value that the consumer uses, followed by all problems with their line numbers.
Passwords are masked. No connection is opened.

The exit code is 0 if the file is valid, 1 if there is a problem, and 2 if the file cannot be read.
"""

#: Pattern of property names whose values are masked, including names from other clients.
_SECRET = re.compile(r"password|secret|credential|token|digest|jaas", re.IGNORECASE)

_MASK = "********"


class _Line(NamedTuple):
    """One property in the file, and its effect.

    Attributes:
        line: line number.
        property: property name in the file.
        value: value in the file, masked if it may be secret.
        becomes: value that the consumer uses, or a note if the property is ignored or invalid.
    """

    line: int
    property: str
    value: str
    becomes: str


def add_options(parser: ToolParser) -> None:
    """Add the description, the options and the function that runs the tool."""
    parser.set_defaults(run=run)
    parser.describe(_DETAILS)
    parser.add_argument("file", type=Path, metavar="FILE", help="consumer properties file")
    common.add_help_properties(parser)
    common.add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print the properties and the problems, and return the exit code."""
    try:
        content = options.file.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"cannot read {str(options.file)!r}: {error.strerror}") from error
    path = str(options.file)
    entries, problems = _parse(content, path)
    if entries:  # do not report missing required properties for an empty or malformed file
        problems += _find_problems(dict(entries))
    lines = list(_explain(entries, {line for line, _ in problems}))
    if options.json:
        found = [{"line": line or None, "problem": problem} for line, problem in problems]
        shown = [line._asdict() for line in lines]
        output.print_json({"file": path, "valid": not problems, "lines": shown, "problems": found})
        return 1 if problems else 0
    if lines:
        output.print_table(("LINE", "PROPERTY", "VALUE", "BECOMES"), lines)
    for line, problem in problems:
        output.echo(f"{path}:{line}: {problem}" if line else f"{path}: {problem}")
    output.echo(f"{path}: {output.count(len(problems), 'problem')} found" if problems else f"{path}: valid")
    return 1 if problems else 0


def _parse(content: bytes, path: str) -> tuple[list[tuple[str, FileValue]], list[tuple[int, str]]]:
    """Return the properties in file order, and the problems that affect the whole file."""
    try:
        entries = parse_entries(content, path)
    except ValueError as error:
        return [], [(0, f"not a Java properties file: {error}")]
    return entries, [] if entries else [(0, "the file contains no properties")]


def _find_problems(properties: dict[str, FileValue]) -> list[tuple[int, str]]:
    """Return ``(line number, problem)`` pairs; line 0 means that the problem affects the whole file."""
    try:
        with_effect = {name: value for name, value in properties.items() if name not in WITHOUT_EFFECT}
        ConsumerConfig.from_dict(with_effect, strict=True)
    except ConfigurationError as error:
        return list(error.problems)
    return []


def _explain(entries: list[tuple[str, FileValue]], with_problems: set[int]) -> Iterator[_Line]:
    """Yield each property with its effect."""
    declared = {one.name: one for one in PROPERTIES}
    last = {ALIASES.get(name, name): value.line for name, value in entries}
    for name, value in entries:
        known = declared.get(ALIASES.get(name, name))
        is_secret = bool(_SECRET.search(name)) or (known is not None and known.type.is_secret)
        shown = _MASK if is_secret else str(value)
        overriding = last[ALIASES.get(name, name)]
        if overriding != value.line:
            becomes = f"ignored: overridden by line {overriding}"
        elif value.line in with_problems:
            becomes = "problem, see below"
        elif known is None:
            becomes = f"ignored: {WITHOUT_EFFECT.get(name, 'not a consumer property')}"
        else:
            becomes = _MASK if is_secret else _show_parsed(known.parse(value))
        yield _Line(value.line, name, shown, becomes)


def _show_parsed(value: object) -> str:
    if value == "":
        return "(empty)"
    return str(value).lower() if isinstance(value, bool) else str(value)
