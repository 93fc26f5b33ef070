"""Tests of the directories of development clusters whose process was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from zkconsumer.devcluster.data_directory import DataDirectory, delete_abandoned

_PROGRAM = """
import os, sys
from zkconsumer.devcluster.data_directory import DataDirectory
directory = DataDirectory()
print(directory.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_only_directories_of_killed_processes_are_deleted(temporary: Path) -> None:
    own = DataDirectory()
    (temporary / "zkconsumer-other").mkdir()  # is being created, or belongs to another program
    command = [sys.executable, "-c", _PROGRAM]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True, env=environment) as process:
        assert process.stdout is not None
        path = Path(process.stdout.readline().strip())
        delete_abandoned()
        assert path.is_dir(), "its process is running"
        process.send_signal(signal.SIGKILL)

    delete_abandoned()

    assert sorted(temporary.iterdir()) == sorted([own.path, temporary / "zkconsumer-other"])
    own.delete()
    assert not own.path.exists()
