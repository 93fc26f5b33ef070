"""Server and client jars by their Maven coordinates, through the Ivy that ships inside pyspark.

Each set of jars is kept in the user's cache folder. The sets that this project uses are pinned by checksum
in ``pins.json``; a jar that differs is refused.
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
import time
from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path

import pyspark

from zkconsumer.devcluster.java import cache_folder, java
from zkconsumer.errors import ZkConsumerError

#: Spark's own Kafka source, for comparisons; each is resolved alone.
SPARKS_OWN = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
)

_PATTERN = "[organisation]_[artifact]-[revision](-[classifier]).[ext]"


class JarsUnavailableError(ZkConsumerError):
    """Jars cannot be resolved, or are not the ones that are pinned."""


def spark_jars() -> Path:
    """Return the folder of the jars inside pyspark: Ivy, ZooKeeper and log4j among them."""
    return Path(pyspark.__file__).parent / "jars"


@cache
def resolve(coordinate: str, *, transitive: bool = True) -> tuple[Path, ...]:
    """Return the jars of ``group:name:version``, with those it needs, sorted by name.

    Downloads them the first time, with a progress line on standard error; later calls only look.
    ``ZKCONSUMER_IVY_SETTINGS`` may name an Ivy settings file, for repositories of one's own.

    Raises:
        JarsUnavailableError: names the coordinate and what to do.
    """
    folder = cache_folder() / "jars" / coordinate.replace(":", "_")
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with (folder.parent / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be at it
            if not folder.is_dir():
                _download(coordinate, folder, transitive)
    jars = tuple(sorted(folder.glob("*.jar")))
    _verify(coordinate, folder, jars)
    return jars


def main() -> None:
    """Download all pinned jars that are not in the cache folder yet: ``python -m zkconsumer.devcluster.jars``."""
    for coordinate in pins():
        resolve(coordinate, transitive=coordinate.startswith("org.apache.kafka:kafka_"))


def classpath(jars: Sequence[Path]) -> str:
    """Return the jars as the JVM wants them."""
    return os.pathsep.join(map(str, jars))


def pins() -> dict[str, dict[str, str]]:
    """Return coordinate -> file name -> SHA-256."""
    text = resources.files("zkconsumer.devcluster").joinpath("pins.json").read_text()
    return dict(json.loads(text))


def checksums(jars: Sequence[Path]) -> dict[str, str]:
    """Return file name -> SHA-256 of the jars."""
    return {jar.name: hashlib.sha256(jar.read_bytes()).hexdigest() for jar in jars}


def _verify(coordinate: str, folder: Path, jars: Sequence[Path]) -> None:
    wanted = pins().get(coordinate)
    if wanted is None:
        return  # a version of the user's own choice
    found = checksums(jars)
    wrong = sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
    if wrong:
        raise JarsUnavailableError(
            f"the jars of {coordinate} in {folder} are not the pinned ones: {', '.join(wrong)}. "
            "Delete that folder to download them again; if they still differ, the repository served other files"
        )


def _download(coordinate: str, folder: Path, transitive: bool) -> None:
    group, name, version = coordinate.split(":")
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        settings = os.environ.get("ZKCONSUMER_IVY_SETTINGS")
        command = [
            java(),
            f"-Divy.default.ivy.user.dir={cache_folder() / 'ivy'}",
            *("-cp", str(spark_jars() / "*"), "org.apache.ivy.Main"),
            *(("-settings", settings) if settings else ()),
            *("-cache", str(cache_folder() / "ivy" / "cache")),
            *("-dependency", group, name, version),
            *("-confs", "default,runtime,master" if transitive else "master"),
            *(() if transitive else ("-notransitive",)),
            *("-types", "jar", "bundle"),
            *("-retrieve", f"{scratch}/{_PATTERN}"),
        ]
        output = _run_with_progress(command, coordinate)
        jars = list(Path(scratch).glob("*.jar"))
        if output is not None or not any(jar.name == f"{group}_{name}-{version}.jar" for jar in jars):
            reasons = [line.strip() for line in (output or "").splitlines() if "not found" in line or "ERROR" in line]
            raise JarsUnavailableError(
                f"cannot resolve {coordinate}: {'; '.join(reasons[-3:]) or 'Ivy gave no reason'}. Check that this "
                "machine reaches a Maven repository, or name yours in an Ivy settings file and set "
                "ZKCONSUMER_IVY_SETTINGS to its path"
            )
        Path(scratch).chmod(0o755)
        shutil.copytree(scratch, f"{scratch}.whole")
        Path(f"{scratch}.whole").replace(folder)


def _run_with_progress(command: Sequence[str], coordinate: str) -> str | None:
    """Run Ivy; return None where it succeeded, else its output."""
    started, done, output = time.monotonic(), 0, []
    interactive = sys.stderr.isatty()
    if not interactive:
        print(f"resolving {coordinate} ...", file=sys.stderr, flush=True)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True
    ) as ivy:
        assert ivy.stdout is not None
        for line in ivy.stdout:
            output.append(line)
            if "[SUCCESSFUL ]" in line:
                done += 1
            if interactive:
                took = time.monotonic() - started
                print(f"\rresolving {coordinate}: {done} jars, {took:.0f} s ", end="", file=sys.stderr, flush=True)
    took = time.monotonic() - started
    print(
        f"{chr(13) if interactive else ''}resolved {coordinate}: {done} jars downloaded in {took:.0f} s",
        file=sys.stderr,
        flush=True,
    )
    return None if ivy.returncode == 0 else "".join(output)


if __name__ == "__main__":
    main()
