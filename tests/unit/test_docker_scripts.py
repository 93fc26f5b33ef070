"""Tests of the signals that end the scripts of the images, with commands that replace docker and Java."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from helpers.waiting import wait_for

from zkconsumer.signals import END_SIGNALS

_DOCKER = Path(__file__).parents[2] / "docker"

#: Records its arguments. If they contain the text of the variable BLOCK, it records its process id, and runs until it
#: receives a signal.
_COMMAND = """#!/usr/bin/env bash
echo "$(basename "$0") $*" >>"$FOLDER/calls"
if [[ "$(basename "$0") $*" == *"$BLOCK"* ]]; then
    echo "$$" >"$FOLDER/blocked"
    exec sleep 600
fi
echo zkconsumer unhealthy # for the commands whose output is checked
"""


def write_command(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_COMMAND)
    path.chmod(0o755)


def is_running(process_id: int) -> bool:
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def find_sleeping(file: Path) -> int | None:
    """Return the id of the process that blocks; None before it has replaced its shell, which may ignore SIGINT."""
    text = file.read_text() if file.exists() else ""
    return int(text) if text and Path(f"/proc/{int(text)}/comm").read_text() == "sleep\n" else None


def end_while_blocked(script: Path, argument: str, block: str, number: signal.Signals, folder: Path) -> int:
    """Send a signal to a script while a command blocks, and return its exit code."""
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "FOLDER": str(folder), "BLOCK": block}
    with subprocess.Popen(
        ["bash", str(script), *argument.split()], cwd=folder, env=environment, stdout=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # pytest-xdist ignores it
    ) as process:  # fmt: skip
        try:
            blocked = wait_for(lambda: find_sleeping(folder / "blocked"))
            process.send_signal(number)
            code = process.wait(60)
            wait_for(lambda: not is_running(blocked), 10, what="no process is left")
        finally:
            process.kill()
    return code


@pytest.mark.skipif(not Path("/proc").exists(), reason="requires /proc")
@pytest.mark.parametrize("number", END_SIGNALS)
@pytest.mark.parametrize("block", ["build --quiet", "up --detach", "python -m pytest", "run --rm -T --no-deps tests"])
def test_docker_test_ends_and_cleans_up_at_signal(block: str, number: signal.Signals, tmp_path: Path) -> None:
    script = tmp_path / "docker" / "test.sh"
    for command in (tmp_path / "bin" / "docker", tmp_path / ".venv" / "bin" / "python"):
        write_command(command)
    script.parent.mkdir()
    script.write_text((_DOCKER / "test.sh").read_text())

    assert end_while_blocked(script, "", block, number, tmp_path) == 128 + number
    calls = (tmp_path / "calls").read_text().splitlines()
    assert block in calls[-3], calls
    assert " logs " in calls[-2], calls
    assert " down --volumes " in calls[-1], calls


@pytest.mark.skipif(not Path("/proc").exists(), reason="requires /proc")
@pytest.mark.parametrize("number", END_SIGNALS)
@pytest.mark.parametrize("block", ["StorageTool", "kafka.Kafka", "QuorumPeerMain"])
def test_server_container_ends_at_signal(block: str, number: signal.Signals, tmp_path: Path) -> None:
    """As the first process of a container, the script handles the signals while Java formats the storage."""
    write_command(tmp_path / "bin" / "java")
    config = tmp_path / "opt" / "config"
    config.mkdir(parents=True)
    for name, text in (("version", "4.4.0"), ("kafka.properties", ""), ("zookeeper.properties", "")):
        (config / name).write_text(text)
    script = tmp_path / "entrypoint.sh"
    script.write_text((_DOCKER / "entrypoint.sh").read_text().replace("/opt/kafka", str(tmp_path / "opt")))
    argument = "zookeeper" if block == "QuorumPeerMain" else "kafka"

    code = end_while_blocked(script, argument, block, number, tmp_path)
    assert code == (143 if block == "StorageTool" else -number)
