"""Tests of the completion scripts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.aliases import Run

from zkconsumer.tools.catalogue import TOOLS

pytest.importorskip("shtab")


def complete(script: str, line: str, tmp_path: Path) -> list[str]:
    """Return the completions of bash at the end of a line; ``zkconsumer`` is replaced by a program with two groups."""
    program = tmp_path / "zkconsumer"
    program.write_text('#!/bin/sh\n[ "$1 $2" = "list-names groups" ] && echo billing orders-group\n')
    program.chmod(0o755)
    words = " ".join(f"'{word}'" for word in line.split(" "))
    code = (
        f"{script}\nCOMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))\n"
        "$(complete -p zkconsumer | sed 's/.*-F \\([^ ]*\\).*/\\1/')\nprintf '%s\\n' \"${COMPREPLY[@]}\"\n"
    )
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "--norc", "-c", code], capture_output=True, text=True, timeout=30, check=False, env=environment
    )
    return done.stdout.split()


def test_bash_completes_tools_options_and_names(run: Run, tmp_path: Path) -> None:
    code, script, _ = run("completion", "bash")

    assert code == 0
    assert set(complete(script, "zkconsumer ", tmp_path)) >= {tool.name for tool in TOOLS}
    assert complete(script, "zkconsumer doctor --gr", tmp_path) == ["--group"]
    assert set(complete(script, "zkconsumer cluster ", tmp_path)) >= {"up", "down", "status"}
    assert complete(script, "zkconsumer doctor --group bil", tmp_path) == ["billing"]


def test_zsh_script_is_printed(run: Run) -> None:
    code, script, _ = run("completion", "zsh")

    assert code == 0
    assert script.startswith("#compdef zkconsumer")
    assert "_zkconsumer_groups" in script


def test_missing_shtab_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)

    code, _, errors = run("completion", "bash")

    assert code == 1
    assert "completion requires shtab, which is not installed; run `pip install" in errors


def test_unreachable_zookeeper_completes_nothing(run: Run) -> None:
    for kind in ("groups", "topics"):
        code, out, _ = run("list-names", kind, "--zookeeper", "127.0.0.1:1")
        assert (code, out) == (3, "")
