"""Tests of the commands and programs in the README and the tutorial, which run as a user pastes them.

Those of the README run in a checkout: its install command, then the others, in the checkout's directory.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import textwrap
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from spark.tracebacks import find_errors

from zkconsumer.config import ConsumerConfig
from zkconsumer.devcluster.java import cache_folder, java_home
from zkconsumer.devcluster.process import free_port

ROOT = Path(__file__).parents[2]
DOCUMENTS = ("README.rst", "docs/tutorial.rst")

pytestmark = pytest.mark.timeout(150)

_SHELL = re.compile(r"^(?:\S.*)?::\n\n((?:    .*\n)+)", re.MULTILINE)
_PYTHON = re.compile(r"^\.\. code-block:: python\n\n((?:    .*\n|\n)+)", re.MULTILINE)


class User(NamedTuple):
    """A user who has pasted the commands of a document: environment, interpreter, directory and programs."""

    environment: dict[str, str]
    python: Path
    folder: Path
    programs: list[str]

    def program(self, text: str, name: str = "test_program.py") -> Path:
        """Save the program that contains a text, and return its path."""
        [found] = [program for program in self.programs if text in program]
        path = self.folder / name
        path.write_text(found)
        return path

    def produce(self, topic: str, lines: str) -> None:
        """Write lines to a topic."""
        command = [str(self.python), "-m", "zkconsumer", "cluster", "produce", "--topic", topic]
        subprocess.run(command, input=lines, text=True, cwd=self.folder, env=self.environment, check=True)

    def start(self, *command: object) -> subprocess.Popen[str]:
        """Start a command whose output is read line by line."""
        return subprocess.Popen(
            list(map(str, command)),
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


def copy_checkout(folder: Path) -> None:
    """Copy the files of the repository that an installation needs; compiled modules are not among them."""
    for name in ("LICENSE", "NOTICE", "README.rst", "pyproject.toml", "setup.cfg", "setup.py"):
        shutil.copy(ROOT / name, folder)
    for name in ("pyspark_zkconsumer", "zkconsumer"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))


def create_environment(folder: Path) -> Path:
    """Create a virtual environment without zkconsumer but with its requirements, and return its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    [packages] = folder.glob("lib/python*/site-packages")
    (packages / "requirements.pth").write_text(sysconfig.get_path("purelib"))
    return folder / "bin" / "python"


