"""The tool ``pack-for-spark``: creates an archive of the packages that Spark's executors need."""

from __future__ import annotations

import argparse
import io
import tarfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

import zkconsumer
from zkconsumer.errors import ConfigurationError
from zkconsumer.tools import common, output
from zkconsumer.tools.arguments import ToolParser
from zkconsumer.tools.common import ToolError
from zkconsumer.tools.distribution import InstalledDistribution

#: Distributions that are part of Spark's Python environment: Spark itself and the requirements of Python data sources.
_IN_SPARK = frozenset({"pyspark", "py4j", "pyarrow", "pandas", "numpy", "grpcio", "googleapis-common-protos"})

#: Parts of zkconsumer that are not used in Spark jobs, and a distribution that only these parts require.
_OF_TOOLS = ("zkconsumer/devcluster", "zkconsumer/tools")
_REQUIRED_BY_TOOLS = frozenset({"packaging"})

_DETAILS = """\
  zkconsumer pack-for-spark packages.tar.gz
  spark-submit --archives packages.tar.gz#packages \\
  --conf spark.executorEnv.PYTHONPATH=packages job.py

The archive contains compiled code, so create it on the platform of the executors. It does not contain pyarrow, which
must be installed on the executors for Python data sources.
"""


def add_options(parser: ToolParser) -> None:
    """Add the description, the options and the function that runs the tool."""
    parser.set_defaults(run=run)
    parser.describe(_DETAILS)
    parser.add_argument("archive", type=Path, metavar="FILE.tar.gz", help="archive to create")
    parser.add_argument(
        "--include",
        action="append",
        default=[],
        metavar="DISTRIBUTION",
        help="additional installed distribution to pack, with its dependencies and metadata; can be repeated; it must "
        "not be installed in editable mode",
    )


def run(options: argparse.Namespace) -> int:
    """Create the archive and return the exit code."""
    distributions = _collect_required(["zkconsumer", *options.include])
    files = dict(_files(distributions))
    with common.replace_file(options.archive) as path, tarfile.open(path, "w:gz", dereference=True) as archive:
        for name, file in files.items():
            _add(archive, file, name)
    for distribution in distributions.values():
        for outside in distribution.outside_files():
            output.note(f"skipped: {outside} of {distribution}, because it is outside site-packages")
    output.note(f"packed {', '.join(sorted(distributions))} into {options.archive}")
    return 0


def _collect_required(names: list[str]) -> dict[str, InstalledDistribution]:
    """Return distributions and their dependencies by name, without dependencies that Spark provides.

    Raises:
        ConfigurationError: an element of ``names`` is not a distribution name.
        ToolError: a distribution is not installed, or not in the given version.
    """
    found: dict[str, InstalledDistribution] = {}
    waiting = list(map(_parse, names))
    included = {canonicalize_name(one.name) for one in waiting}
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        wanted = waiting.pop()
        name, key = canonicalize_name(wanted.name), (canonicalize_name(wanted.name), frozenset(wanted.extras))
        if key in seen or (name in _IN_SPARK and name not in included):
            continue
        seen.add(key)
        distribution = found.setdefault(name, InstalledDistribution(name))
        if not wanted.specifier.contains(distribution.version, prereleases=True):
            raise ToolError(f"{distribution} is installed in version {distribution.version}, but {wanted} is required")
        required = distribution.requirements(wanted.extras)
        waiting += required if name != "zkconsumer" else [one for one in required if one.name not in _REQUIRED_BY_TOOLS]
    return found


def _parse(text: str) -> Requirement:
    try:
        return Requirement(text)
    except InvalidRequirement:
        raise ConfigurationError(f"--include must be the name of a distribution, got {text!r}") from None


def _files(distributions: Mapping[str, InstalledDistribution]) -> Iterator[tuple[str, Any]]:
    """Yield the name of each file in the archive, and its path.

    The files of zkconsumer are taken from its package directories, because it may be installed in editable mode.
    """
    for name, distribution in sorted(distributions.items()):
        if name != "zkconsumer":
            yield from ((packed_as, file) for file, packed_as in distribution.files())
            continue
        package = Path(zkconsumer.__file__).parent
        # Spark discovers the data source through pyspark_zkconsumer.
        yield from ((folder.name, folder) for folder in (package, package.parent / "pyspark_zkconsumer"))
        yield from ((packed_as, file) for file, packed_as in distribution.metadata_files())


def _add(archive: tarfile.TarFile, file: Any, name: str) -> None:
    """Add a file or directory to the archive; ``file`` is a ``Path``, or a ``zipfile.Path`` for a zipped package."""
    if isinstance(file, Path):
        archive.add(file, name, filter=_select)
        return
    content = file.read_bytes()
    entry = tarfile.TarInfo(name)
    entry.size, entry.mtime = len(content), int(time.time())
    archive.addfile(entry, io.BytesIO(content))


def _select(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Return a file or directory to pack; None for caches, and for files of zkconsumer that Spark jobs do not use."""
    path = PurePosixPath(info.name)
    is_source = path.parts[0] == "zkconsumer" and path.suffix in (".c", ".h")
    return None if "__pycache__" in path.parts or is_source or info.name in _OF_TOOLS else info
