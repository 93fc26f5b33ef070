"""Downloads the jars of servers and clients from Maven repositories, using the Ivy jar in pyspark.

The jars are stored in the user's cache directory. The versions used by this project are pinned: a jar is rejected if
its checksum differs from the one in ``pins.json``.

See docs/decisions/19-servers-without-docker.rst.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib import resources
from pathlib import Path

from zkconsumer.devcluster.java import CACHE_VARIABLE, cache_folder, java, make_directory
from zkconsumer.errors import ZkConsumerError
from zkconsumer.optional_packages import install_command

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

#: Pattern of Ivy messages about an unreachable repository.
_UNREACHABLE = re.compile("Server access|Host .* not found|ERROR|Exception", re.IGNORECASE)

#: Number of simultaneous downloads of ``resolve_pinned``; they mostly wait for the repository.
_DOWNLOADS = 4

#: Clears the line of a terminal, because the progress of several downloads replaces one another.
_CLEAR = "\r\033[K"

_PATTERN = "[organisation]_[artifact]-[revision](-[classifier]).[ext]"


class JarsUnavailableError(ZkConsumerError):
    """Raised when pyspark is not installed, jars cannot be downloaded, or checksums differ from the pinned ones."""


def spark_jars() -> Path:
    """Return the jar directory of pyspark, which contains Ivy, ZooKeeper and Log4j, among other jars.

    Raises:
        JarsUnavailableError: pyspark is not installed.
    """
    try:
        import pyspark  # lazy import, because pyspark is optional
    except ModuleNotFoundError:
        raise JarsUnavailableError(
            "pyspark, whose jars the development cluster requires, is not installed; run " + install_command("pyspark")
        ) from None

    return Path(pyspark.__file__).parent / "jars"


@cache
def resolve(coordinate: str, *, transitive: bool = True) -> tuple[Path, ...]:
    """Return the jars of ``group:name:version`` and its dependencies, sorted by name.

    Jars that are not cached are downloaded, and progress is printed to standard error. To use other repositories, set
    ``ZKCONSUMER_IVY_SETTINGS`` to the path of an Ivy settings file.

    Args:
        transitive: whether to include dependencies.

    Raises:
        JarsUnavailableError: the jars cannot be downloaded, or their checksums differ from the pinned ones.
    """
    folder = cache_folder() / "jars" / coordinate.replace(":", "_")
    if not folder.is_dir():
        # Each coordinate has its own Ivy cache, because Ivy processes corrupt a cache that they share.
        work_directory = cache_folder() / "ivy" / folder.name
        for directory in (folder.parent, work_directory.parent):
            make_directory(directory, CACHE_VARIABLE)
        with work_directory.with_name(f"{work_directory.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be downloading the jars
            if not folder.is_dir():
                _download(coordinate, folder, transitive, work_directory)
                shutil.rmtree(work_directory)
    jars = tuple(sorted(folder.glob("*.jar")))
    _verify(coordinate, folder, jars)
    return jars


def resolve_pinned() -> None:
    """Download all pinned jars that are not cached yet, several coordinates at a time."""
    largest_first = sorted(pins().items(), key=lambda pin: -len(pin[1]))
    alone = {*_SPARKS_SOURCES.values(), *_OF_SPARKS_SOURCES}
    with ThreadPoolExecutor(_DOWNLOADS, "zkconsumer-jars") as pool:
        list(pool.map(lambda pin: resolve(pin[0], transitive=pin[0] not in alone), largest_first))


def resolve_sparks_source(spark: Sequence[int]) -> list[Path]:
    """Return the jars of Spark's Kafka source.

    Args:
        spark: major and minor version of Spark.
    """
    source = _SPARKS_SOURCES.get((spark[0], spark[1]), _SPARKS_SOURCES[4, 2])
    return [jar for coordinate in (source, *_OF_SPARKS_SOURCES) for jar in resolve(coordinate, transitive=False)]


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


def _verify(coordinate: str, folder: Path, jars: Sequence[Path]) -> None:
    wanted = pins().get(coordinate)
    if wanted is None:
        return  # the user selected a version that is not pinned
    found = checksums(jars)
    wrong = sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
    if wrong:
        raise JarsUnavailableError(
            f"jars of {coordinate} in '{folder}' differ from the pinned ones: {', '.join(wrong)}; delete the directory "
            "to download them again (if they still differ, the repository serves different files)"
        )


def _download(coordinate: str, folder: Path, transitive: bool, work_directory: Path) -> None:
    group, name, version = coordinate.split(":")
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        settings = os.environ.get("ZKCONSUMER_IVY_SETTINGS")
        command = [
            java(),
            "-XX:TieredStopAtLevel=1",  # the process is too short for the optimizing compiler
            f"-Divy.default.ivy.user.dir={work_directory}",
            *("-cp", str(spark_jars() / "*"), "org.apache.ivy.Main"),
            *(("-settings", settings) if settings else ()),
            *("-cache", str(work_directory / "cache")),
            *("-dependency", group, name, version),
            *("-confs", "default,runtime,master" if transitive else "master"),
            *(() if transitive else ("-notransitive",)),
            *("-types", "jar", "bundle"),
            *("-retrieve", f"{scratch}/{_PATTERN}"),
        ]
        output = _run_with_progress(command, coordinate)
        jars = list(Path(scratch).glob("*.jar"))
        if output is not None or not any(jar.name == f"{group}_{name}-{version}.jar" for jar in jars):
            lines = (output or "").splitlines()
            if any("module not found" in line for line in lines) and not any(_UNREACHABLE.search(s) for s in lines):
                raise _no_such_version(coordinate)
            reasons = [line.strip() for line in lines if "not found" in line or "ERROR" in line]
            raise JarsUnavailableError(
                f"could not download {coordinate}: {'; '.join(reasons[-3:]) or 'Ivy reported no reason'}; check the "
                "connection to the Maven repository (to use a different repository, set ZKCONSUMER_IVY_SETTINGS to the "
                "path of an Ivy settings file)"
            )
        Path(scratch).chmod(0o755)
        shutil.copytree(scratch, f"{scratch}.whole")
        Path(f"{scratch}.whole").replace(folder)


def _no_such_version(coordinate: str) -> JarsUnavailableError:
    group, name, version = coordinate.split(":")
    artifact = f"{group}:{name.partition('_')[0]}"  # the artifact name ends with the Scala version
    known = [pin.rpartition(":")[2] for pin in pins() if pin.rpartition(":")[0].partition("_")[0] == artifact]
    versions = sorted(known, key=lambda text: [int(part) for part in text.split(".")])
    hint = f"; available versions: {', '.join(versions)}" if versions else ""
    return JarsUnavailableError(f"the Maven repository has no version {version} of {group}:{name}{hint}")


def _run_with_progress(command: Sequence[str], coordinate: str) -> str | None:
    """Run Ivy and print progress; return its output if it failed, or None if it succeeded."""
    started, done, output = time.monotonic(), 0, []
    interactive = sys.stderr.isatty()
    if not interactive:
        print(f"downloading {coordinate} ...", file=sys.stderr, flush=True)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True
    ) as ivy:
        assert ivy.stdout is not None
        for line in ivy.stdout:
            output.append(line)
            if "[SUCCESSFUL ]" in line:
                done += 1
            if interactive:
                progress = f"{done} jars, {time.monotonic() - started:.0f} s"
                print(f"{_CLEAR}downloading {coordinate}: {progress} ", end="", file=sys.stderr, flush=True)
    took = time.monotonic() - started
    print(_CLEAR if interactive else "", end="", file=sys.stderr)
    if ivy.returncode:
        return "".join(output)
    print(f"downloaded {coordinate}: {done} jars in {took:.0f} s", file=sys.stderr, flush=True)
    return None
