"""Tests of the command ``zkconsumer cluster`` in the background and in the foreground."""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from helpers.processes import kill
from helpers.teardown import started
from helpers.waiting import wait_for

from zkconsumer import ConsumerConfig, create_consumer
from zkconsumer.devcluster import ExistingCluster
from zkconsumer.devcluster.java import cache_folder, java_home
from zkconsumer.devcluster.process import free_port
from zkconsumer.tools.cli import main

TOOL = (str(Path(sys.executable).with_name("zkconsumer")), "cluster")

pytestmark = pytest.mark.timeout(120)

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a user who has the jars but no files of earlier clusters."""
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    return {
        **os.environ,
        "HOME": str(tmp_path / "home"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "XDG_CACHE_HOME": str(cache_folder().parent),
        "TMPDIR": str(scratch),
        "JAVA_HOME": str(java_home()),
    }


@pytest.fixture
def source_directory(tmp_path: Path) -> Path:
    """Return a directory whose package ``zkconsumer`` cannot be imported, like a checkout without compiled modules."""
    package = tmp_path / "checkout" / "zkconsumer"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('imported from the working directory')")
    return package.parent


@pytest.fixture
def run(environment: dict[str, str], source_directory: Path) -> Iterator[Run]:
    """Run the tool and wait for its end; after the test, stop the cluster in the background."""

    def call(*arguments: str, timeout: float = 60.0, entered: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*TOOL, *arguments],
            cwd=source_directory,
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            input=entered,
        )

    yield call
    if Path(environment["XDG_STATE_HOME"]).exists():
        call("down")


@pytest.fixture
def foreground(environment: dict[str, str]) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start ``cluster up`` with any options; return the process. It is killed after the test."""

    def make(*arguments: str) -> subprocess.Popen[str]:
        command = [*TOOL, "up", *arguments]
        return subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )

    with started(make, kill) as start:
        yield start


def state(environment: dict[str, str]) -> dict[str, Any]:
    """Return the content of the state file of the cluster in the background."""
    return dict(json.loads(Path(environment["XDG_STATE_HOME"], "zkconsumer", "cluster.json").read_text()))


def servers_of(supervisor: int) -> list[psutil.Process]:
    """Return the processes that a supervisor has started."""
    servers: list[psutil.Process] = psutil.Process(supervisor).children(recursive=True)
    return servers


def wait_until_ended(processes: Sequence[psutil.Process]) -> None:
    """Wait until processes have ended; they need not be children of this process."""

    def alive() -> list[psutil.Process]:
        return [p for p in processes if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]

    wait_for(lambda: not alive(), what=f"{processes} have ended")


def left(environment: dict[str, str]) -> list[str]:
    """Return the names of the folders of clusters in the folder for temporary files."""
    return [path.name for path in Path(environment["TMPDIR"]).iterdir() if path.name.startswith("zkconsumer-")]


# ---- in the background --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_detached_cluster_is_reported_used_and_stopped(run: Run, environment: dict[str, str]) -> None:
    port = free_port()
    up = run("up", "--detach", "--brokers=1", "--chroot=/kafka", "--topic=orders:4", f"--zookeeper-port={port}")

    assert (up.returncode, up.stderr) == (0, "")
    supervisor = state(environment)["supervisor"]
    servers = servers_of(supervisor)
    first, *rest = up.stdout.splitlines()
    assert first == f"Kafka 3.9.2, supervisor pid {supervisor}"
    told = dict(line.split("=") for line in rest)
    assert told["zookeeper.connect"] == f"127.0.0.1:{port}/kafka"
    assert Path(told["logs"]).is_dir()
    with ExistingCluster(told["zookeeper.connect"], told["bootstrap.servers"]) as cluster:
        cluster.create_topic("t", 2)
        assert cluster.admin.offsets("t", 2) == {0: 0, 1: 0}
    check_produced_records_are_consumed(run, environment)

    status = run("status")
    assert (status.returncode, status.stdout, status.stderr) == (0, up.stdout, "")
    again = run("up", "--detach")
    assert (again.returncode, again.stdout) == (1, "")
    assert f"a development cluster is already running (pid {supervisor})" in again.stderr

    down = run("down")
    assert (down.returncode, down.stderr) == (0, "")
    assert down.stdout == f"development cluster stopped (pid {supervisor}), data deleted\n"
    wait_until_ended([psutil.Process(supervisor), *servers] if psutil.pid_exists(supervisor) else servers)
    assert left(environment) == []
    status = run("status")
    assert (status.returncode, status.stdout, status.stderr) == (1, "no development cluster is running\n", "")
    down = run("down")
    assert (down.returncode, down.stdout, down.stderr) == (0, "no development cluster is running\n", "")


