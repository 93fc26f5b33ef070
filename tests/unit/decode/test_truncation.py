"""Tests of chunks that end inside an entry."""

from __future__ import annotations

from typing import Any

import pytest
from helpers import batches
from helpers.batches import Record

from .chunks import ANY, Read, chunk_of, error_text, every_codec, joined, read, three_entries


@every_codec
def test_truncated_chunk_gives_complete_entries(twin: Any, magic: int, codec: int) -> None:
    log = three_entries(magic, codec)
    data, _ = joined(log)
    ends = [sum(len(part.data) for part in log[: i + 1]) for i in range(len(log))]
    for cut in range(len(data) + 1):
        complete = log[: sum(end <= cut for end in ends)]
        size, rows = (
            len(b"".join(part.data for part in complete)),
            [row for part in complete for row in part.rows],
        )
        found = read(data[:cut])
        assert found.rows == rows, f"cut at byte {cut}"
        assert (found.error == "") == bool(complete or not cut), f"cut at byte {cut}"
        assert twin.next_offset(data[:cut], *ANY) == (complete[-1].next_offset if complete else -1, size, None)


@pytest.mark.usefixtures("twin")
def test_incomplete_entry_differs_from_early_end() -> None:
    """A fetcher creates such a chunk if an entry is larger than the fetch size."""
    data = batches.batch([Record(7)])[:-1]
    chunk = chunk_of(data, 7)
    assert read(chunk).error.startswith(error_text("no complete batch", 7, 0, chunk))
    assert read(chunk).resume == 7


@pytest.mark.usefixtures("twin")
def test_empty_chunk_has_no_rows() -> None:
    assert read(b"") == Read([], [], [])
