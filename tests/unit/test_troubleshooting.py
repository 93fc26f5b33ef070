"""Tests that the page on troubleshooting quotes texts that the code contains."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: Headings of the page on troubleshooting that are texts of Spark, Java or kafka-python.
OF_OTHERS = {
    "DATA_SOURCE_NOT_FOUND",
    "Broken pipe",
    "EOFException",
    "JAVA_HOME is not set",
    "JAVA_GATEWAY_EXITED",
    "Failed to update metadata",
    "Python worker failed to connect back",
    "Starting Streaming TransformWithStateInPandas",
    "Missing an output location for shuffle",
}


def texts_in(tree: ast.AST) -> Iterator[str]:
    """Yield the strings of a module; an expression in an f-string is replaced by ``...``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "..." for part in node.values)


@cache
def all_texts() -> str:
    """Return the strings of all modules. They are parsed only in the process that runs the tests."""
    modules = (ROOT / "zkconsumer").rglob("*.py")
    return "\n".join(text for path in modules for text in texts_in(ast.parse(path.read_text())))


LINES = (ROOT / "docs" / "troubleshooting.rst").read_text().splitlines()
HEADINGS = [
    heading
    for line, following in pairwise(LINES)
    if line[:1].strip() and following.startswith("    ")
    for heading in re.findall(r"``(.+?)``", line)
]


@pytest.mark.parametrize("heading", [heading for heading in HEADINGS if heading not in OF_OTHERS])
def test_headings_of_troubleshooting_are_texts_of_the_code(heading: str) -> None:
    missing = [part for part in heading.split("...") if part.strip(" '?;") not in all_texts()]

    assert missing == []
