"""Runs ``OracleRunner`` and ``DslRunner`` in a JVM with the jars of Kafka Streams' test driver."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

from zkconsumer.devcluster import jars
from zkconsumer.devcluster.java import java_home

#: The releases of Kafka Streams with which zkconsumer is compared: the last one with ZooKeeper, and the latest one.
RELEASES = ("3.9.2", "4.4.0")

_FOLDER = Path(__file__).parent
_SOURCES, _PINNED = (_FOLDER / "OracleRunner.java", _FOLDER / "DslRunner.java"), _FOLDER / "oracle-runner.jar"

#: Entry of the jar with the checksum of the sources from which its classes were compiled.
_CHECKSUM = "sources.sha256"


class Oracle:
    """A JVM that answers requests one after another.

    Args:
        runner: name of the class that it runs.
        release: release of Kafka Streams, one of ``RELEASES``.
    """

    def __init__(self, runner: str = "OracleRunner", release: str = RELEASES[0]) -> None:
        self.release = release
        memory = Path("/dev/shm")  # RocksDB flushes after each record, which is slow on a disk
        self._folder = Path(tempfile.mkdtemp(prefix="zkconsumer-oracle-", dir=memory if memory.is_dir() else None))
        libraries = libraries_of(release)
        classes = self._classes(libraries)
        command = [java_home() / "bin" / "java", "-Xmx512m", "-cp", os.pathsep.join([str(classes), *libraries])]
        self._log = (self._folder / "log").open("w")
        self._process = subprocess.Popen(
            [*map(str, command), runner, str(self._folder / "state")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def __enter__(self) -> Oracle:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=30)
        self._log.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def send(self, requests: Iterable[Any]) -> list[Any]:
        """Return the answer to each request."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        answers = []
        for request in requests:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
            if not line:
                raise AssertionError(f"the JVM has ended:\n{(self._folder / 'log').read_text()[-6000:]}")
            answers.append(json.loads(line))
        return answers

    def _classes(self, libraries: list[str]) -> Path:
        """Compile the runner where there is a compiler; return the pinned classes otherwise."""
        return compiled(libraries, self._folder / "classes") if compiler().exists() else _PINNED


def libraries_of(release: str) -> list[str]:
    """Return the jars of a release's test driver."""
    return [str(path) for path in jars.resolve(f"org.apache.kafka:kafka-streams-test-utils:{release}")]


def compiled(libraries: list[str], folder: Path) -> Path:
    """Compile the runners into a folder, and return it."""
    command = [compiler(), "-nowarn", "-Xlint:-options", "--release", "11", "-cp", os.pathsep.join(libraries)]
    subprocess.run(
        [*map(str, command), "-d", str(folder), *map(str, _SOURCES)], check=True, capture_output=True, text=True
    )
    return folder


def source_checksum() -> str:
    """Return the SHA-256 of the sources of the runners."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in _SOURCES)).hexdigest()


def pinned_checksum() -> str:
    """Return the SHA-256 of the sources from which the pinned classes were compiled."""
    with zipfile.ZipFile(_PINNED) as archive:
        return archive.read(_CHECKSUM).decode()


def pin_classes() -> None:
    """Write the compiled runners and the checksum of their sources to the jar that machines without a JDK use."""
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(_PINNED, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(compiled(libraries_of(RELEASES[0]), Path(folder)).glob("*.class")):
            archive.writestr(zipfile.ZipInfo(path.name), path.read_bytes())
        archive.writestr(zipfile.ZipInfo(_CHECKSUM), source_checksum())


def compiler() -> Path:
    """Return the path of Java's compiler, which a runtime environment does not have."""
    return java_home() / "bin" / "javac"


if __name__ == "__main__":
    pin_classes()
