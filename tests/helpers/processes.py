"""Run modules of ``tests`` in other processes, and end processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any


def run_module(module: str, *arguments: str, timeout: float) -> subprocess.CompletedProcess[str]:
    """Run a module of ``tests`` in a process of its own, and return its output after exit code 0."""
    command = [sys.executable, "-m", module, *arguments]
    tests = Path(__file__).parents[1]
    done = subprocess.run(command, cwd=tests, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return done


def kill(process: subprocess.Popen[Any]) -> None:
    """Kill a process, wait for its end, and close its pipes."""
    process.kill()
    process.communicate()
