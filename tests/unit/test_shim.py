"""Tests of the signals that end a script of Spark 1 or 2. Its streaming contexts are tested with Spark."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from zkconsumer.signals import END_SIGNALS

_SCRIPT = """
import os, signal, subprocess, sys, threading, time
from zkconsumer.spark.dstreams import shim
from zkconsumer.spark.dstreams.clients import clients

class Client:
    def __init__(self, name):
        self.name = name

    def close(self):
        time.sleep(0.2)
        os.write(1, f"closed {self.name}\\n".encode())  # in one piece

for name in ("first", "second"):
    clients.get(name, lambda name=name: Client(name))
clients.get("failed", lambda: Client("failed")).close = lambda: 1 / 0
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
child.terminate()
print("child", child.wait(60), flush=True)
forked = os.fork()
if not forked:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(600)
print("fork", os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1]), flush=True)
# Like the thread that watches a context: this client is being closed when the signal arrives.
threading.Thread(target=clients.close, args=["first"]).start()
for number in sys.argv[1:]:
    os.kill(os.getpid(), int(number))
    while not shim._received:
        time.sleep(0.01)
try:
    time.sleep(600)
finally:
    print("the script was interrupted")
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.py"
    path.write_text(_SCRIPT)
    return path


def run(script: Path, *numbers: int) -> tuple[int, list[str]]:
    """Run the script with the shim, and return the exit code and the sorted lines of its output."""
    command = [sys.executable, "-m", "zkconsumer.spark.shim", str(script), *map(str, map(int, numbers))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stderr.count("Traceback") == done.stderr.count("stream_close_failed"), done.stderr
    return done.returncode, sorted(done.stdout.splitlines())


@pytest.mark.parametrize("first", END_SIGNALS)
def test_streams_are_closed_at_signal(first: signal.Signals, script: Path) -> None:
    """Further signals have no effect. Processes that the script starts can be terminated."""
    code, lines = run(script, first, *END_SIGNALS)

    assert code == 128 + first
    assert lines == ["child -15", "closed first", "closed second", "fork -15"]
