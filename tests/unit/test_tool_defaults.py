"""Tests of the defaults of ``--zookeeper`` and ``--command-config`` from environment variables."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.aliases import Run

#: Tools that connect to ZooKeeper, without an address.
TOOLS = {
    "console-consumer": "--topic t",
    "consumer-perf": "--topic t --messages 1",
    "consumer-groups": "--list",
    "offset-checker": "--group g",
    "doctor": "--group g",
    "watch": "--group g",
    "verify-rebalance": "--group g",
    "migrate-offsets": "--group g --to kafka",
    "export-offsets": "--output-file OUT",
    "import-offsets": "--input-file OFFSETS",
    "update-offsets": "earliest GROUP t",
    "simple-consumer-shell": "--topic t",
}

#: Other names of ``--zookeeper``.
OTHER_NAMES = {
    "export-offsets": "--zkconnect",
    "import-offsets": "--zkconnect",
    "verify-rebalance": "--zookeeper.connect",
}


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    Path("settings").write_text("zookeeper.connection.timeout.ms=200\n")
    Path("GROUP").write_text("group.id=g\n")
    Path("OFFSETS").write_text("/consumers/g/offsets/t/0:7\n")
    monkeypatch.setenv("ZKCONSUMER_COMMAND_CONFIG", "settings")
    monkeypatch.setenv("ZKCONSUMER_ZOOKEEPER", "127.0.0.1:1/variable")


@pytest.mark.parametrize("tool", TOOLS)
def test_variables_are_defaults(tool: str, run: Run) -> None:
    code, _, errors = run(tool, *TOOLS[tool].split())

    assert code == 3
    assert "could not connect to ZooKeeper at '127.0.0.1:1/variable' within 0.2 s" in errors


@pytest.mark.parametrize("tool", TOOLS)
def test_options_override_variables(tool: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for option in ("--zookeeper", OTHER_NAMES.get(tool, "--zookeeper")):
        code, _, errors = run(tool, *TOOLS[tool].split(), option, "127.0.0.1:1/option")

        assert code == 3
        assert "could not connect to ZooKeeper at '127.0.0.1:1/option' within 0.2 s" in errors


@pytest.mark.parametrize("tool", ["console-consumer", "consumer-perf"])
def test_consumer_properties_override_command_config(tool: str, run: Run) -> None:
    Path("more").write_text("zookeeper.connection.timeout.ms=300\n")

    assert "within 0.3 s" in run(tool, *TOOLS[tool].split(), "--consumer.config", "more")[2]


def test_properties_file_of_update_offsets_overrides_variable(run: Run) -> None:
    Path("GROUP").write_text("group.id=g\nzookeeper.connect=127.0.0.1:1/file\n")

    assert "'127.0.0.1:1/file'" in run("update-offsets", "earliest", "GROUP", "t")[2]


@pytest.mark.parametrize("value", [None, ""])
def test_option_is_required_without_variable(
    value: str | None, run: Run, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Kafka's tools have no default either."""
    if value is None:
        monkeypatch.delenv("ZKCONSUMER_ZOOKEEPER")
    else:
        monkeypatch.setenv("ZKCONSUMER_ZOOKEEPER", value)
    for tool, required in (("console-consumer", "--zookeeper"), ("simple-consumer-shell", "--broker-list --zookeeper")):
        with pytest.raises(SystemExit, match="^2$"):
            run(tool, "--topic", "t")
        assert required in capfd.readouterr().err.splitlines()[-1]
