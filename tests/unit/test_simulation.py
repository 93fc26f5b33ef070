"""Simulated schedules: the first seeds pass, a seed determines its trace, and a broken lease is found."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.timeout(100)


def simulate(*arguments: str, place: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run the command of the simulation."""
    command = [sys.executable, "-m", "tests.simulation", *arguments]
    return subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=90, check=False)


def test_first_schedules_have_no_fault() -> None:
    done = simulate("--first", "1", "--count", "10")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert "10 schedules" in done.stdout


def test_seed_determines_trace() -> None:
    first, second = simulate("--seed", "9"), simulate("--seed", "9")
    assert first.returncode == 0, first.stdout[-4000:] + first.stderr[-4000:]
    assert len(first.stdout.splitlines()) > 100
    assert first.stdout == second.stdout


def test_lease_that_does_not_end_is_found(tmp_path: Path) -> None:
    for name in ("zkconsumer", "tests/simulation"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    lease = tmp_path / "zkconsumer" / "zookeeper" / "lease.py"
    text = lease.read_text()
    changed = text.replace("self._ends_at = max(self._ends_at, ends_at)\n", "self._ends_at = ends_at + 1_000\n")
    assert changed != text
    lease.write_text(changed)
    done = simulate("--first", "100", "--seconds", "60", place=tmp_path)
    assert done.returncode == 1, done.stdout[-4000:] + done.stderr[-4000:]
    assert re.search("InvariantError: .* received .*, which .* owns since", done.stdout), done.stdout[-4000:]
