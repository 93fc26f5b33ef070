"""Tests of files that the tools write: they are complete, or they do not exist."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest
from aliases import Run

from zkconsumer.tools import common


@pytest.fixture
def broken_distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of an installed distribution of which a file is missing."""
    info = tmp_path / "site" / "half_installed-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: half-installed\nVersion: 1.0\n")
    (info / "RECORD").write_text("half_installed/__init__.py,,\n")
    monkeypatch.syspath_prepend(str(info.parent))
    return "half-installed"


@pytest.mark.parametrize("before", [None, b"an archive of last week"])
def test_failed_packing_leaves_no_truncated_archive(
    before: bytes | None, broken_distribution: str, tmp_path: Path, run: Run
) -> None:
    archive = tmp_path / "out" / "packages.tar.gz"
    archive.parent.mkdir()
    if before is not None:
        archive.write_bytes(before)

    code, _, errors = run("pack-for-spark", archive, "--include", broken_distribution)

    assert code == 1
    assert f"cannot write '{archive}'" in errors
    assert "half_installed" in errors
    assert [(file.name, file.read_bytes()) for file in archive.parent.iterdir()] == (
        [] if before is None else [(archive.name, before)]
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
