"""Tests of the build options of the C modules."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def compiled_options() -> Any:
    pytest.importorskip("setuptools")
    return runpy.run_path(str(ROOT / "setup.py"))["compiled_options"]


@pytest.mark.parametrize("gil_disabled", [0, None])
def test_c_modules_use_limited_api(compiled_options: Any, gil_disabled: int | None) -> None:
    options = compiled_options(gil_disabled)

    assert len(options["ext_modules"]) == 5
    for extension in options["ext_modules"]:
        assert extension.define_macros == [("Py_LIMITED_API", "0x030B0000")]
        assert extension.py_limited_api
    assert options["options"] == {"bdist_wheel": {"py_limited_api": "cp311"}}


def test_free_threaded_build_is_rejected(compiled_options: Any) -> None:
    with pytest.raises(SystemExit, match="does not support free-threaded builds of CPython"):
        compiled_options(1)


def test_c_modules_depend_on_all_headers(compiled_options: Any) -> None:
    headers = {str(path.relative_to(ROOT)) for path in (ROOT / "zkconsumer").rglob("*.h")}
    [extension, *_] = compiled_options(0)["ext_modules"]
    text = (ROOT / "Makefile").read_text()
    [line] = [line for line in text.splitlines() if line.startswith("HEADERS := ")]

    assert set(extension.depends) == headers
    assert set(line.removeprefix("HEADERS := ").split()) == headers
