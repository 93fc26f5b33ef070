"""Tests of the tools with a standard output that cannot be written: a full disk, and a pipe whose reader exited."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import pytest
from helpers.aliases import Cluster, Topics
from helpers.producing import numbers, produce
from helpers.znodes import set_offsets, stored
from kazoo.client import KazooClient

from zkconsumer.tools.cli import main

#: Arguments of each tool that prints results. ``AT``, ``GROUP``, ``TOPIC``, ``BROKERS``, ``FILE`` and ``JSON`` are
#: replaced.
TOOLS = {
    "console-consumer": "--zookeeper AT --topic TOPIC --from-beginning --group GROUP2",
    "console-consumer --json": "--zookeeper AT --topic TOPIC --from-beginning --group GROUP2",
    "simple-consumer-shell": "--broker-list BROKERS --topic TOPIC --no-wait-at-logend",
    "simple-consumer-shell --json": "--broker-list BROKERS --topic TOPIC --no-wait-at-logend",
    "consumer-perf": "--zookeeper AT --topic TOPIC --messages 1 --threads 1",
    "consumer-perf --json": "--zookeeper AT --topic TOPIC --messages 1 --threads 1",
    "offset-checker": "--zookeeper AT --group GROUP",
    "offset-checker --json": "--zookeeper AT --group GROUP",
    "consumer-groups --list": "--zookeeper AT",
    "consumer-groups --describe": "--zookeeper AT --group GROUP",
    "consumer-groups --describe --json": "--zookeeper AT --group GROUP",
    "doctor": "--zookeeper AT --group GROUP",
    "doctor --json": "--zookeeper AT --group GROUP",
    "watch": "--zookeeper AT --group GROUP --interval 1",
    "watch --json": "--zookeeper AT --group GROUP --interval 1",
    "verify-rebalance": "--zookeeper.connect AT --group GROUP",
    "migrate-offsets": "--zookeeper AT --group GROUP --to kafka",
    "migrate-offsets --json": "--zookeeper AT --group GROUP --to kafka",
    "migrate-offsets --to json:-": "--zookeeper AT --group GROUP --from zookeeper",
    "export-offsets": "--zkconnect AT --group GROUP --output-file OUTPUT",
    "export-offsets --json": "--zkconnect AT --group GROUP --output-file /dev/null",
    "import-offsets --json": "--zkconnect AT --input-file FILE",
    "update-offsets earliest": "PROPERTIES TOPIC",
    "check-config": "PROPERTIES",
    "check-config --json": "PROPERTIES",
    "pack-for-spark": "OUTPUT",
    "cluster status": "",
    "cluster status --json": "",
    "cluster java-home": "",
    "--help": "",
    "--version": "",
    "watch --help": "",
}

#: Exit codes of tools that report a problem of the group: it has no members. No development cluster is running.
#: Tools whose output into a closed pipe is not a slow test.
SAMPLE = ("console-consumer", "doctor", "watch", "export-offsets", "--help")

FOUND = {"doctor": 1, "verify-rebalance": 1, "cluster": 1}


@pytest.fixture(autouse=True)
def keep_sigterm_handler() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def arguments(
    request: pytest.FixtureRequest, zkconsumer_cluster: Cluster, topic: Topics, group: str, zk: KazooClient, at: str,
    admin: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> list[str]:  # fmt: skip
    """Return the arguments of the tool that the test names, for a group with one committed offset."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    name = topic()
    produce(admin, name, 0, numbers(0, 3))
    set_offsets(zk, group, name, {0: 3})
    (tmp_path / "offsets").write_text(f"/consumers/{group}/offsets/{name}/0:3\n")
    (tmp_path / "properties").write_text(f"group.id={group}\nzookeeper.connect={at}\n")
    values = {
        "AT": at, "GROUP": group, "GROUP2": f"{group}-2", "TOPIC": name, "FILE": str(tmp_path / "offsets"),
        "BROKERS": zkconsumer_cluster.bootstrap_servers, "PROPERTIES": str(tmp_path / "properties"),
    }  # fmt: skip
    tool: str = request.node.callspec.params["tool"]
    return [values.get(word, word) for word in f"{tool} {TOOLS[tool]}".split()]


def run_into(file: TextIO, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """Run a tool with a standard output, and return its exit code."""
    path = f"/dev/fd/{file.fileno()}"
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", file)
        try:
            return main([path if word == "OUTPUT" else word for word in arguments])
        except SystemExit as ended:
            return int(ended.code or 0)


@pytest.mark.parametrize("tool", TOOLS)
def test_full_disk_is_an_error(
    tool: str, arguments: list[str], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with open("/dev/full", "w") as full:
        assert run_into(full, arguments, monkeypatch) == 1

    errors = capfd.readouterr().err
    assert "No space left on device" in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    "tool", [pytest.param(name, marks=() if name in SAMPLE else pytest.mark.slow) for name in TOOLS]
)
def test_closed_pipe_is_a_normal_end(
    tool: str, arguments: list[str], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as closed:
        assert run_into(closed, arguments, monkeypatch) == FOUND.get(arguments[0], 0) * ("java-home" not in arguments)

    errors = capfd.readouterr().err
    assert "Traceback" not in errors
    assert "Broken pipe" not in errors


@pytest.mark.parametrize("tool", ["console-consumer"])
def test_message_on_full_disk_is_not_committed(
    tool: str, arguments: list[str], group: str, zk: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open("/dev/full", "w") as full:
        run_into(full, arguments, monkeypatch)

    assert stored(zk, f"{group}-2", arguments[4]) == {0: "0"}  # the initial position
