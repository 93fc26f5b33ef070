"""Tests that the table of log events matches the calls in the code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import zkconsumer
from zkconsumer.events import EVENTS, KEYS, to_rst

ROOT = Path(zkconsumer.__file__).parent
DOCUMENT = ROOT.parent / "docs" / "log-events.rst"
LEVELS = ("debug", "info", "warning", "error")
BY_NAME = {event.name: event for event in EVENTS}

TREES = {path: ast.parse(path.read_text()) for path in sorted(ROOT.rglob("*.py")) if path.name != "events.py"}


class LogCall(NamedTuple):
    """One call of a logger: the names and levels that it can have, and its keys."""

    place: str
    names: list[str]
    levels: list[str]
    keys: list[str]


def log_calls() -> Iterator[LogCall]:
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and node.args and (levels := levels_of(node.func)):
                names = [text for text in strings_of(node.args[0]) if text.isidentifier()]
                keys = [keyword.arg for keyword in node.keywords if keyword.arg not in (None, "exc_info")]
                yield LogCall(f"{path.relative_to(ROOT)}:{node.lineno}", names, levels, [str(key) for key in keys])


def levels_of(function: ast.expr) -> list[str]:
    """Return the levels of a call such as ``log.info(...)`` or ``(log.error if x else log.info)(...)``."""
    if isinstance(function, ast.IfExp):
        return [*levels_of(function.body), *levels_of(function.orelse)]
    return [function.attr] if isinstance(function, ast.Attribute) and function.attr in LEVELS else []


def strings_of(node: ast.expr) -> list[str]:
    return [part.value for part in ast.walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str)]


def test_every_logged_event_is_in_table() -> None:
    missing = [(call.place, name) for call in log_calls() for name in call.names if name not in BY_NAME]

    assert missing == []


def test_levels_are_those_of_table() -> None:
    wrong = [
        (call.place, name, level)
        for call in log_calls()
        for name in call.names
        for level in call.levels
        if level not in BY_NAME[name].levels
    ]

    assert wrong == []


def test_keys_are_from_one_list() -> None:
    wrong = [(call.place, key) for call in log_calls() for key in call.keys if key not in KEYS]

    assert wrong == []


def test_every_event_of_table_is_logged() -> None:
    strings = {text for tree in TREES.values() for node in ast.walk(tree) for text in strings_of_node(node)}

    assert [event.name for event in EVENTS if event.name not in strings] == []


def strings_of_node(node: ast.AST) -> list[str]:
    return [node.value] if isinstance(node, ast.Constant) and isinstance(node.value, str) else []


def test_table_is_sorted_without_duplicates() -> None:
    names = [event.name for event in EVENTS]

    assert names == sorted(set(names))
    assert list(KEYS) == sorted(KEYS)


def test_documentation_contains_the_table() -> None:
    """Paste the output of ``to_rst()`` into the document when an event changes."""
    assert to_rst() in DOCUMENT.read_text()
