"""SIGTERM in the planning process, which Spark sends when a query stops."""

from __future__ import annotations

import subprocess
import sys

import pytest

_PROGRAM = """
import os, signal, sys
from zkconsumer.spark.readers import stream_reader

def send():
    os.kill(os.getpid(), signal.SIGTERM)

class Process:
    def stop(self):
        if {moment!r} == "close":
            send()
        print("left the group")

def trace(frame, event, argument):
    if frame.f_code is stream_reader.StreamReader.stop.__code__ and event == "call":
        sys.settrace(None)
        send()

reader = object.__new__(stream_reader.StreamReader)
reader._process = Process()
reader._exit = stream_reader._exit_on_sigterm()
try:
    try:
        if {moment!r} == "request":
            send()
    finally:
        if {moment!r} == "call":
            sys.settrace(trace)
        reader.stop()
        if {moment!r} == "exit":
            send()
except SystemExit:
    print("exit")
"""


@pytest.mark.parametrize(
    ("moment", "output"),
    [
        ("request", "left the group\nexit\n"),
        ("call", "left the group\n"),
        ("close", "left the group\n"),
        ("exit", "left the group\n"),
    ],
)
def test_member_leaves_at_sigterm(moment: str, output: str) -> None:
    """Spark also closes the connection, so ``stop`` may be running when the signal arrives."""
    program = _PROGRAM.format(moment=moment)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)

    assert done.stdout == output
