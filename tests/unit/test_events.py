"""Tests that the tables of log events and of their keys match the calls in the code."""

from __future__ import annotations

import ast
import re
import types
import typing
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import zkconsumer
from zkconsumer.log import EventValues

ROOT = Path(zkconsumer.__file__).parent
LEVELS = ("debug", "info", "warning", "error")

#: Types of keys as the document calls them.
TYPES: Mapping[object, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    bytes: "bytes",
    object: "any",
    BaseException: "exception",
}


@cache
def trees() -> dict[Path, ast.Module]:
    """Return the syntax trees of all modules. They are parsed only in the process that runs the tests."""
    return {path: ast.parse(path.read_text()) for path in sorted(ROOT.rglob("*.py"))}


def tables() -> list[list[list[str]]]:
    """Return the rows of each table of the document, without the header."""
    text = (ROOT.parent / "docs" / "log-events.rst").read_text()
    found = []
    for table in text.split(".. list-table::")[1:]:
        rows = re.split(r"^   \* - ", table, flags=re.MULTILINE)[2:]
        found.append([[" ".join(cell.split()) for cell in row.split("\n     - ")] for row in rows])
    return found


EVENTS, KEYS = ({row[0].strip("`"): row[1:] for row in table} for table in tables())


class LogCall(NamedTuple):
    """One call of a logger: the names and levels that it can have."""

    place: str
    names: list[str]
    levels: list[str]


def log_calls() -> Iterator[LogCall]:
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and node.args and (levels := levels_of(node.func)):
                names = [text for text in strings_of(node.args[0]) if text.isidentifier()]
                yield LogCall(f"{path.relative_to(ROOT)}:{node.lineno}", names, levels)


def levels_of(function: ast.expr) -> list[str]:
    """Return the levels of a call such as ``log.info(...)`` or ``(log.error if x else log.info)(...)``."""
    if isinstance(function, ast.IfExp):
        return [*levels_of(function.body), *levels_of(function.orelse)]
    return [function.attr] if isinstance(function, ast.Attribute) and function.attr in LEVELS else []


def strings_of(node: ast.AST) -> list[str]:
    return [part.value for part in ast.walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str)]


def type_name(annotation: object) -> str:
    """Return the name of a type in the document."""
    arguments = typing.get_args(annotation)
    if isinstance(annotation, types.UnionType):
        return " or ".join(type_name(one) for one in arguments if one is not types.NoneType)
    if typing.get_origin(annotation) is list:
        return f"list of {type_name(arguments[0])}s"
    return "map" if typing.get_origin(annotation) is not None else TYPES[annotation]


def test_every_logged_event_is_documented() -> None:
    assert [(call.place, name) for call in log_calls() for name in call.names if name not in EVENTS] == []


def test_levels_are_the_documented_ones() -> None:
    wrong = [
        (call.place, name, level)
        for call in log_calls()
        for name in call.names
        for level in call.levels
        if level not in EVENTS[name][0].split(", ")
    ]

    assert wrong == []


def test_every_documented_event_is_logged() -> None:
    strings = {text for tree in trees().values() for text in strings_of(tree)}

    assert [name for name in EVENTS if name not in strings] == []


def test_documented_loggers_exist() -> None:
    created = {name for path in trees() for name in re.findall(r'get_logger\(\s*"([\w.]+)"', path.read_text())}

    assert {logger for row in EVENTS.values() for logger in row[1].split(", ")} == created


def test_keys_have_the_documented_types() -> None:
    """The type checker compares the keys of each call with ``EventValues``."""
    found = {name: type_name(annotation) for name, annotation in typing.get_type_hints(EventValues).items()}

    assert found == {name: row[0] for name, row in KEYS.items()}


def test_tables_are_sorted_without_duplicates() -> None:
    for table in tables():
        names = [row[0].strip("`") for row in table]
        assert names == sorted(set(names))