def check_keys_are_produced(run: Run, properties: Path) -> None:
    assert run("topic", "keyed:2").returncode == 0
    keyed = run("produce", "--topic=keyed", "--key-separator=::", entered="a::1::2\n::3\na::\n")
    assert (keyed.returncode, keyed.stderr) == (0, "3 records written to topic 'keyed' (2 partitions)\n")
    with create_consumer(ConsumerConfig.from_properties(properties, {"group.id": "keyed"})) as consumer:
        [stream] = consumer.create_message_streams({"keyed": 1})["keyed"]
        read = list(itertools.islice(stream, 3))
    assert sorted((message.key, message.value) for message in read) == [(b"", b"3"), (b"a", b""), (b"a", b"1::2")]
    assert len({message.partition for message in read if message.key == b"a"}) == 1
    missing = run("produce", "--topic=keyed", "--key-separator=:", entered="a:1\nb\n")
    assert missing.returncode == 1
    assert "line 2 does not contain the key separator ':': b'b'" in missing.stderr
    both = run("produce", "--topic=keyed", "--key-separator=:", "--count=1")
    assert both.returncode == 2
    assert "cannot be combined with --count" in both.stderr


def check_produced_records_are_consumed(run: Run, environment: dict[str, str]) -> None:
    """Follow the first steps: produce numbers and lines, and consume them with the printed properties."""
    numbers = run("produce", "--topic=orders", "--count=100", "--rate=1000")
    assert (numbers.returncode, numbers.stderr) == (0, "100 records written to topic 'orders' (4 partitions)\n")
    lines = run("produce", "--topic=orders", entered="first\nsecond\r\nthird")
    assert (lines.returncode, lines.stderr) == (0, "3 records written to topic 'orders' (4 partitions)\n")
    file = Path(environment["TMPDIR"], "consumer.properties")
    file.write_text(run("status", "--properties").stdout)
    with create_consumer(ConsumerConfig.from_properties(file, strict=True)) as consumer:
        [stream] = consumer.create_message_streams({"orders": 1})["orders"]
        read = list(itertools.islice(stream, 103))
    assert sorted(message.value or b"" for message in read) == sorted(
        [*(b"%d" % number for number in range(100)), b"first", b"second", b"third"]
    )
    assert {message.partition for message in read} == {0, 1, 2, 3}
    assert run("topic", "more:2").stdout == "created topic 'more' with 2 partitions\n"
    assert run("topic", "one").stdout == "created topic 'one' with 1 partition\n"
    again = run("topic", "more:2")
    assert again.returncode == 1
    assert "already exists" in again.stderr
    check_keys_are_produced(run, file)
    missing = run("produce", "--topic=order", "--count=1")
    assert missing.returncode == 1
    assert (
        "topic 'order' does not exist; check its name, or create it (in the detached cluster: "
        "`zkconsumer cluster topic order`)"
    ) in missing.stderr


@pytest.mark.slow
def test_servers_die_with_killed_supervisor(run: Run, environment: dict[str, str]) -> None:
    run("up", "--detach", "--brokers", "1").check_returncode()
    supervisor = state(environment)["supervisor"]
    servers = servers_of(supervisor)
    assert len([server for server in servers if server.name() == "java"]) == 2

    os.kill(supervisor, signal.SIGKILL)

    wait_until_ended(servers)
    status = run("status")
    assert (status.returncode, status.stdout) == (1, "no development cluster is running\n")
    assert left(environment) == []


