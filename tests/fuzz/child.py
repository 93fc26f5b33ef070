"""What the processes that call C modules under the sanitizers have in common.

A buffer that is passed to a C module is allocated with malloc in its exact size, so that the sanitizer detects an
access to the first byte after it.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import mmap
import struct
import sys
import time
import types
from pathlib import Path
from typing import Any, Protocol

_libc = ctypes.CDLL(None)
_libc.malloc.restype, _libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
_libc.free.restype, _libc.free.argtypes = None, [ctypes.c_void_p]
_view_of = ctypes.pythonapi.PyMemoryView_FromMemory
_view_of.restype, _view_of.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int]
_WRITABLE = 0x200


class Heap:
    """Blocks of memory of exact size, and views of them."""

    def __init__(self) -> None:
        self._pieces: list[tuple[memoryview, int]] = []

    def take(self, data: bytes, shift: int = 0) -> memoryview:
        """Return a copy at the end of a block; it starts ``shift`` bytes after an aligned address."""
        shift = shift if data else 16
        address = _libc.malloc(len(data) + shift)
        ctypes.memmove(address + shift, data, len(data))
        view: memoryview = _view_of(address + shift, len(data), _WRITABLE)
        self._pieces.append((view, address))
        return view

    def release(self) -> None:
        """Free all blocks.

        Raises:
            BufferError: a call has not released a view.
        """
        for view, address in self._pieces:
            view.release()
            _libc.free(address)
        self._pieces.clear()


class Executor(Protocol):
    """Runs executions.

    Attributes:
        calls: number of calls so far.
        digest: of their results.
    """

    calls: int
    digest: Any

    def execute(self, number: int) -> None:
        """Run one execution."""


def create_parser() -> argparse.ArgumentParser:
    """Return a parser of the arguments that all children have."""
    parser = argparse.ArgumentParser()
    for name in ("--module", "--package", "--execution"):
        parser.add_argument(name, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--runs", type=int)
    parser.add_argument("--seconds", type=float, default=1e9)
    return parser


def create_stubs(package: str, *names: str) -> None:
    """Let packages be importable without their ``__init__.py``, which import pyarrow."""
    for name in names:
        stub = types.ModuleType(name)
        stub.__path__ = [str(Path(package, *name.split(".")[1:]))]
        sys.modules[name] = stub


def load_extension(name: str, path: str) -> Any:
    """Import a C module from a file."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def run_executions(options: argparse.Namespace, fuzzer: Executor) -> None:
    """Run executions up to the limit of their number or time."""
    Path(options.execution).write_bytes(struct.pack("<q", -1))
    started = time.monotonic()
    number = options.first
    with Path(options.execution).open("r+b") as file, mmap.mmap(file.fileno(), 8) as current:
        while options.runs is None or number < options.first + options.runs:
            if options.runs is None and time.monotonic() - started >= options.seconds:
                break
            struct.pack_into("<q", current, 0, number)  # read by the parent process after a crash
            fuzzer.execute(number)
            number += 1
    print(
        f"fuzz: {number - options.first} executions, {fuzzer.calls} calls, "
        f"digest {fuzzer.digest.hexdigest()}, no fault in {time.monotonic() - started:.1f} s",
        flush=True,
    )
