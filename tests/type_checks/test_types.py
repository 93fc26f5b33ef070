"""Tests of the types that mypy and pyright infer in ten programs, and of the examples with pyright.

In a program, ``reveal_type(x)  # T`` states the type that both checkers must infer, and ``# error`` marks each line
with an error. All other lines have no error.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = pytest.mark.timeout(300)

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent / "programs"
EXAMPLES = ROOT / "examples"

#: Not checked: a script for Spark 2, which runs with ``zkconsumer.spark.shim``.
EXCLUDED = EXAMPLES / "spark_dstream.py"


class Finding(NamedTuple):
    """A message of a type checker.

    Attributes:
        place: file name and line number.
        revealed: the type that ``reveal_type`` showed; None for an error.
        text: the message.
    """

    place: tuple[str, int]
    revealed: str | None
    text: str


def run_mypy() -> list[Finding]:
    """Run mypy in strict mode on the programs."""
    options = ("--strict", "--follow-imports=silent", "--ignore-missing-imports", "--no-error-summary")
    command = [sys.executable, "-m", "mypy", "--config-file=", *options, f"--cache-dir={ROOT}/.mypy_cache/programs"]
    done = subprocess.run([*command, str(PROGRAMS)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    pattern = re.compile(r"(.+?):(\d+): (error|note): (?:Revealed type is \"(.*)\")?(.*)")
    return [
        Finding((Path(found[1]).name, int(found[2])), found[4] and plain(found[4]), found[0])
        for found in map(pattern.fullmatch, done.stdout.splitlines())
        if found is not None and (found[3] == "error" or found[4])
    ]


def run_pyright(folder: Path, tmp_path: Path) -> list[Finding]:
    """Run basedpyright in pyright's standard mode on a folder."""
    settings = tmp_path / "pyrightconfig.json"
    settings.write_text(
        json.dumps(
            {
                "include": [str(folder)],
                "exclude": [str(EXCLUDED)],
                "extraPaths": [str(ROOT)],
                "typeCheckingMode": "standard",
            }
        )
    )
    command = [sys.executable, "-m", "basedpyright", "--outputjson", f"--pythonpath={sys.executable}", "-p", settings]
    done = subprocess.run([*map(str, command)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    findings = []
    for one in json.loads(done.stdout)["generalDiagnostics"]:
        place = (Path(one["file"]).name, one["range"]["start"]["line"] + 1)
        shown = re.fullmatch(r'Type of ".*" is "(.*)"', one["message"], re.DOTALL)
        if shown or one["severity"] == "error":
            findings.append(Finding(place, plain(shown[1]) if shown else None, f"{place}: {one['message']}"))
    return findings


def plain(text: str) -> str:
    """Return a type without the names of modules, and with the names of named tuples instead of their fields."""
    text = re.sub(r"\b(?:[A-Za-z_]\w*\.)+(?=[A-Za-z_])", "", text)
    while (fallback := text.find(", fallback=")) >= 0:  # mypy shows tuple[<types of the fields>, fallback=<name>]
        starts = (found.start() for found in re.finditer(r"tuple\[", text[:fallback]))
        start = max(at for at in starts if _depth(text[at:fallback]) == 1)
        end = next(at for at in range(fallback, len(text)) if _depth(text[start : at + 1]) == 0)
        text = text[:start] + text[fallback + len(", fallback=") : end] + text[end + 1 :]
    return text


def _depth(text: str) -> int:
    """Return the number of brackets that are open at the end of a text."""
    return text.count("[") - text.count("]")


def comments() -> Iterator[tuple[tuple[str, int], str]]:
    """Yield the place and the comment of each line of the programs that has a comment."""
    for path in sorted(PROGRAMS.glob("*.py")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if "  # " in line:
                yield (path.name, number), line.partition("  # ")[2]


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_programs_have_documented_types_and_errors(checker: str, tmp_path: Path) -> None:
    findings = run_mypy() if checker == "mypy" else run_pyright(PROGRAMS, tmp_path)
    errors = {one.place: one.text for one in findings if one.revealed is None}
    shown = {one.place: one.revealed for one in findings if one.revealed is not None}
    expected = dict(comments())
    of_errors = {place for place, text in expected.items() if text.startswith("error")}

    assert len(of_errors) > 20
    assert not [text for place, text in errors.items() if place not in of_errors]
    assert not of_errors - errors.keys()
    assert shown == {place: text for place, text in expected.items() if place not in of_errors}


def test_examples_have_no_errors(tmp_path: Path) -> None:
    """mypy checks the examples as part of the project."""
    assert not [one.text for one in run_pyright(EXAMPLES, tmp_path)]
