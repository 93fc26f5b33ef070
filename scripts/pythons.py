"""Run lint and the unit tests on each Python version that ``setup.cfg`` names: ``make pythons``.

Each version has its own virtual environment, ``.venv-3.12`` for example. Versions that are not installed are reported.
The exit code is 1 if a version fails, or if none is installed.
"""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def supported_versions() -> list[str]:
    """Return the Python versions of the classifiers, such as ``3.11``."""
    setup = configparser.ConfigParser(interpolation=None)
    setup.read(ROOT / "setup.cfg")
    return re.findall(r"Python :: (3\.\d+)$", setup["metadata"]["classifiers"], re.MULTILINE)


def find_interpreter(version: str) -> str | None:
    """Return an interpreter of a version from ``PATH`` or from pyenv, or None if there is none that starts."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    found = [shutil.which(f"python{version}"), *sorted(pyenv.glob(f"versions/{version}.*/bin/python{version}"))]
    for interpreter in filter(None, found):
        # pyenv puts commands on PATH that fail if the version is not selected.
        if subprocess.run([interpreter, "-c", ""], capture_output=True, check=False).returncode == 0:
            return str(interpreter)
    return None


def main() -> int:
    """Run the tests, print a line for each version, and return the exit code."""
    results = {}
    for version in supported_versions():
        interpreter = find_interpreter(version)
        if interpreter is None:
            results[version] = "not installed"
            continue
        print(f"Python {version}: {interpreter}", flush=True)
        make = ["make", "lint", "unit", f"PYTHON={interpreter}", f"VENV=.venv-{version}"]
        results[version] = "passed" if subprocess.run(make, cwd=ROOT, check=False).returncode == 0 else "failed"
    for version, result in results.items():
        print(f"Python {version}: {result}")
    return 0 if "failed" not in results.values() and "passed" in results.values() else 1


if __name__ == "__main__":
    sys.exit(main())
