"""Run the Spark tests on each supported version of Spark: ``make spark-versions``, or ``VERSION=4.0.5`` for one.

Each version has its own virtual environment, ``.venv-spark-4.0.5`` for example. With a version that does not support
``StreamsApp``, its tests are not collected. The exit code is 1 if a version fails.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
CONSTRAINTS = ROOT / "constraints.txt"

#: The latest release of each supported minor version. The last one is that of ``constraints.txt``.
VERSIONS = ("4.0.5", "4.1.4", "4.2.1", "4.3.0")


def find_environment(version: str) -> Path:
    """Return the directory of the virtual environment for a version of Spark."""
    return ROOT / f".venv-spark-{version}"


def run(version: str) -> bool:
    """Run the tests on one version of Spark, and return whether they passed."""
    folder = find_environment(version)
    folder.mkdir(exist_ok=True)
    constraints = folder / "constraints.txt"
    text = re.sub(r"(?m)^pyspark==.*$", f"pyspark=={version}", CONSTRAINTS.read_text())
    if not constraints.exists() or constraints.read_text() != text:  # make compares modification times
        constraints.write_text(text)
    make = ["make", "spark-test", f"VENV={folder.name}", f"CONSTRAINTS={folder.name}/{constraints.name}"]
    return subprocess.run(make, cwd=ROOT, check=False).returncode == 0


def main() -> int:
    """Run the tests, print a line for each version, and return the exit code."""
    results = {}
    for version in sys.argv[1:] or VERSIONS:
        print(f"Spark {version}", flush=True)
        results[version] = run(version)
    for version, has_passed in results.items():
        print(f"Spark {version}: {'passed' if has_passed else 'failed'}")
    return 0 if all(results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