@pytest.mark.slow
def test_second_concurrent_start_is_rejected(
    run: Run, environment: dict[str, str], foreground: Callable[..., subprocess.Popen[str]]
) -> None:
    both = [foreground("--detach", "--brokers", "1") for _ in range(2)]

    errors = {process.returncode: said for process, (_, said) in [(p, p.communicate(timeout=60)) for p in both]}

    assert sorted(errors) == [0, 1]
    assert "a development cluster is already running or starting" in errors[1]
    assert len(left(environment)) == 1
    servers = servers_of(state(environment)["supervisor"])
    assert run("down").stdout.startswith("development cluster stopped (pid ")
    wait_until_ended(servers)
    assert run("status").returncode == 1


def test_ctrl_c_during_start_leaves_nothing(
    run: Run, environment: dict[str, str], foreground: Callable[..., subprocess.Popen[str]]
) -> None:
    process = foreground("--detach", "--brokers", "1")
    servers = wait_for(
        lambda: [p for p in servers_of(process.pid) if p.name() == "java"], what="the first server has started"
    )

    process.send_signal(signal.SIGINT)

    assert process.wait(30) == 130
    wait_until_ended(servers)
    assert left(environment) == []
    assert run("status").returncode == 1


# ---- in the foreground --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "number", [signal.SIGINT, *(pytest.param(n, marks=pytest.mark.slow) for n in (signal.SIGTERM, signal.SIGHUP))]
)
def test_signal_stops_foreground_cluster(
    number: signal.Signals, environment: dict[str, str], foreground: Callable[..., subprocess.Popen[str]], run: Run
) -> None:
    process = foreground("--brokers", "1")
    assert process.stdout is not None
    said = [process.stdout.readline() for _ in range(5)]
    assert said[0] == f"Kafka 3.9.2, supervisor pid {process.pid}\n"
    assert said[4] == "press Ctrl-C to stop the cluster\n"
    servers = servers_of(process.pid)
    assert run("status").returncode == 1, "status reports clusters in the background only"

    process.send_signal(number)
    process.send_signal(number)
    out, errors = process.communicate(timeout=20)

    assert (process.returncode, out, errors) == (128 + number, "stopping the development cluster\n", "")
    wait_until_ended(servers)
    assert left(environment) == []


@pytest.mark.slow
@pytest.mark.parametrize("action", [["down"], ["up", "--brokers", "1", "--detach"]])
def test_data_of_killed_foreground_cluster_is_deleted_later(
    action: list[str],
    environment: dict[str, str],
    foreground: Callable[..., subprocess.Popen[str]],
    run: Run,
) -> None:
    process = foreground("--brokers", "1")
    assert process.stdout is not None
    while "Ctrl-C" not in process.stdout.readline():
        pass
    abandoned = left(environment)
    servers = servers_of(process.pid)
    process.kill()
    wait_until_ended(servers)
    assert left(environment) == abandoned != []

    run(*action).check_returncode()

    assert not set(abandoned) & set(left(environment))


@pytest.mark.slow
def test_exit_of_one_server_stops_cluster(
    environment: dict[str, str], foreground: Callable[..., subprocess.Popen[str]]
) -> None:
    process = foreground("--brokers", "1")
    assert process.stdout is not None
    while "Ctrl-C" not in process.stdout.readline():
        assert process.poll() is None
    servers = servers_of(process.pid)
    [broker] = [server for server in servers if "kafka.Kafka" in server.cmdline() and server.name() == "java"]

    broker.kill()
    _, errors = process.communicate(timeout=20)

    assert process.returncode == 1
    assert errors.startswith("zkconsumer cluster: broker-0 terminated; last lines of ")
    wait_until_ended(servers)
    assert left(environment) == []


