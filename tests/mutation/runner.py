"""Run the tests of mutated modules in copies of the project."""

from __future__ import annotations

import contextlib
import enum
import os
import queue
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from .mutants import Mutant

_IGNORED = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "_build", "results", "*.egg-info")

#: Seconds of a run in addition to three times the duration of the tests without a mutant.
_EXTRA_S = 10.0


class Outcome(enum.Enum):
    """What happened to a mutant."""

    KILLED = "killed"
    TIMED_OUT = "timed out"
    SURVIVED = "survived"
    NOT_RUN = "not run"


@dataclass(frozen=True, slots=True)
class Project:
    """The project whose modules are mutated.

    Attributes:
        root: directory that contains the package and the tests.
        tests: module to the paths of its tests, relative to ``root``.
    """

    root: Path
    package: str
    tests: Mapping[str, Sequence[str]]


class BrokenTestsError(Exception):
    """The tests fail without a mutant."""


class Workspace:
    """A copy of a project."""

    def __init__(self, project: Project, directory: Path) -> None:
        self._project = project
        self._directory = directory
        shutil.copytree(project.root, directory, ignore=_IGNORED)

    def run(self, module: str, timeout_s: float) -> tuple[int | None, str]:
        """Run the tests of a module; returns pytest's exit status and output, None for a timeout."""
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:zkconsumer"]
        environment = {**os.environ, "PYTHONPATH": str(self._directory), "PYTHONDONTWRITEBYTECODE": "1"}
        process = subprocess.Popen(
            [*command, *self._project.tests[module]],
            cwd=self._directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            return None, ""
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # with the children of the tests
            process.communicate()
        return process.returncode, output

    @contextlib.contextmanager
    def mutated(self, mutant: Mutant) -> Iterator[None]:
        """Mutate a module of the copy for the duration of a block."""
        file = self._directory / self._project.package / mutant.module
        source = file.read_bytes()
        file.write_bytes(mutant.apply(source))
        try:
            yield
        finally:
            file.write_bytes(source)


def run_mutants(
    project: Project,
    mutants: Sequence[Mutant],
    *,
    directory: Path,
    workers: int,
    deadline: float,
    on_result: Callable[[Mutant, Outcome], object] = lambda _mutant, _outcome: None,
) -> dict[Mutant, Outcome]:
    """Run the tests of each mutant.

    Args:
        directory: receives the copies of the project.
        deadline: ``time.monotonic`` after which no further mutant is run.

    Raises:
        BrokenTestsError: the tests fail without a mutant.
    """
    free: queue.SimpleQueue[Workspace] = queue.SimpleQueue()
    workspaces = [Workspace(project, directory / f"copy-{number}") for number in range(workers)]
    limits = {module: _limit(workspaces[0], module) for module in sorted({mutant.module for mutant in mutants})}
    for workspace in workspaces:
        free.put(workspace)

    def run(mutant: Mutant) -> Outcome:
        if time.monotonic() > deadline:
            return Outcome.NOT_RUN
        workspace = free.get()
        try:
            with workspace.mutated(mutant):
                status, _ = workspace.run(mutant.module, limits[mutant.module])
        finally:
            free.put(workspace)
        outcome = {None: Outcome.TIMED_OUT, 0: Outcome.SURVIVED}.get(status, Outcome.KILLED)
        on_result(mutant, outcome)
        return outcome

    with ThreadPoolExecutor(workers) as pool:
        return dict(zip(mutants, pool.map(run, mutants), strict=True))


def _limit(workspace: Workspace, module: str) -> float:
    """Return the seconds that the tests of a mutant of the module may take."""
    started = time.monotonic()
    status, output = workspace.run(module, 300)
    if status != 0:
        raise BrokenTestsError(f"the tests of {module} fail without a mutant:\n{output}")
    return 3 * (time.monotonic() - started) + _EXTRA_S
