"""Tests of files that the tools write: they are complete, or they do not exist."""

from __future__ import annotations

import errno
import os
import tarfile
from pathlib import Path

import pytest
from helpers.aliases import Run

from zkconsumer.tools import common


@pytest.mark.parametrize("before", [None, b"an archive of last week"])
def test_failed_write_leaves_no_truncated_file(before: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "packages.tar.gz"
    if before is not None:
        path.write_bytes(before)

    def fill_disk(file: Path) -> None:
        file.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(common.ToolError, match="cannot write '.*packages"), common.replace_file(path) as file:
        fill_disk(file)

    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == (
        [] if before is None else [(path.name, before)]
    )


def test_packed_archive_replaces_earlier_one(tmp_path: Path, run: Run) -> None:
    archive = tmp_path / "packages.tar.gz"
    archive.write_bytes(b"an archive of last week")
    archive.chmod(0o640)

    assert run("pack-for-spark", archive)[0] == 0

    with tarfile.open(archive) as content:
        assert "zkconsumer/version.py" in content.getnames()
    assert archive.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [archive]


@pytest.mark.parametrize("name", ["missing-directory/file", "", "x" * 255 + "y"])
def test_file_that_cannot_be_written_is_an_error(name: str, tmp_path: Path) -> None:
    with pytest.raises(common.ToolError, match="cannot write "), common.replace_file(tmp_path / name) as file:
        file.write_text("content")

    assert list(tmp_path.iterdir()) == []


def test_link_and_pipe_are_written_through(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "file").write_text("before")
    with common.replace_file(tmp_path / "link") as file:
        file.write_text("after")
    reading, writing = os.pipe()
    with common.replace_file(Path(f"/dev/fd/{writing}")) as file:
        file.write_text("piped")

    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "after"
    assert os.read(reading, 100) == b"piped"
    os.close(reading)
    os.close(writing)
