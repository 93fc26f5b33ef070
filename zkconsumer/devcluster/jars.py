"""Downloads the jars of servers and clients from a Maven repository.

The jars are stored in the user's cache directory. The versions used by this project are pinned: a jar is rejected if
its checksum differs from the one in ``pins.json``.

See docs/decisions/19-servers-without-docker.rst.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib import resources
from pathlib import Path

from zkconsumer.devcluster.java import CACHE_VARIABLE, cache_folder, make_directory
from zkconsumer.errors import ZkConsumerError
from zkconsumer.optional_packages import EXTRAS, check_package

#: Spark's Kafka source for each minor version of Spark: the newest release for which jars were found. It is used for
#: comparisons in tests and benchmarks. Later versions use that of Spark 4.2.
_SPARKS_SOURCES = {
    (4, 0): "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.2",
    (4, 1): "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.1",
    (4, 2): "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
}

#: Jars that Spark's Kafka source requires.
_OF_SPARKS_SOURCES = (
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
)

#: Number of simultaneous downloads of ``resolve_all``.
_DOWNLOADS = 3

#: Environment variable with the URL of the repository that is used instead of Maven Central.
REPOSITORY_VARIABLE = "ZKCONSUMER_MAVEN_REPOSITORY"

#: Exit code of ``downloading`` for a version that does not exist. With exit code 1, it prints the reason.
NO_SUCH_VERSION = 3

#: Maximum seconds for a download.
_DEADLINE = 3600


class JarsUnavailableError(ZkConsumerError):
    """Raised when jars cannot be downloaded, or their checksums differ from the pinned ones.

    They cannot be downloaded if a package of the ``cluster`` extra is not installed.
    """


@cache
def resolve(coordinate: str) -> tuple[Path, ...]:
    """Return the jars of ``group:name:version`` and its dependencies, sorted by name.

    For a pinned coordinate with a single jar, only this jar is returned.

    Jars that are not cached are downloaded, and progress is printed to standard error. The environment variable
    ``ZKCONSUMER_MAVEN_REPOSITORY`` sets the URL of a repository that is used instead of Maven Central.

    Raises:
        JarsUnavailableError: the jars cannot be downloaded, or their checksums differ from the pinned ones.
    """
    folder = cache_folder() / "jars" / coordinate.replace(":", "_")
    wanted = pins().get(coordinate)  # None if the user selected a version that is not pinned
    if not _is_complete(folder, wanted):
        make_directory(folder.parent, CACHE_VARIABLE)
        with folder.with_name(f".{folder.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be downloading the jars
            if not _is_complete(folder, wanted):
                _download(coordinate, folder, wanted)
    return _jars_in(folder)


def resolve_all(coordinates: Iterable[str]) -> list[Path]:
    """Return the jars of several coordinates. Missing jars are downloaded concurrently."""
    with ThreadPoolExecutor(_DOWNLOADS, "zkconsumer-jars") as pool:
        return [jar for jars in pool.map(resolve, coordinates) for jar in jars]


def resolve_pinned() -> None:
    """Download all pinned jars that are not cached yet."""
    largest_first = sorted(pins().items(), key=lambda pin: -len(pin[1]))
    resolve_all(coordinate for coordinate, _ in largest_first)


def resolve_sparks_source(spark: Sequence[int]) -> list[Path]:
    """Return the jars of Spark's Kafka source.

    Args:
        spark: major and minor version of Spark.
    """
    source = _SPARKS_SOURCES.get((spark[0], spark[1]), _SPARKS_SOURCES[4, 2])
    return resolve_all([source, *_OF_SPARKS_SOURCES])


def classpath(jars: Sequence[Path]) -> str:
    """Join jars into a class path."""
    return os.pathsep.join(map(str, jars))


def pins() -> dict[str, dict[str, str]]:
    """Return the pinned SHA-256 checksums, by coordinate and file name."""
    text = resources.files("zkconsumer.devcluster").joinpath("pins.json").read_text()
    return dict(json.loads(text))


def checksums(jars: Sequence[Path]) -> dict[str, str]:
    """Return the SHA-256 checksums of jars, by file name."""
    return {jar.name: hashlib.sha256(jar.read_bytes()).hexdigest() for jar in jars}


def _jars_in(folder: Path) -> tuple[Path, ...]:
    return tuple(sorted(folder.glob("*.jar")))


def _is_complete(folder: Path, wanted: Mapping[str, str] | None) -> bool:
    """Return whether a directory contains the pinned jars and no others, or exists if no jars are pinned."""
    return folder.is_dir() and (wanted is None or checksums(_jars_in(folder)) == wanted)


def _download(coordinate: str, folder: Path, wanted: Mapping[str, str] | None) -> None:
    """Download jars, and replace the directory with them."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        jars = Path(scratch) / folder.name
        jars.mkdir()
        _run_download(coordinate, jars, with_dependencies=wanted is None or len(wanted) > 1)
        if not _is_complete(jars, wanted):
            raise _differ(coordinate, checksums(_jars_in(jars)), wanted or {})
        shutil.rmtree(folder, ignore_errors=True)
        jars.replace(folder)


def _run_download(coordinate: str, folder: Path, *, with_dependencies: bool) -> None:
    """Run the program that downloads the jars of a coordinate to a directory."""
    for module in EXTRAS["cluster"]:
        try:
            check_package("cluster", module, f"downloading {coordinate}")
        except ModuleNotFoundError as error:
            raise JarsUnavailableError(str(error)) from None
    command = [sys.executable, "-P", "-m", "zkconsumer.devcluster.downloading", coordinate, str(folder)]
    try:
        done = subprocess.run(
            [*command, *(() if with_dependencies else ("--without-dependencies",))],
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            check=False,
            timeout=_DEADLINE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
    except subprocess.TimeoutExpired:
        raise _unavailable(coordinate, f"the download did not finish within {_DEADLINE} s") from None
    if done.returncode == NO_SUCH_VERSION:
        raise _no_such_version(coordinate)
    if done.returncode:
        reason = done.stdout.strip() or f"the download process exited with code {done.returncode}"
        raise _unavailable(coordinate, reason)


def _unavailable(coordinate: str, reason: str) -> JarsUnavailableError:
    return JarsUnavailableError(
        f"could not download {coordinate}: {reason}; check the connection to the Maven repository (to use a different "
        f"repository, set {REPOSITORY_VARIABLE} to its URL)"
    )


def _differ(coordinate: str, found: Mapping[str, str], wanted: Mapping[str, str]) -> JarsUnavailableError:
    wrong = sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
    return JarsUnavailableError(
        f"downloaded jars of {coordinate} differ from the pinned ones: {', '.join(wrong)}; the Maven repository serves "
        f"different files (to use a different repository, set {REPOSITORY_VARIABLE} to its URL)"
    )


def _no_such_version(coordinate: str) -> JarsUnavailableError:
    group, name, version = coordinate.split(":")
    artifact = f"{group}:{name.partition('_')[0]}"  # the artifact name ends with the Scala version
    known = [pin.rpartition(":")[2] for pin in pins() if pin.rpartition(":")[0].partition("_")[0] == artifact]
    versions = sorted(known, key=lambda text: [int(part) for part in text.split(".")])
    hint = f"; available versions: {', '.join(versions)}" if versions else ""
    return JarsUnavailableError(f"the Maven repository has no version {version} of {group}:{name}{hint}")
