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


#: Runs the demo with a phase in which Ctrl-C is replaced by another error, as by PySpark without its JVM.
_REPLACED = """
import os, signal
from examples.demo import __main__ as demo

class Phases:
    def __init__(self, *arguments):
        pass

    def run(self):
        try:
            os.kill(os.getpid(), signal.SIGINT)
        finally:
            raise RuntimeError("Answer from Java side is empty")

demo.Demo = Phases
os._exit(demo.main())
"""


def test_ctrl_c_ends_demo_with_one_line_if_spark_replaces_it(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", _REPLACED]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, done.stderr) == (130, "")
    assert [line.split("  ")[-1] for line in done.stdout.splitlines()] == ["interrupted; all servers are stopped"]
    assert list(tmp_path.iterdir()) == []


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
