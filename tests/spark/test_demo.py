"""The demo, as its user runs it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[2]


def start(folder: Path) -> subprocess.Popen[str]:
    """Start the demo in a process group of its own, with its files in ``folder``."""
    return subprocess.Popen(
        [sys.executable, "-m", "examples.demo"],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def processes_of(folder: Path) -> list[psutil.Process]:
    """Return the processes that have a path in ``folder`` in their environment or command line."""
    found = []
    for process in psutil.process_iter():
        try:
            if any(str(folder) in text for text in (*process.cmdline(), *process.environ().values())):
                found.append(process)
        except psutil.Error:
            continue
    return found


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_demo_reads_each_record_once(tmp_path: Path) -> None:
    output, _ = start(tmp_path).communicate(timeout=280)
    text = " ".join(output.split())

    assert re.search(r"records produced, 0 lost, 0 read twice\. The plain process read [1-9]", text), output
    assert "WARN" not in output
    assert "Traceback" not in output
    assert output.count("┏") == 3
    assert (list(tmp_path.iterdir()), processes_of(tmp_path)) == ([], [])


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("seconds", [0.5, 2.0, 5.0, 10.0, 15.0, 40.0])
@pytest.mark.parametrize("presses", [1, 2])
def test_ctrl_c_ends_demo_with_one_line(seconds: float, presses: int, tmp_path: Path) -> None:
    process = start(tmp_path)
    time.sleep(seconds)  # the moment is arbitrary
    for _ in range(presses):
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.2)
    output, _ = process.communicate(timeout=60)

    if output or process.returncode != -signal.SIGINT:  # else it was still importing modules
        assert process.returncode == 130, output
        assert output.splitlines()[-1].endswith("  interrupted; all servers are stopped")
    assert (list(tmp_path.iterdir()), processes_of(tmp_path)) == ([], [])
    assert "Traceback" not in output