# ---- wrong usage --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["start"], "invalid choice: 'start'"),
        (["up", "--brokers", "none"], "argument --brokers: "),
        (["up", "--brokers", "0"], "argument --brokers: must be an integer of at least 1, got '0'"),
        (["up", "--kafka", "latest"], "argument --kafka: must be a version such as 3.9.2, got 'latest'"),
        (["up", "--topic", "a b"], "argument --topic: topic name must consist of"),
        (["up", "--topic", "a:0"], "argument --topic: must be an integer of at least 1, got '0'"),
        (["up", "--broker-port", "65536"], "argument --broker-port: must be a port between 1 and 65535, got '65536'"),
        (["up", "--chroot", "kafka"], "argument --chroot: must be a path such as /kafka, got 'kafka'"),
    ],
)
def test_usage_error_starts_no_server(
    arguments: list[str],
    said: str,
    environment: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("XDG_STATE_HOME", "TMPDIR"):
        monkeypatch.setenv(name, environment[name])

    with pytest.raises(SystemExit) as exit_:
        main(["cluster", *arguments])

    output, error = capsys.readouterr()
    assert (exit_.value.code, output) == (2, "")
    assert said in error
    assert left(environment) == []


def test_port_in_use_is_an_error(run: Run, environment: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        done = run("up", "--broker-port", str(port - 1), timeout=30)

    assert done.returncode == 2
    assert f"port {port} is already in use; select another port" in done.stderr
    assert left(environment) == []


def test_produce_without_cluster_is_an_error(run: Run) -> None:
    done = run("produce", "--topic", "t", "--count", "1", timeout=30)

    assert done.returncode == 1
    assert "no detached cluster is running; start one with `zkconsumer cluster up --detach`" in done.stderr


# ---- the state file -----------------------------------------------------------------------------------------


@pytest.fixture
def state_file(environment: dict[str, str]) -> Iterator[Path]:
    """Return the path of the state file of a supervisor that does not run."""
    path = Path(environment["XDG_STATE_HOME"], "zkconsumer", "cluster.json")
    path.parent.mkdir(parents=True)
    path.with_suffix(".lock").touch()
    yield path
    path.unlink(missing_ok=True)


@pytest.mark.parametrize("pid", [None, "1"], ids=["no marker", "marker of another cluster"])
def test_directory_of_other_process_is_not_deleted(
    pid: str | None,
    state_file: Path,
    environment: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    if pid is not None:
        (precious / "supervisor.pid").write_text(pid)
    addresses = {"kafka": "3.9.2", "zookeeper.connect": "z", "bootstrap.servers": "b"}
    state_file.write_text(json.dumps({"supervisor": 999_999_999, "logs": str(precious), **addresses}))

    monkeypatch.setenv("XDG_STATE_HOME", environment["XDG_STATE_HOME"])

    status = main(["cluster", "status"])

    assert (status, *capsys.readouterr()) == (1, "no development cluster is running\n", "")
    assert precious.is_dir()


@pytest.mark.parametrize("content", ["", "[]", '{"supervisor":"x"}', "[" * 100_000, '{"supervisor":1,"logs":5}'])
@pytest.mark.parametrize("action", ["status", "down"])
def test_malformed_state_file_is_reported_in_one_line(
    content: str,
    action: str,
    state_file: Path,
    environment: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    state_file.write_text(content)
    monkeypatch.setenv("XDG_STATE_HOME", environment["XDG_STATE_HOME"])

    status = main(["cluster", action])

    output, error = capsys.readouterr()
    assert (status, output) == (1, "")
    assert error.startswith(f"zkconsumer cluster: {state_file} does not contain the state of a development cluster")
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize("variable", ["XDG_STATE_HOME", "XDG_CACHE_HOME"])
def test_directory_that_cannot_be_written_is_named(variable: str, environment: dict[str, str]) -> None:
    environment[variable] = "/dev/null/home"

    done = subprocess.run(
        [*TOOL, "up", "--detach"], env=environment, capture_output=True, text=True, timeout=60, check=False
    )

    assert done.returncode == (2 if variable == "XDG_STATE_HOME" else 1)  # the supervisor uses the other one
    assert "Traceback" not in done.stderr
    first = done.stderr.splitlines()[0]
    assert first.startswith("zkconsumer cluster: cannot write to the directory /dev/null/home/zkconsumer")
    assert first.endswith(f"; set {variable} to a writable directory")


def test_ignored_java_home_is_logged(run: Run, environment: dict[str, str]) -> None:
    environment["PATH"] = f"{java_home()}/bin{os.pathsep}{environment['PATH']}"
    environment["JAVA_HOME"] = "/nonsense"

    done = run("java-home")

    assert done.returncode == 0
    assert "java_home_ignored" in done.stderr
    assert "/nonsense (JAVA_HOME) contains no Java runtime" in done.stderr
    assert done.stdout.strip() in done.stderr


def test_java_home_is_printed_alone(run: Run) -> None:
    done = run("java-home")

    assert (done.stdout, done.stderr, done.returncode) == (f"{java_home()}\n", "", 0)
