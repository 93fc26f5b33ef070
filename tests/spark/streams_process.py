"""A driver of an application in a process of its own, which tests kill; see ``drivers/streams.py``."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from helpers.processes import list_session

from .python_workers import list_python_workers
from .queries import kill


class Driver:
    """A driver with its JVM and workers, in a process group of its own.

    Args:
        folder: directory to be created for its files.
        settings: see ``drivers/streams.py``.
    """

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        folder.mkdir()
        self._log = folder / "log"
        self._output = self._log.open("w")
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.drivers.streams", json.dumps({**settings, "folder": str(folder)})],
            cwd=Path(__file__).parent.parent,
            env={**os.environ, "TMPDIR": str(folder)},
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    @property
    def log(self) -> str:
        """The end of its output."""
        return self._log.read_text(errors="replace")[-20_000:]

    def check_running(self) -> None:
        """Raise AssertionError if the driver has ended."""
        assert self._process.poll() is None, f"the driver ended with {self._process.returncode}:\n{self.log}"

    def wait(self, timeout_s: float) -> int:
        """Wait for the end of the driver, and return its exit code."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGUSR1)
            time.sleep(1)
            raise AssertionError(f"the driver did not end within {timeout_s:g} s:\n{self.log}") from None

    def kill(self) -> None:
        """Kill the driver, its JVM and all workers. A second call has no effect."""
        if self._output.closed:
            return
        kill(list_session(self._process.pid))
        self._process.wait(30)
        self._output.close()

    def list_workers(self) -> list[psutil.Process]:
        """Return the Python processes that Spark has started, except those that have ended."""
        return list_python_workers(self._process.pid)


def kill_one(list_processes: Callable[[], list[psutil.Process]], rng: random.Random) -> str:
    """Kill a random process; return what it was, or an empty text if there was none."""
    processes = list_processes()
    if not processes:
        return ""
    process = rng.choice(processes)
    try:
        command = " ".join(process.cmdline()[:6])
        process.kill()
    except psutil.NoSuchProcess:
        return ""
    return command or "a process that has ended"
