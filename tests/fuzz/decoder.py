"""The compiled decoder as a target of the fuzzer, and the checks that the self-test removes from it."""

from __future__ import annotations

from pathlib import Path

from .corpus import make_corpus
from .sanitized import PACKAGE, Target

#: Errors that the sanitizer does not report, by check.
OTHER_REPORTS = {
    "buffer-release": "BufferError: memoryview has 1 exported buffer",
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
    "short-varint": ("end - p < 2 ||", "(!BROKEN && end - p < 2) ||"),
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
    "buffer-release": (
        "for (int i = 0; i < N_COLUMNS; i++) PyBuffer_Release(&column[i]);",
        "for (int i = BROKEN; i < N_COLUMNS; i++) PyBuffer_Release(&column[i]);",
    ),
}


def prepare(seed: int, folder: Path) -> list[str]:
    """Create the batches that are mutated."""
    make_corpus(seed, folder / "corpus")
    return ["--corpus", str(folder / "corpus")]


DECODER = Target(
    command="tests.fuzz",
    source=PACKAGE / "fetcher" / "_decode.c",
    child="decoder_child",
    prepare=prepare,
    checks=CHECKS,
    other_reports=OTHER_REPORTS,
    self_test_arguments=["--compared", "0"],
)
