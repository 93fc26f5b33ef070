"""Tests that the child processes of a benchmark end with it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from helpers.waiting import wait_for

_PROGRAM = """
import subprocess, sys, time
from bench.child_processes import stopping_children
with stopping_children():
    nested = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(99)']);"
    nested += "print('ready', flush=True); time.sleep(99)"
    subprocess.Popen([sys.executable, "-c", nested], start_new_session=True)
    time.sleep(99)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_children_end_after_signal(number: signal.Signals) -> None:
    """A child in a session of its own does not receive the signals of the terminal."""
    command = [sys.executable, "-c", _PROGRAM]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(number)
        process.send_signal(number)
        assert process.wait(30) == 128 + number

    assert len(children) == 2
    wait_for(lambda: not any(child.is_running() and child.status() != "zombie" for child in children))
