"""The tool ``pack-for-spark``: creates an archive of the packages that Spark's executors need."""

from __future__ import annotations

import argparse
import importlib.metadata
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

import zkconsumer
from zkconsumer.errors import ConfigurationError
from zkconsumer.tools import common, output
from zkconsumer.tools.common import ToolError

#: Distributions that are part of Spark's Python environment: Spark itself and the requirements of Python data sources.
_IN_SPARK = frozenset({"pyspark", "py4j", "pyarrow", "pandas", "numpy", "grpcio", "googleapis-common-protos"})

_DESCRIPTION = """\
Create an archive of zkconsumer and its dependencies, for Spark executors on which they are not installed.

  zkconsumer pack-for-spark packages.tar.gz
  spark-submit --archives packages.tar.gz#packages \\
  --conf spark.executorEnv.PYTHONPATH=packages job.py

The archive contains compiled code, so create it on the platform of the executors. It does not contain pyarrow, which
must be installed on the executors for Python data sources.
"""


def add_to(tools: Any) -> None:
    """Add the subcommand."""
    parser = common.add_tool(tools, "pack-for-spark", run, _DESCRIPTION)
    parser.add_argument("archive", type=Path, metavar="FILE.tar.gz", help="archive to create")
    parser.add_argument(
        "--include",
        action="append",
        default=[],
        metavar="DISTRIBUTION",
        help="additional installed distribution to pack, with its dependencies; can be repeated",
    )


def run(options: argparse.Namespace) -> int:
    """Create the archive and return the exit code."""
    names = _collect_required(["zkconsumer", *options.include])
    with common.replace_file(options.archive) as path, tarfile.open(path, "w:gz") as archive:
        package = Path(zkconsumer.__file__).parent
        for folder in (
            package,
            package.parent / "pyspark_zkconsumer",
        ):  # Spark discovers the data source through pyspark_zkconsumer
            archive.add(folder, folder.name, filter=_without_caches)
        for name in sorted(names - {"zkconsumer"}):
            for file, packed_as in _files(name):
                archive.add(file, packed_as)
    output.note(f"packed {', '.join(sorted(names))} into {options.archive}")
    return 0


def _collect_required(names: list[str]) -> set[str]:
    """Return the normalized names of distributions and their dependencies, without dependencies that Spark provides.

    Raises:
        ConfigurationError: an element of ``names`` is not a distribution name.
        ToolError: a distribution is not installed.
    """
    found: set[str] = set()
    waiting = [_parse(name).name for name in names]
    included = set(map(canonicalize_name, waiting))
    while waiting:
        name = canonicalize_name(waiting.pop())
        if name in found or (name in _IN_SPARK and name not in included):
            continue
        try:
            requirements = map(Requirement, importlib.metadata.requires(name) or [])
        except importlib.metadata.PackageNotFoundError:
            raise ToolError(f"distribution {name!r} is not installed; install it with pip") from None
        found.add(name)
        waiting += [one.name for one in requirements if one.marker is None or one.marker.evaluate({"extra": ""})]
    return found


def _parse(text: str) -> Requirement:
    try:
        return Requirement(text)
    except InvalidRequirement:
        raise ConfigurationError(f"--include must be the name of a distribution, got {text!r}") from None


def _files(name: str) -> Iterator[tuple[Path, str]]:
    """Yield the files of a distribution in site-packages, with their names in the archive."""
    for file in importlib.metadata.files(name) or ():
        if ".." not in file.parts and "__pycache__" not in file.parts and not file.parts[0].endswith(".dist-info"):
            yield Path(str(file.locate())), str(file)


def _without_caches(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if "__pycache__" in info.name else info
