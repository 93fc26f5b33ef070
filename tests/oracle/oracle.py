"""Runs ``OracleRunner`` in a JVM with the jars of Kafka Streams' test driver."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

from zkconsumer.devcluster import jars
from zkconsumer.devcluster.java import java_home

COORDINATE = "org.apache.kafka:kafka-streams-test-utils:3.9.2"

_FOLDER = Path(__file__).parent
_SOURCE, _PINNED = _FOLDER / "OracleRunner.java", _FOLDER / "oracle-runner.jar"

#: The runner writes this comment of its jar: the checksum of the source from which the jar was built.
_CHECKSUM = _FOLDER / "oracle-runner.sha256"


class Oracle:
    """A JVM that answers requests one after another."""

    def __init__(self) -> None:
        memory = Path("/dev/shm")  # noqa: S108  (RocksDB flushes after each record, which is slow on a disk)
        self._folder = Path(tempfile.mkdtemp(prefix="zkconsumer-oracle-", dir=memory if memory.is_dir() else None))
        libraries = [str(path) for path in jars.resolve(COORDINATE)]
        classes = self._classes(libraries)
        command = [java_home() / "bin" / "java", "-Xmx512m", "-cp", os.pathsep.join([str(classes), *libraries])]
        self._log = (self._folder / "log").open("w")
        self._process = subprocess.Popen(
            [*map(str, command), "OracleRunner", str(self._folder / "state")],
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

    def ask(self, requests: Iterable[Any]) -> list[Any]:
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
        compiler = java_home() / "bin" / "javac"
        if not compiler.exists():
            return _PINNED
        folder = self._folder / "classes"
        command = [compiler, "-nowarn", "-Xlint:-options", "--release", "11", "-cp", os.pathsep.join(libraries)]
        subprocess.run([*map(str, command), "-d", folder, _SOURCE], check=True, capture_output=True, text=True)
        return folder


def source_checksum() -> str:
    """Return the SHA-256 of the runner's source."""
    return hashlib.sha256(_SOURCE.read_bytes()).hexdigest()


def pinned_checksum() -> str:
    """Return the SHA-256 of the source from which the pinned classes were compiled."""
    return _CHECKSUM.read_text().split()[0]
