"""A standalone Spark cluster: a master and workers as processes of their own, with files in one directory."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pyspark
from helpers.waiting import wait_for

from zkconsumer.devcluster.java import java_home
from zkconsumer.devcluster.process import free_port

from .python_workers import list_python_workers


@contextlib.contextmanager
def running(command: list[str], log: Path, **settings: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process; its output is in ``log``."""
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output, **settings) as process:
        try:
            yield process
        finally:
            process.terminate()


def executor_conf() -> dict[str, str]:
    """Return settings of small executors that import the packages of the tests."""
    tests = Path(__file__).parent.parent
    paths = [str(tests / "spark" / "on_path"), str(tests.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(paths),
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
    }


class StandaloneCluster:
    """A master, and workers that the test adds.

    Args:
        folder: an empty directory.
        stack: ends all processes.

    Attributes:
        folder: the directory.
        master: URL of the master.
        workers: the worker processes by name.
    """

    def __init__(self, folder: Path, stack: contextlib.ExitStack) -> None:
        self.folder = folder
        self.workers: dict[str, psutil.Process] = {}
        self._stack = stack
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        self._environment = {**environment, "JAVA_HOME": str(java_home()), "SPARK_LOCAL_IP": "127.0.0.1"}
        port = free_port()
        self.master = f"spark://127.0.0.1:{port}"
        self._start("master.Master", "--port", str(port))
        wait_for(lambda: "I have been elected leader" in self.log("master.Master"), 60)

    def add_worker(
        self, name: str, cores: int, hidden: Path | None = None, mount: str = "", python_path: str | None = None
    ) -> None:
        """Start a worker, again if it was killed.

        Args:
            name: its name.
            cores: number of its cores.
            hidden: directory instead of which the worker has an empty file system.
            mount: options of that file system.
            python_path: ``PYTHONPATH`` of its Python processes, unless the driver sets it.
        """
        arguments = "--cores", str(cores), "--memory", "1g", "-d", name, self.master
        script = f'mount -t tmpfs -o {mount or "size=64m"} none {hidden} && exec "$@"'
        prefix = [] if hidden is None else ["unshare", "--mount", "sh", "-c", script, "sh"]
        self.workers[name] = self._start("worker.Worker", *arguments, log=name, prefix=prefix, python_path=python_path)

    def executors(self) -> list[psutil.Process]:
        """Return the JVMs of the executors."""
        found = []
        for worker in self.workers.values():
            with contextlib.suppress(psutil.NoSuchProcess):
                for process in worker.children():
                    with contextlib.suppress(psutil.NoSuchProcess):
                        if any("CoarseGrainedExecutorBackend" in part for part in process.cmdline()):
                            found.append(process)
        return found

    def python_workers(self) -> list[psutil.Process]:
        """Return the Python processes of the executors."""
        return [process for worker in self.workers.values() for process in list_python_workers(worker.pid)]

    def log(self, name: str) -> str:
        """Return the output of a process."""
        return (self.folder / f"{name}.log").read_text()

    @property
    def executor_output(self) -> str:
        """The standard error output of all executors."""
        return "".join(file.read_text() for file in self.folder.glob("*/app-*/*/stderr"))

    def _start(
        self, name: str, *arguments: str, log: str = "", prefix: Sequence[str] = (), python_path: str | None = None
    ) -> psutil.Process:
        command = [str(Path(pyspark.__file__).parent / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}"]
        command += ["--host", "127.0.0.1", "--webui-port", "0", *arguments]
        path = self.folder / f"{log or name}.log"
        environment = self._environment if python_path is None else {**self._environment, "PYTHONPATH": python_path}
        started = self._stack.enter_context(running([*prefix, *command], path, cwd=self.folder, env=environment))
        return psutil.Process(started.pid)
