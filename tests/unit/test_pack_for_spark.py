"""Tests of ``pack-for-spark``: a distribution is packed completely, or rejected with its name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from helpers.aliases import Run

#: Creates an installed distribution: ``install("name", {"name/__init__.py": ""}, requires=["other"])``.
Install = Callable[..., Path]

EDITABLE = json.dumps({"url": "file:///src", "dir_info": {"editable": True}})

PLUGIN = "import importlib.metadata\nVERSION = importlib.metadata.version('plug-in')\n"
ENTRY_POINTS = "[my.plugins]\nfirst = plug_in:VERSION\n"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory on ``sys.path`` for installed distributions."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    return folder


@pytest.fixture
def install(site: Path) -> Install:
    def create(
        name: str,
        files: Mapping[str, str | bytes],
        *,
        version: str = "1.5",
        requires: tuple[str, ...] = (),
        metadata: Mapping[str, str] | None = None,
        record: tuple[str, ...] = (),
    ) -> Path:
        info = f"{name.replace('-', '_')}-{version}.dist-info"
        header = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        lines = "".join(f"Requires-Dist: {one}\n" for one in requires)
        lines += "".join(f"Provides-Extra: {one}\n" for one in {"fast"} if requires)
        described = {f"{info}/{file}": text for file, text in {"METADATA": header + lines, **(metadata or {})}.items()}
        for path, content in {**files, **described}.items():
            target = site / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content.encode() if isinstance(content, str) else content)
        rows = [*files, *described, f"{info}/RECORD", *record]
        (site / info / "RECORD").write_text("".join(f'"{row}",,\n' for row in rows))
        return site / info

    return create


@pytest.fixture
def packed(tmp_path: Path, run: Run) -> Callable[..., Path]:
    """Pack distributions, and return the directory with the content of the archive."""

    def call(*names: str) -> Path:
        archive, folder = tmp_path / "packages.tar.gz", tmp_path / "packages"
        code, _, errors = run("pack-for-spark", archive, *(f"--include={name}" for name in names))
        assert code == 0, errors
        with tarfile.open(archive) as content:
            content.extractall(folder, filter="data")
        return folder

    return call


def run_with(folder: Path, code: str) -> str:
    """Run Python code in a process that has only the packed packages, and return its output."""
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], env={"PYTHONPATH": str(folder)}, cwd=folder, text=True,
        capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_packed_plugin_finds_version_and_entry_points(install: Install, packed: Callable[..., Path]) -> None:
    data = {"plug_in/data/words.txt": "word", "plug_in/_fast.abi3.so": b"\x7fELF", "plug_in.libs/libx.so": b"\x7fELF"}
    install("plug-in", {"plug_in/__init__.py": PLUGIN, **data}, metadata={"entry_points.txt": ENTRY_POINTS})

    folder = packed("plug-in")

    code = "import importlib.metadata as m; [e] = m.entry_points(group='my.plugins'); print(e.load())"
    assert run_with(folder, code) == "1.5"
    assert (folder / "plug_in/data/words.txt").read_text() == "word"
    assert (folder / "plug_in/_fast.abi3.so").exists()
    assert (folder / "plug_in.libs/libx.so").exists()


def test_packed_zkconsumer_knows_its_version_and_dependencies(packed: Callable[..., Path]) -> None:
    folder = packed()

    code = (
        "import importlib.metadata as m, zkconsumer, kazoo, tenacity\n"
        "print(m.version('zkconsumer') == zkconsumer.__version__, bool(m.files('kazoo')))"
    )
    assert run_with(folder, code) == "True True"


def test_only_what_spark_jobs_need_is_packed(packed: Callable[..., Path]) -> None:
    folder = packed()

    found = {path.name for path in folder.iterdir() if not path.name.endswith(".dist-info")}
    assert found - {"six.py"} == {
        *("zkconsumer", "pyspark_zkconsumer", "kafka", "kazoo", "tenacity", "structlog", "javaproperties", "regex"),
    }
    assert not {"devcluster", "tools"} & {path.name for path in (folder / "zkconsumer").iterdir()}
    assert not [path for path in (folder / "zkconsumer").rglob("*") if path.suffix in (".c", ".h", ".pyc")]


def test_package_that_only_tools_require_is_packed_for_others(packed: Callable[..., Path]) -> None:
    assert (packed("pytest") / "packaging").is_dir()


def test_packages_of_extra_are_packed(packed: Callable[..., Path]) -> None:
    folder = packed("zkconsumer[topology]")

    assert (folder / "confluent_kafka").is_dir()
    assert (folder / "google" / "protobuf").is_dir()


def test_namespace_package_is_packed_from_each_distribution(install: Install, packed: Callable[..., Path]) -> None:
    hook = "import sys, types; pass\n"  # executed by site; not needed for a namespace without __init__.py
    install("ns-one", {"ns/one.py": "N = 1", "ns_one-nspkg.pth": hook}, requires=("ns-two",))
    install("ns-two", {"ns/two/__init__.py": "N = 2"})

    folder = packed("ns-one")

    assert run_with(folder, "import ns.one, ns.two; print(ns.one.N + ns.two.N)") == "3"


def test_extras_and_transitive_dependencies_are_packed(install: Install, packed: Callable[..., Path]) -> None:
    install("first", {"first.py": ""}, requires=("second[fast]>=1",))
    install("second", {"second.py": ""}, requires=('third; extra == "fast"', 'none-such; extra == "slow"'))
    install("third", {"third.py": "print('found')"})

    assert run_with(packed("first"), "import first, second, third") == "found"


def test_links_are_packed_as_files(install: Install, site: Path, packed: Callable[..., Path]) -> None:
    """Installers such as uv can link files to their cache."""
    install("linked", {"linked/__init__.py": "", "linked/same.py": ""})
    (site.parent / "cached.py").write_text("print('cached')")
    (site / "linked/__init__.py").unlink()
    (site / "linked/__init__.py").symlink_to(site.parent / "cached.py")
    (site / "linked/same.py").unlink()
    os.link(site.parent / "cached.py", site / "linked/same.py")

    folder = packed("linked")

    assert run_with(folder, "import linked, linked.same") == "cached\ncached"
    assert not (folder / "linked/__init__.py").is_symlink()


def test_zipped_distribution_is_packed(
    install: Install, site: Path, packed: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    info = install("zipped", {"zipped/__init__.py": "print('zipped')", "zipped/data.txt": "d"})
    archive = site.parent / "zipped.whl"
    with zipfile.ZipFile(archive, "w") as content:
        for path in [*site.glob("zipped/*"), *info.iterdir()]:
            content.write(path, path.relative_to(site))
            path.unlink()
    info.rmdir()
    monkeypatch.syspath_prepend(str(archive))

    folder = packed("zipped")

    assert run_with(folder, "import zipped, importlib.metadata as m; print(m.version('zipped'))") == "zipped\n1.5"
    assert (folder / "zipped/data.txt").read_text() == "d"


@pytest.mark.parametrize(
    ("files", "metadata"),
    [
        ({"__editable__.e-1.5.pth": "import __editable___e_finder; __editable___e_finder.install()\n"}, {}),
        ({"__editable__.e-1.5.pth": "/src/e\n"}, {"direct_url.json": EDITABLE}),
        ({"_e.pth": "/src/e/src\n"}, {}),
        ({"_e.pth": "# comment\n/src/e/src\n"}, {"direct_url.json": EDITABLE}),
        ({"e/__init__.py": ""}, {"direct_url.json": EDITABLE}),
    ],
    ids=["setuptools finder", "setuptools path", "hatch without origin", "hatch", "links"],
)
@pytest.mark.parametrize("included", ["e", "user"], ids=["included", "dependency"])
def test_editable_distribution_is_rejected(
    files: dict[str, str], metadata: dict[str, str], included: str, install: Install, tmp_path: Path, run: Run
) -> None:
    install("e", files, metadata=metadata)
    install("user", {"user.py": ""}, requires=("e",))

    code, _, errors = run("pack-for-spark", tmp_path / "p.tar.gz", "--include", included)

    assert code == 1
    assert "distribution 'e' is installed in editable mode" in errors
    assert not (tmp_path / "p.tar.gz").exists()


@pytest.mark.parametrize("missing", ["half/__init__.py", "half/_fast.so", "half-1.5.dist-info/entry_points.txt"])
def test_incompletely_installed_distribution_is_rejected(
    missing: str, install: Install, site: Path, tmp_path: Path, run: Run
) -> None:
    files = {"half/__init__.py": "", "half/_fast.so": "", "half/__pycache__/__init__.cpython-311.pyc": ""}
    install("half", files, metadata={"entry_points.txt": ENTRY_POINTS})
    (site / "half/__pycache__/__init__.cpython-311.pyc").unlink()  # caches may be missing
    (site / missing).unlink()

    code, _, errors = run("pack-for-spark", tmp_path / "p.tar.gz", "--include", "half")

    assert code == 1
    assert errors == (
        f"zkconsumer pack-for-spark: distribution 'half' is not completely installed: {missing!r} is missing; "
        "reinstall it\n"
    )


def test_distribution_without_record_is_rejected(install: Install, tmp_path: Path, run: Run) -> None:
    """Packages of Linux distributions and ``setup.py develop`` do not record their files."""
    (install("system", {"system.py": ""}) / "RECORD").unlink()

    code, _, errors = run("pack-for-spark", tmp_path / "p.tar.gz", "--include", "system")

    assert code == 1
    assert "the files of distribution 'system' are unknown, because it has no RECORD" in errors


def test_files_outside_site_packages_are_named(install: Install, site: Path, tmp_path: Path, run: Run) -> None:
    script = os.path.relpath(Path(sys.prefix) / "bin" / "tool", site.resolve())
    install("shared", {"shared.py": ""}, record=("../share/shared/map.txt", script))

    code, _, errors = run("pack-for-spark", tmp_path / "p.tar.gz", "--include", "shared")

    assert code == 0
    skipped = [line for line in errors.splitlines() if line.startswith("skipped: ")]
    path = site.resolve().parent / "share/shared/map.txt"
    assert skipped == [f"skipped: {path} of distribution 'shared', because it is outside site-packages"]


def test_other_version_than_included_one_is_rejected(install: Install, tmp_path: Path, run: Run) -> None:
    install("old", {"old.py": ""})

    code, _, errors = run("pack-for-spark", tmp_path / "p.tar.gz", "--include", "old>=2")

    assert code == 1
    assert "distribution 'old' is installed in version 1.5, but old>=2 is required" in errors
