"""Tests of the explanation why the compiled decoder is missing."""

from __future__ import annotations

from pathlib import Path

from zkconsumer.fetcher.native import _explain_missing_decoder


def test_source_directory_that_hides_package_is_named(tmp_path: Path) -> None:
    (tmp_path / "setup.py").touch()

    assert f"imported from the source directory '{tmp_path}'" in _explain_missing_decoder(tmp_path)
    assert f"pip install -e {tmp_path}" in _explain_missing_decoder(tmp_path)


def test_package_without_decoder_is_explained(tmp_path: Path) -> None:
    assert "ZKCONSUMER_PURE=1" in _explain_missing_decoder(tmp_path)
