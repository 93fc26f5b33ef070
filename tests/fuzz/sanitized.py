"""Builds a C module with sanitizers, and runs a Python process that can load it."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import zkconsumer

PACKAGE = Path(next(iter(zkconsumer.__path__)))

_FLAGS = ["-shared", "-fPIC", "-std=c11", "-Wall", "-Wextra", "-g", "-O1", "-fno-omit-frame-pointer"]
_SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
_PROBE = "int probe(const int *p) { return p[1] + 1; }\n"

#: Options of AddressSanitizer; leaks are not detected, because the interpreter does not free all of its memory.
_ASAN_OPTIONS = "detect_leaks=0:abort_on_error=0:exitcode=99:allocator_may_return_null=1:quarantine_size_mb=32"
_UBSAN_OPTIONS = "print_stacktrace=1:halt_on_error=1:exitcode=99"


class Target(NamedTuple):
    """A C module to fuzz.

    Attributes:
        command: the fuzzer, as an argument of ``python -m``.
        source: the C file, with the name of the module.
        child: module of this package that calls it, in a process with the sanitizers.
        prepare: creates files for a seed in a folder, and returns additional arguments of the child.
        checks: name of a check to its text in the source, and the replacement; ``BROKEN`` is true while it is disabled.
        other_reports: text of the error by check, if the sanitizer does not report it.
        self_test_arguments: additional arguments of the child in the self-test.
    """

    command: str
    source: Path
    child: str
    prepare: Callable[[int, Path], list[str]]
    checks: Mapping[str, tuple[str, str]]
    other_reports: Mapping[str, str]
    self_test_arguments: list[str]


class CannotRunError(Exception):
    """The fuzzer cannot run on this machine."""


def compiler() -> list[str]:
    """Return the command of the C compiler: ``CC``, or ``cc``."""
    return shlex.split(os.environ.get("CC", "cc"))


def _compile(folder: Path, name: str, text: str, *extra: str) -> tuple[Path, str | None]:
    source, out = folder / f"{name}.c", folder / f"{name}.so"
    source.write_text(text)
    command = [*compiler(), *_FLAGS, *_SANITIZERS, *extra, str(source), "-o", str(out)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    except FileNotFoundError:
        raise CannotRunError(f"C compiler {compiler()[0]!r} not found; install one, or set CC") from None
    return out, f"{shlex.join(command)}\n{done.stderr}" if done.returncode else None


def runtimes() -> list[str]:
    """Return the runtime libraries of the sanitizers, which have to be preloaded."""
    found = []
    for name in ("libasan.so", "libubsan.so"):
        command = [*compiler(), f"-print-file-name={name}"]
        path = subprocess.run(command, capture_output=True, text=True, timeout=30).stdout.strip()
        if not os.path.isabs(path) or not Path(path).exists():
            raise CannotRunError(
                f"the compiler {shlex.join(compiler())!r} lacks the sanitizer runtime {name}; "
                "install gcc with its libasan and libubsan, or set CC to such a compiler"
            )
        found.append(str(Path(path).resolve()))
    return found


def read_source(path: Path, folder: Path) -> str:
    """Return the text of a C file, with the files that it includes.

    Args:
        path: the file.
        folder: the paths of included files are relative to it.
    """
    prefix = '#include "'
    parts = []
    for line in path.read_text().splitlines(keepends=True):
        included = folder / line.split('"')[1] if line.startswith(prefix) else None
        parts.append(line if included is None else read_source(included, included.parent))
    return "".join(parts)


def build(folder: Path, target: Target, text: str, *extra: str) -> Path:
    """Compile the text of the C file into a module.

    Raises:
        CannotRunError: there is no compiler, it lacks the sanitizers, or the source does not compile.
    """
    _, failure = _compile(folder, "probe", _PROBE)
    if failure is not None:
        raise CannotRunError(
            "the compiler lacks the address or undefined-behavior sanitizer; install gcc with its libasan "
            f"and libubsan, or set CC to such a compiler\n{failure}"
        )
    runtimes()
    include = f"-I{sysconfig.get_paths()['include']}"
    module, failure = _compile(folder, target.source.stem, text, "-DPy_LIMITED_API=0x030B0000", include, *extra)
    if failure is not None:
        raise CannotRunError(f"{target.source.name} does not compile\n{failure}")
    return module


def run_child(
    folder: Path,
    target: Target,
    module: Path,
    arguments: list[str],
    *,
    capture: bool,
    environment: dict[str, str] | None = None,
) -> subprocess.CompletedProcess[str] | None:
    """Run the child with the module; return None if it succeeds, else the completed process.

    The child imports neither pyarrow nor the package: an exception that C++ throws ends a process whose
    AddressSanitizer was loaded before libstdc++.
    """
    command = [
        *(sys.executable, "-X", "faulthandler", "-m", f"{__package__}.{target.child}"),
        *("--module", str(module), "--package", str(PACKAGE), "--execution", str(folder / "execution")),
        *arguments,
    ]
    preloaded = {
        "LD_PRELOAD": ":".join(runtimes()),
        "ASAN_OPTIONS": _ASAN_OPTIONS,
        "UBSAN_OPTIONS": _UBSAN_OPTIONS,
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": str(Path(__file__).parents[__package__.count(".") + 1]),
    }
    done = subprocess.run(
        command, env={**os.environ, **preloaded, **(environment or {})}, capture_output=capture, text=True
    )
    return done if done.returncode else None
