"""The applications to compare, and their processes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from types import TracebackType

import psutil

from bench.streams.cpu import list_tree
from bench.streams.environments import find_python
from bench.streams.prepared import create_environment
from tests.oracle.oracle import RELEASES, compiler, libraries_of
from zkconsumer.devcluster import jars
from zkconsumer.devcluster.java import CACHE_VARIABLE, cache_folder, java, make_directory

#: Trigger interval on Spark, and commit interval of all other applications, in milliseconds.
COMMIT_MS = 1_000

_SOURCES = Path(__file__).parent
_REPOSITORY = _SOURCES.parent.parent


@dataclass(frozen=True, kw_only=True)
class Run:
    """Settings of an application.

    Attributes:
        name: application id or consumer group.
        brokers: ``bootstrap.servers`` of the cluster.
        input: name of the input topic.
        output: name of the output topic.
        folder: directory for state, checkpoint and logs.
        cached: whether the store is cached, so that only the last change of each key is forwarded, on commit.
        batch_records: maximum number of records per Spark batch.
        commit_ms: commit or trigger interval, in milliseconds.
        sequence_headers: whether ``StreamsApp`` adds headers with sequence numbers to its output records.
        keeps_values: whether the state is the last value of each key instead of its count.
    """

    name: str
    brokers: str
    input: str
    output: str
    folder: str
    cached: bool
    batch_records: int
    commit_ms: int = COMMIT_MS
    keeps_values: bool = False
    sequence_headers: bool = True

    def to_json(self) -> str:
        """Return the settings as JSON, which is passed to the process as an argument."""
        return json.dumps(asdict(self))


@dataclass(frozen=True)
class Application:
    """An application to compare.

    Attributes:
        command: function that returns the command line of one process.
        processes: number of processes.
        share: fraction of the records that the application processes.
        variants: values of ``Run.cached`` with which the application runs.
        changelog: suffix of the changelog topic, if the topic must exist before the application starts. If Faust's
            changelog topic does not exist yet, Faust fails to process the first records and skips them.
    """

    command: Callable[[Run], Sequence[str | Path]]
    processes: int = 1
    share: float = 1.0
    variants: tuple[bool, ...] = (False,)
    changelog: str | None = None


def _command_zkconsumer(run: Run) -> Sequence[str | Path]:
    return [sys.executable, "-m", "bench.streams.streams_app", run.to_json()]


def _command_prepared(run: Run) -> Sequence[str | Path]:
    return ["env", *create_environment(run.folder), *_command_zkconsumer(run)]


def _command_kafka_streams(run: Run) -> Sequence[str | Path]:
    variant = "values" if run.keeps_values else "cached" if run.cached else "uncached"
    return [*_command_java("CountPerKey", run), variant]


def _command_kafka_streams_words(run: Run) -> Sequence[str | Path]:
    return _command_java("WordCount", run)


def _command_java(program: str, run: Run) -> Sequence[str | Path]:
    libraries = libraries_of(RELEASES[0])  # includes RocksDB
    return [
        *(java(), "-Xmx4g", "-XX:+UseParallelGC", "-cp", jars.classpath([compile_java(), *libraries]), program),
        *(run.brokers, run.input, run.output, run.name, f"{run.folder}/state", str(run.commit_ms)),
    ]


def _command_words(run: Run) -> Sequence[str | Path]:
    return [sys.executable, "-m", "bench.streams.words_app", run.to_json()]


def _command_without_headers(run: Run) -> Sequence[str | Path]:
    return _command_zkconsumer(replace(run, sequence_headers=False))


def _command_direct(run: Run) -> Sequence[str | Path]:
    return [sys.executable, "-m", "bench.streams.direct_app", run.to_json()]


def _command_faust(run: Run) -> Sequence[str | Path]:
    return [find_python("faust"), _SOURCES / "faust_app.py", run.to_json()]


def _command_quixstreams(run: Run) -> Sequence[str | Path]:
    return [find_python("quixstreams"), _SOURCES / "quix_app.py", run.to_json()]


@cache
def compile_java() -> Path:
    """Compile the Kafka Streams programs, and return the directory of the class files."""
    folder = make_directory(cache_folder() / "bench-classes", CACHE_VARIABLE)
    classpath = os.pathsep.join(libraries_of(RELEASES[0]))
    sources = _SOURCES.glob("*.java")
    subprocess.run([compiler(), "--release", "11", "-cp", classpath, "-d", folder, *sources], check=True)
    return folder


APPLICATIONS = {
    "zkconsumer": Application(_command_zkconsumer, variants=(False, True)),
    "zkconsumer, no sequence headers": Application(_command_without_headers, variants=(False, True)),
    "Kafka Streams": Application(_command_kafka_streams, variants=(False, True)),
    "transformWithState, a state per key": Application(_command_direct, share=0.04),
    "faust": Application(_command_faust, processes=2, share=0.04, changelog="-counts-changelog"),
    "quixstreams": Application(_command_quixstreams, processes=2, share=0.1),
}

#: zkconsumer's application with a prepared Spark installation, whose start is measured.
PREPARED = "zkconsumer, prepared"
STARTED = {**APPLICATIONS, PREPARED: Application(_command_prepared)}

#: Word count applications.
WORD_COUNTS = {"zkconsumer": Application(_command_words), "Kafka Streams": Application(_command_kafka_streams_words)}


class Running:
    """The processes of an application. A context manager that kills them on exit."""

    def __init__(self, application: Application, run: Run) -> None:
        path = os.pathsep.join(filter(None, [str(_REPOSITORY), os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, "PYTHONPATH": path, "TMPDIR": run.folder}
        self._log = (Path(run.folder) / "log").open("w+")
        self._processes = [
            subprocess.Popen(
                list(map(str, application.command(run))),
                cwd=run.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            for _ in range(application.processes)
        ]

    def __enter__(self) -> Running:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def pids(self) -> list[int]:
        """Ids of the processes."""
        return [process.pid for process in self._processes]

    def check(self) -> None:
        """If a process exited, raise an error that contains the end of the log."""
        if any(process.poll() is not None for process in self._processes):
            raise RuntimeError(f"the application exited:\n{self.read_log()[-6000:]}")

    def read_log(self) -> str:
        """Return the output of the processes."""
        self._log.seek(0)
        return self._log.read()

    def stop(self) -> None:
        """Stop the processes with SIGTERM, and wait until their descendants have exited, too."""
        tree = [process for pid in self.pids for process in list_tree(pid)]
        for started in self._processes:
            started.terminate()
            started.wait(30)
        psutil.wait_procs(tree, timeout=120)

    def kill(self) -> None:
        """Kill the processes and their descendants."""
        tree = [process for pid in self.pids for process in list_tree(pid)]
        for process in tree:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)
        for started in self._processes:
            started.wait(30)
        psutil.wait_procs(tree, timeout=30)
        self._log.close()
