"""Tests of the fuzzers of znodes and of Spark's offsets, and a sample of their executions."""

from __future__ import annotations

import re

import pytest
from fuzz import offsets, znodes
from fuzz.runner import Fuzzer

from zkconsumer.zookeeper import registry


@pytest.mark.parametrize("fuzzer", [znodes.FUZZER, offsets.FUZZER], ids=lambda fuzzer: fuzzer.name)
def test_random_content_is_valid_or_rejected(fuzzer: Fuzzer, capfd: pytest.CaptureFixture[str]) -> None:
    assert fuzzer.main(["--seconds", "3"]) == 0

    out = capfd.readouterr().out
    print(out)
    for kind in fuzzer.kinds:
        assert re.search(rf"{kind} valid \d+", out), kind


@pytest.mark.parametrize("fuzzer", [znodes.FUZZER, offsets.FUZZER], ids=lambda fuzzer: fuzzer.name)
def test_executions_of_seed_repeat(fuzzer: Fuzzer, capfd: pytest.CaptureFixture[str]) -> None:
    assert fuzzer.main(["--seed", "7", "--runs", "200"]) == 0
    first = capfd.readouterr().out
    assert fuzzer.main(["--seed", "7", "--runs", "200"]) == 0

    assert capfd.readouterr().out == first


def test_fault_is_reported_with_command(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "excerpt", repr)  # removes the limit of messages

    assert znodes.main(["--seed", "1", "--seconds", "60"]) == 1

    command = re.search(r"python -m tests.fuzz.znodes (.*)", capfd.readouterr().err)
    assert command is not None
    assert znodes.main(command[1].split()) == 1
