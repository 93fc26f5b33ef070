"""Tests of the C modules with the sanitizers, of the way from the socket to messages, and of the fuzzers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from fuzz import decoder
from fuzz.twins.targets import TWINS
from fuzz.wire import WireFuzzer

from zkconsumer.fetcher import _decode, batch_headers, decode, decode_py
from zkconsumer.fetcher.record_format import CHECK_CRC

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "zkconsumer" / "fetcher" / "_decode.c"


#: Arguments of ``python -m`` for each C module, and the checks that the self-test removes from it.
TARGETS = {
    "decoder": (("tests.fuzz",), decoder.CHECKS),
    **{name: (("tests.fuzz", "twin", name), twin.checks) for name, twin in TWINS.items()},
}


def fuzz(
    *arguments: str, compiler: str | None = None, module: tuple[str, ...] = ("tests.fuzz",)
) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ) if compiler is None else {**os.environ, "CC": compiler}
    command = [sys.executable, "-m", *module, *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def match(pattern: str, text: str) -> re.Match[str]:
    found = re.search(pattern, text, re.MULTILINE)
    assert found is not None, text
    return found


@pytest.mark.timeout(120)
def test_decoder_survives_mutated_batches() -> None:
    done = fuzz("--seconds", "3")
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(match(r"(\d+) executions", done.stdout)[1]) > 100


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "name", ["loop", *(pytest.param(name, marks=pytest.mark.slow) for name in TWINS if name != "loop")]
)
def test_compiled_module_equals_its_twin(name: str) -> None:
    done = fuzz("--runs", "150", module=TARGETS[name][0])
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(match(r"(\d+) calls", done.stdout)[1]) > 1_000


@pytest.mark.timeout(300)  # runs the fuzzer once per check
@pytest.mark.parametrize(
    ("name", "checks"),
    [
        pytest.param("decoder", ["buffer-release"], id="decoder-sample"),
        *(pytest.param(name, [], id=f"{name}-all", marks=pytest.mark.slow) for name in TARGETS),
    ],
)
def test_fuzzer_notices_each_missing_check(name: str, checks: list[str]) -> None:
    module, all_checks = TARGETS[name]
    done = fuzz("--self-test", *checks, "--seed", "1", module=module)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(": found in ") == len(checks or all_checks)


@pytest.mark.timeout(120)
def test_fault_report_has_reproducing_command(tmp_path: Path) -> None:
    check = "if (row >= c->rows_room) return 0;"
    broken = tmp_path / "_decode.c"
    broken.write_text(SOURCE.read_text().replace(check, ""))
    assert broken.read_text() != SOURCE.read_text()
    done = fuzz("--source", str(broken), "--seed", "1")
    assert done.returncode == 1
    assert "ERROR: AddressSanitizer: heap-buffer-overflow" in done.stderr
    command = match(r"python -m tests.fuzz (.*--runs 1)$", done.stderr)[1]
    again = fuzz("--source", str(broken), *command.split())
    assert again.returncode == 1
    assert "ERROR: AddressSanitizer: heap-buffer-overflow" in again.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_executions_of_seed_are_deterministic(name: str) -> None:
    module, _ = TARGETS[name]
    line = r"fuzz: 100 executions, \d+ calls, digest \w+"
    first, second, other = (fuzz("--runs", "100", "--seed", seed, module=module) for seed in ("3", "3", "4"))
    assert first.returncode == 0, first.stderr
    digests = [match(line, done.stdout)[0] for done in (first, second, other)]
    assert digests[0] == digests[1] != digests[2]


def test_missing_sanitizers_are_an_error(tmp_path: Path) -> None:
    refuses = 'case "$*" in *-fsanitize=*) echo "unsupported: -fsanitize" >&2; exit 1;; esac; exec cc "$@"'
    done = fuzz("--seconds", "1", compiler=script(tmp_path / "refuses", refuses))
    assert done.returncode == 2
    assert "the compiler lacks the address or undefined-behavior sanitizer" in done.stderr
    assert "unsupported: -fsanitize" in done.stderr
    forgets = 'case "$1" in -print-file-name=*) echo "${1#*=}";; *) exec cc "$@";; esac'
    done = fuzz("--seconds", "1", compiler=script(tmp_path / "forgets", forgets))
    assert done.returncode == 2
    assert "lacks the sanitizer runtime libasan.so; install gcc" in done.stderr


def test_missing_compiler_is_an_error() -> None:
    done = fuzz("--seconds", "1", compiler="/nowhere/cc")
    assert done.returncode == 2
    assert "C compiler '/nowhere/cc' not found; install one, or set CC" in done.stderr


@pytest.mark.parametrize("arguments", [(), ("absent",)])
def test_unknown_twin_is_an_error(arguments: tuple[str, ...]) -> None:
    done = fuzz("twin", *arguments)
    assert done.returncode == 2
    assert f"fuzz: twin must be one of {', '.join(TWINS)}, got" in done.stderr


def test_undetected_self_test_check_is_an_error(tmp_path: Path) -> None:
    changed = tmp_path / "_decode.c"
    changed.write_text(SOURCE.read_text().replace("row >= c->rows_room", "c->rows_room <= row"))
    done = fuzz("--self-test", "--source", str(changed))
    assert done.returncode == 2
    assert "the check 'row-room' of the self-test must occur once in _decode.c" in done.stderr


# ---- records over a socket ---------------------------------------------------------------------------------


@pytest.mark.timeout(120)
def test_changed_responses_give_error_or_all_records() -> None:
    done = fuzz("--seconds", "4", module=("tests.fuzz.wire",))
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    executions, reported = map(int, match(r"(\d+) executions, (\d+) with a reported error", done.stdout).groups())
    assert executions > 50
    assert executions / 4 < reported < executions


def without_offset_checks(data: Any, _first: int, _from: int, _end: int) -> Any:
    return decode_py.next_offset(data, -1 << 63, -1 << 63, (1 << 63) - 1)


def without_crc_checks(data: Any, start: int, offset: int, until: int, rows: int, size: int, flags: int) -> Any:
    return decode_py.scan(data, start, offset, until, rows, size, flags & ~CHECK_CRC)


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("function", "broken"), [("next_offset", without_offset_checks), ("scan", without_crc_checks)])
def test_wire_fuzzer_notices_missing_check(function: str, broken: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    twin = types.SimpleNamespace(**{name: getattr(_decode, name) for name in decode_py.__all__})
    setattr(twin, function, broken)
    monkeypatch.setattr(decode, "native", twin)
    monkeypatch.setattr(batch_headers, "native", twin)
    fuzzer = WireFuzzer(seed=1)
    with pytest.raises(AssertionError, match="read|missing|continue"):
        list(map(fuzzer.execute, range(1000)))