@pytest.fixture(
    scope="module", params=[DOCUMENTS[0], *(pytest.param(name, marks=pytest.mark.slow) for name in DOCUMENTS[1:])]
)
def user(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    """Run the commands of a document up to the stop of the cluster, with its own home directory."""
    folder, home = tmp_path_factory.mktemp("first-steps"), tmp_path_factory.mktemp("home")
    is_checkout, python = request.param == "README.rst", Path(sys.executable)
    if is_checkout:
        copy_checkout(folder)
        python = create_environment(home / "venv")
    environment = {
        **os.environ,
        "PATH": f"{python.parent}:{os.environ['PATH']}",
        "JAVA_HOME": str(java_home()),
        "HOME": str(home),
        "CFLAGS": "-O0",  # compiles the checkout's C modules faster
        "XDG_STATE_HOME": str(home / "state"),
        "XDG_CACHE_HOME": str(cache_folder().parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONUNBUFFERED": "1",
    }
    text = (ROOT / request.param).read_text()
    lines = "".join(map(textwrap.dedent, _SHELL.findall(text))).splitlines()
    commands = [line for line in lines if line.startswith("zkconsumer cluster ") and not line.endswith(" down")]
    if is_checkout:
        commands = [line for line in lines if re.match(r"pip install .*# in a checkout", line)] + commands
    programs = [textwrap.dedent(block) for block in _PYTHON.findall(text)]
    try:
        subprocess.run(["bash", "-ec", "\n".join(commands)], cwd=folder, env=environment, timeout=120, check=True)
        yield User(environment, python, folder, programs)
    finally:
        subprocess.run(["bash", "-c", "zkconsumer cluster down"], cwd=folder, env=environment, timeout=60, check=True)


def read_until(process: subprocess.Popen[str], pattern: str) -> None:
    """Read the output of a process up to a line that matches a pattern."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if re.search(pattern, line):
            return
    raise AssertionError("".join(lines))


def read_lines(process: subprocess.Popen[str], pattern: str, count: int) -> list[str]:
    """Return the first lines that match a pattern, and end the process with Ctrl-C."""
    assert process.stdout is not None
    with process:
        found: list[str] = []
        for line in process.stdout:
            found += re.findall(pattern, line)
            if len(found) >= count:
                break
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    return found


def test_consumer_prints_the_produced_records(user: User) -> None:
    consumer = user.start(user.python, user.program("for message in consumer.stream"))

    lines = read_lines(consumer, r"^\d+ \d+ b'\d+'", 1000)

    assert len(set(lines)) == 1000


@pytest.mark.slow
def test_spark_query_shows_the_produced_records(user: User) -> None:
    query = user.start(user.python, user.program("SparkSession"))

    rows = read_lines(query, r"^\| *\d+\| *\d+\| *\d+\|", 20)

    assert len(set(rows)) == 20


@pytest.mark.slow
@pytest.mark.parametrize("user", ["docs/tutorial.rst"], indirect=True)
def test_pytest_with_the_fixture_passes(user: User) -> None:
    program = user.program("zkconsumer_cluster")
    test = user.start(user.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "addopts=", program)

    output, _ = test.communicate(timeout=120)

    assert "1 passed" in output


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("user", ["docs/topology-tutorial.rst"], indirect=True)
def test_application_of_topology_tutorial_continues_after_kill(user: User) -> None:
    user.program("class Split", "wordcount.py")
    program, port = user.program("StreamsApp", "run_wordcount.py"), free_port()
    program.write_text(program.read_text().replace("8000", str(port)))
    properties = ConsumerConfig.from_properties(user.folder / "consumer.properties")
    read_counts = [
        *(user.python, "-m", "zkconsumer", "console-consumer", "--zookeeper", properties.zookeeper_connect),
        *("--topic", "counts", "--group", "reader", "--property", "print.key=true"),
        *("--consumer-property", "isolation.level=read_committed"),
    ]

    application = user.start(user.python, program)
    try:
        read_until(application, "REBALANCING -> RUNNING")
        user.produce("sentences", "more tea\nmore milk\n")
        counts = read_lines(user.start(*read_counts, "--from-beginning"), r"^\w+\t\d+$", 4)
        metrics = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
    finally:
        application.kill()
        application.communicate(timeout=60)
    assert sorted(counts) == ["milk\t1", "more\t1", "more\t2", "tea\t1"]
    assert "zkconsumer_spark_StreamingQuery_Lag" in metrics
    assert re.search(r'metric="processed"', metrics)

    user.produce("sentences", "tea again\n")
    application = user.start(user.python, program)
    try:
        counts = read_lines(user.start(*read_counts), r"^\w+\t\d+$", 2)
        application.send_signal(signal.SIGINT)
        output, _ = application.communicate(timeout=90)
    finally:
        application.kill()
        application.wait(60)
    assert sorted(counts) == ["again\t1", "tea\t2"]
    assert "RUNNING -> PENDING_SHUTDOWN" in output
    assert find_errors(output) == []
    assert application.returncode == 0


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("user", ["docs/streams-builder-tutorial.rst"], indirect=True)
def test_application_of_dsl_tutorial_counts_words(user: User) -> None:
    (user.folder / "wordcount.py").write_text("\n".join(user.programs[:4]))
    properties = ConsumerConfig.from_properties(user.folder / "consumer.properties")
    read_counts = [
        *(user.python, "-m", "zkconsumer", "console-consumer", "--zookeeper", properties.zookeeper_connect),
        *("--topic", "word-counts", "--property", "print.key=true", "--from-beginning"),
    ]

    application = user.start(user.python, user.program("StreamsApp", "run_wordcount.py"))
    try:
        read_until(application, "REBALANCING -> RUNNING")
        user.produce("lines", "more tea\nMore milk\n")
        counts = read_lines(user.start(*read_counts), r"^(?:more\t2|tea\t1|milk\t1)$", 3)
        application.send_signal(signal.SIGINT)
        output, _ = application.communicate(timeout=90)
    finally:
        application.kill()
        application.wait(60)
    assert sorted(counts) == ["milk\t1", "more\t2", "tea\t1"]
    assert find_errors(output) == []
    assert application.returncode == 0
