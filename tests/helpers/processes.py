"""Run modules of ``tests`` in other processes, and find and end processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil


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


def list_session(number: int) -> list[psutil.Process]:
    """Return the processes of a session, except those that have ended.

    All processes of a Spark driver that was started with ``start_new_session`` belong to its session: Python, the JVM,
    planning processes and workers. They do not all belong to its process group, because each daemon of Python workers
    has one of its own.

    Args:
        number: process id of the process that started the session.
    """

    def is_member(process: psutil.Process) -> bool:
        try:
            return os.getsid(process.pid) == number and process.status() != psutil.STATUS_ZOMBIE
        except (ProcessLookupError, psutil.NoSuchProcess):
            return False

    return [process for process in psutil.process_iter() if is_member(process)]
