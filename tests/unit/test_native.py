"""Tests of the choice of compiled modules, and of the explanation why one is missing."""

from __future__ import annotations

import gc
import re
import subprocess
import sys
import weakref
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

import zkconsumer
from zkconsumer.broker import _transfer
from zkconsumer.fetcher import _decode
from zkconsumer.topology.loop import _loop
from zkconsumer.topology.stores import _pages
from zkconsumer.version import explain_missing_module


def test_source_directory_that_hides_package_is_named(tmp_path: Path) -> None:
    (tmp_path / "setup.py").touch()

    assert f"imported from the source directory '{tmp_path}'" in explain_missing_module(tmp_path)
    assert f"pip install -e {tmp_path}" in explain_missing_module(tmp_path)


def test_package_without_compiled_module_is_explained(tmp_path: Path) -> None:
    assert "ZKCONSUMER_PURE=1" in explain_missing_module(tmp_path)


def test_c_modules_return_new_references_on_all_versions() -> None:
    """From Python 3.12 on, ``Py_RETURN_NONE`` returns a borrowed reference, which Python 3.11 releases."""
    for path in Path(zkconsumer.__file__).parent.rglob("*.[ch]"):
        assert not re.search(r"Py_RETURN_[A-Z]", path.read_text()), path


def test_c_methods_need_no_other_casts() -> None:
    """A call through a pointer of another function type is undefined."""
    for path in Path(zkconsumer.__file__).parent.rglob("*.c"):
        for flags in re.findall(r"\(void \(\*\)\(void\)\)\w+, ([^,]*)", path.read_text()):
            assert re.search("METH_(FASTCALL|KEYWORDS)", flags), f"{path}: {flags}"


@pytest.mark.parametrize("module", [_decode, _loop, _pages, _transfer], ids=["decode", "loop", "pages", "transfer"])
def test_second_instance_of_c_module_is_freed(module: ModuleType) -> None:
    spec = spec_from_loader(module.__name__, ExtensionFileLoader(module.__name__, str(module.__file__)))
    assert spec is not None
    assert spec.loader is not None
    instance = module_from_spec(spec)
    spec.loader.exec_module(instance)
    assert instance is not module
    reference = weakref.ref(instance)

    del instance
    gc.collect()

    assert reference() is None


def test_environment_selects_maps_in_python() -> None:
    code = (
        "import sys; from zkconsumer.topology import stores; from zkconsumer.topology.task import task_stores; "
        "key_value = sys.modules['zkconsumer.topology.stores.key_value_store']; "
        "print(stores.PagedMap.__module__, task_stores.PagedMap.__module__, key_value.SerdeMap.__module__)"
    )
    found = [
        subprocess.run(
            [sys.executable, "-c", code], env={"ZKCONSUMER_PURE": pure}, check=True, capture_output=True, text=True
        ).stdout.split()
        for pure in ("1", "0")
    ]

    package = "zkconsumer.topology.stores"
    assert found == [[f"{package}.pages"] * 2 + [f"{package}.serde_map"], [f"{package}._pages"] * 3]
