"""The self-test of the fuzzer: removes the bounds checks of the decoder one at a time, and expects each to be found."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

from . import sanitized

_SECONDS = 20
_REPORT = re.compile(r"ERROR: (AddressSanitizer: \S+)|runtime error: (.*)")

#: Errors that the sanitizer does not report, by check.
_OTHER_REPORTS = {
    "message-rows": "MemoryError",  # a list of that many messages is created first
    "message-order": "SystemError: Negative size",
    "buffer-release": "BufferError: memoryview has 1 exported buffer",
    "topic-reference": "references to the topic leaked",
}

#: Name of a check: its text in ``_decode.c``, and the replacement. ``BROKEN`` is true while the check is disabled.
CHECKS = {
    "entry-too-short": ("left < MAGIC_AT + 1", "!BROKEN && left < MAGIC_AT + 1"),
    "entry-minimum": (
        "(size_t)size + LOG_OVERHEAD < header",
        "(!BROKEN && (size_t)size + LOG_OVERHEAD < header)",
    ),
    "entry-size": ("e.size > left", "!BROKEN && e.size > left"),
    "key-length": (
        "(size_t)(key < 0 ? 0 : key) > e.size - at - 4",
        "(!BROKEN && (size_t)(key < 0 ? 0 : key) > e.size - at - 4)",
    ),
    "value-length": (
        "(size_t)(value < 0 ? 0 : value) != e.size - at",
        "(!BROKEN && (size_t)(value < 0 ? 0 : value) != e.size - at)",
    ),
    "varint": ("i < max_bytes && p < end", "i < max_bytes && (BROKEN || p < end)"),
    "sized": ("*n > end - p", "(!BROKEN && *n > end - p)"),
    "record-length": ("length > end - p", "(!BROKEN && length > end - p)"),
    "row-room": ("row >= c->rows_room", "!BROKEN && row >= c->rows_room"),
    "data-room": (
        "(uint64_t)n > column->room - (uint64_t)*bytes",
        "!BROKEN && (uint64_t)n > column->room - (uint64_t)*bytes",
    ),
    "header-room": ("at >= c->headers_room", "!BROKEN && at >= c->headers_room"),
    "offsets-room": ("(size_t)offsets->len / 4 - 1", "(size_t)offsets->len / 4 - !BROKEN"),
    "validity-room": ("(size_t)validity->len * 8", "((size_t)validity->len + BROKEN) * 8"),
    "range": ("start <= end && end <= length", "start <= end && (BROKEN || end <= length)"),
    "state-size": (
        "state.len < (Py_ssize_t)sizeof(State)",
        "(!BROKEN && state.len < (Py_ssize_t)sizeof(State))",
    ),
    "state-bytes": (
        "(size_t)s->value_bytes > c.value.room",
        "(!BROKEN && (size_t)s->value_bytes > c.value.room)",
    ),
    "message-rows": ("(size_t)rows > room", "(!BROKEN && (size_t)rows > room)"),
    "message-bytes": ("o[row + 1] > data->len", "(!BROKEN && o[row + 1] > data->len)"),
    "message-order": ("o[row + 1] < o[row]", "(!BROKEN && o[row + 1] < o[row])"),
    "message-headers": (
        "(size_t)list[row + 1] > headers_room",
        "(!BROKEN && (size_t)list[row + 1] > headers_room)",
    ),
    "buffer-release": (
        "for (int i = 0; i < N_COLUMNS; i++) PyBuffer_Release(&column[i]);",
        "for (int i = BROKEN; i < N_COLUMNS; i++) PyBuffer_Release(&column[i]);",
    ),
    "topic-reference": ("Py_INCREF(topic);", "for (int i = 0; i <= BROKEN; i++) Py_INCREF(topic);"),
}

_PRELUDE = """
#include <stdlib.h>
static int is_broken(int check) {
    static int broken = -2;
    if (broken == -2) {
        const char *text = getenv("ZKCONSUMER_FUZZ_BROKEN");
        broken = text ? atoi(text) : -1;
    }
    return check == broken;
}
"""


def breakable(text: str) -> str:
    """Return the source with checks that an environment variable disables.

    Raises:
        CannotRunError: the source does not contain a check exactly once.
    """
    for number, (name, (old, new)) in enumerate(CHECKS.items()):
        if text.count(old) != 1:
            raise sanitized.CannotRunError(
                f"the check {name!r} of the self-test must occur once in _decode.c as {old!r}, "
                f"got {text.count(old)} occurrences; update tests/fuzz/selftest.py"
            )
        text = text.replace(old, new.replace("BROKEN", f"is_broken({number})"))
    include = "#include <string.h>\n"
    return text.replace(include, include + _PRELUDE, 1)


def run(folder: Path, seed: int, source: Path, wanted: list[str]) -> int:
    """Run the fuzzer against the unchanged decoder, and then without each check."""
    unknown = sorted(set(wanted) - set(CHECKS))
    if unknown:
        raise sanitized.CannotRunError(f"unknown check {unknown[0]!r}; valid checks: {', '.join(CHECKS)}")
    module = sanitized.build(folder, breakable(source.read_text()))
    print(f"fuzz: self-test with seed {seed}", flush=True)
    arguments = ["--seed", str(seed)]
    whole = sanitized.run_child(folder, module, [*arguments, "--runs", "300"], capture=True)
    if whole is not None:
        print(f"fuzz: the unchanged decoder fails\n{whole.stderr}", file=sys.stderr)
        return 1
    missed = [name for number, name in enumerate(CHECKS) if not wanted or name in wanted]
    for name in tuple(missed):
        started = time.monotonic()
        found = sanitized.run_child(
            folder,
            module,
            [*arguments, "--seconds", str(_SECONDS), "--compared", "0"],
            capture=True,
            environment={"ZKCONSUMER_FUZZ_BROKEN": str([*CHECKS].index(name))},
        )
        took = f"{time.monotonic() - started:.1f} s"
        if found is None:
            print(f"fuzz: without check {name}: NOT FOUND in {took}", flush=True)
            continue
        report = _REPORT.search(found.stderr)
        what = next(filter(None, report.groups())) if report else found.stderr.strip().splitlines()[-1]
        if "AddressSanitizer: " in what or (name in _OTHER_REPORTS and _OTHER_REPORTS[name] in what):
            missed.remove(name)
            print(f"fuzz: without check {name}: found in {took}: {what}", flush=True)
        else:
            print(f"fuzz: without check {name}: UNEXPECTED ERROR in {took}: {what}", flush=True)
    if missed:
        print(f"fuzz: the fuzzer does not detect the removal of these checks: {', '.join(missed)}", file=sys.stderr)
    return 1 if missed else 0
