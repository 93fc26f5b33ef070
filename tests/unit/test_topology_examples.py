"""The examples of topologies, and the programs of docs/topologies.rst."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

_PROGRAM = re.compile(r"Save this as ``(\w+\.py)``.*\n\n\.\. code-block:: python\n\n((?:    .*\n|\n)+)")


def run_pytest(path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", path.name]
    done = subprocess.run(command, cwd=path.parent, capture_output=True, text=True, check=False, timeout=60)

    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", ["test_click_sessions.py", "test_idle_alarm.py"])
def test_example_passes(name: str) -> None:
    run_pytest(ROOT / "examples" / name)


def test_programs_of_tutorial_run(tmp_path: Path) -> None:
    programs = dict(_PROGRAM.findall((ROOT / "docs" / "topologies.rst").read_text()))
    assert list(programs) == ["counting.py", "test_counting.py"]
    for name, text in programs.items():
        (tmp_path / name).write_text(textwrap.dedent(text))
    command = [sys.executable, "counting.py"]

    described = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60)

    assert described.stdout.startswith("Topologies:\n   Sub-topology: 0\n    Source: words (topics: [words-in])\n")
    run_pytest(tmp_path / "test_counting.py")
