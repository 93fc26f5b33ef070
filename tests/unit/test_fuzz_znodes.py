"""Tests of the fuzzer of znodes, and a sample of its executions."""

from __future__ import annotations

import re

import pytest
from fuzz import znodes

from zkconsumer.zookeeper import registry


def test_random_znodes_are_valid_or_refused(capfd: pytest.CaptureFixture[str]) -> None:
    assert znodes.main(["--seconds", "3"]) == 0

    out = capfd.readouterr().out
    print(out)
    for kind in znodes.KINDS:
        assert re.search(rf"{kind} valid \d+", out), kind


def test_executions_of_seed_repeat(capfd: pytest.CaptureFixture[str]) -> None:
    assert znodes.main(["--seed", "7", "--runs", "200"]) == 0
    first = capfd.readouterr().out
    assert znodes.main(["--seed", "7", "--runs", "200"]) == 0

    assert capfd.readouterr().out == first


def test_fault_is_reported_with_command(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "excerpt", repr)  # removes the limit of messages

    assert znodes.main(["--seed", "1", "--seconds", "60"]) == 1

    command = re.search(r"python -m tests.fuzz.znodes (.*)", capfd.readouterr().err)
    assert command is not None
    assert znodes.main(command[1].split()) == 1
