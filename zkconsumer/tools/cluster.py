"""The tool ``cluster``: a development cluster in the foreground, or in the background under a supervisor process."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from zkconsumer.devcluster.cluster import DEFAULT_KAFKA, DevCluster, raise_on_sigterm
from zkconsumer.errors import ZkConsumerError
from zkconsumer.tools import common

#: Names of the addresses and of the folder in the state file, in the order in which they are printed.
_ADDRESSES = ("zookeeper.connect", "bootstrap.servers", "logs")

#: File in the folder of a cluster that contains the pid of its supervisor. Only such a folder may be deleted.
_MARKER = "supervisor.pid"


def add_to(tools: Any) -> None:
    """Add the subcommand."""
    parser = tools.add_parser(
        "cluster",
        help="Start and stop a development cluster",
        description="Start and stop a development cluster of ZooKeeper and Kafka brokers on this machine.",
    )
    common.add_log_level(parser)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    up = actions.add_parser("up", help="start a cluster; stop it with Ctrl-C")
    up.add_argument("--brokers", type=common.positive, default=2, metavar="N", help="number of brokers (default: 2)")
    up.add_argument(
        "--kafka",
        type=_version,
        default=DEFAULT_KAFKA,
        metavar="VERSION",
        help="version of Kafka, from 0.8.2.2 on (default: %(default)s); 4.x runs in KRaft mode",
    )
    up.add_argument(
        "--chroot", type=_chroot, default="", metavar="/PATH", help="ZooKeeper chroot of the brokers and the groups"
    )
    up.add_argument("--detach", action="store_true", help="run the cluster in the background")
    common.add_json(up)
    up.set_defaults(run=run_up, parser=up)
    down = actions.add_parser("down", help="stop the cluster in the background")
    common.add_json(down)
    down.set_defaults(run=run_down, parser=down)
    status = actions.add_parser("status", help="print the addresses of the cluster in the background")
    common.add_json(status)
    status.set_defaults(run=run_status, parser=status)


def _version(text: str) -> str:
    if not re.fullmatch(r"\d+(\.\d+)+", text):
        raise argparse.ArgumentTypeError(f"must be a version such as 3.9.2, got {text!r}")
    return text


def _chroot(text: str) -> str:
    if text and not re.fullmatch(r"(/[^/]+)+", text):
        raise argparse.ArgumentTypeError(f"must be a path such as /kafka, got {text!r}")
    return text


def run_up(options: argparse.Namespace) -> int:
    """Start a cluster and return the exit code when it has stopped, or, with ``--detach``, when it has started."""
    if options.detach:
        return _detach(options)
    raise_on_sigterm()
    state_file = os.environ.get("ZKCONSUMER_CLUSTER_STATE")  # _detach sets it for the supervisor
    with contextlib.ExitStack() as stack:
        if state_file:
            stack.enter_context(_supervising(Path(state_file)))
        cluster = stack.enter_context(DevCluster(options.brokers, kafka=options.kafka, chroot=options.chroot))
        state = {
            "supervisor": os.getpid(),
            "kafka": options.kafka,
            "zookeeper.connect": cluster.zookeeper_connect,
            "bootstrap.servers": cluster.bootstrap_servers,
            "logs": str(cluster.folder),
            "servers": {server.name: server.pid for server in (cluster.zookeeper, *cluster.brokers)},
        }
        (cluster.folder / _MARKER).write_text(str(os.getpid()))
        _print(options, state)
        if state_file:
            os.dup2(1, 2)  # a caller that reads standard error through a pipe waits until it is closed
            complete = Path(state_file).with_suffix(".new")
            complete.write_text(json.dumps(state))
            complete.replace(state_file)
            _watch(cluster)
        else:
            output = sys.stderr if options.json else sys.stdout
            common.echo("press Ctrl-C to stop the cluster", file=output, flush=True)
            _watch(cluster)
            common.echo("stopping", file=output, flush=True)
    return 0


def _watch(cluster: DevCluster) -> None:
    """Block until Ctrl-C.

    Raises:
        ZkConsumerError: a server has terminated.
    """
    try:
        while True:
            time.sleep(1)
            for server in (cluster.zookeeper, *cluster.brokers):
                if not server.is_running:
                    raise ZkConsumerError(f"{server.name} has terminated; {server.log_end()}")
    except KeyboardInterrupt:
        pass


def run_down(options: argparse.Namespace) -> int:
    """Stop the cluster in the background and return the exit code."""
    state = _running()
    if state is None:
        _print(options, None)
        return 0
    os.kill(state["supervisor"], signal.SIGTERM)
    deadline = time.monotonic() + 60
    while _running() is not None:
        if time.monotonic() > deadline:
            raise ZkConsumerError(f"the supervisor (pid {state['supervisor']}) did not terminate within 60 s; kill it")
        time.sleep(0.1)
    common.print_json({"stopped": state}) if options.json else common.echo("stopped")
    return 0


def run_status(options: argparse.Namespace) -> int:
    """Print the addresses of the cluster in the background; return exit code 1 if there is none."""
    state = _running()
    _print(options, state)
    return 1 if state is None else 0


def _detach(options: argparse.Namespace) -> int:
    if state := _running():
        raise ZkConsumerError(
            f"a development cluster is already running (pid {state['supervisor']}); "
            "stop it with `zkconsumer cluster down`"
        )
    path = _state_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    log = path.with_suffix(".log")
    command = [sys.executable, "-m", "zkconsumer", "cluster", "up", f"--brokers={options.brokers}"]
    command += [f"--kafka={options.kafka}", f"--chroot={options.chroot}"]
    with log.open("wb") as out:
        supervisor = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=None,  # shows the progress of downloads
            start_new_session=True,
            env={**os.environ, "ZKCONSUMER_CLUSTER_STATE": str(path)},
        )
    try:
        while _running() is None:
            if supervisor.poll() is not None:
                raise ZkConsumerError(f"the cluster did not start; see the messages above and {log}")
            time.sleep(0.1)
    except KeyboardInterrupt:
        supervisor.terminate()
        supervisor.wait()
        raise
    return run_status(options)


def _state_file() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "zkconsumer" / "cluster.json"


@contextlib.contextmanager
def _supervising(path: Path) -> Iterator[None]:
    """Hold the lock that marks the cluster as running.

    The operating system releases the lock when this process terminates.
    """
    with path.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ZkConsumerError(
                "a development cluster is already running or starting; stop it with `zkconsumer cluster down`"
            ) from None
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def _read_state(path: Path) -> dict[str, Any]:
    """Return the content of the state file.

    Raises:
        ZkConsumerError: a supervisor has not written it.
    """
    try:
        state: dict[str, Any] = json.loads(path.read_text())
        texts = [state[name] for name in ("kafka", *_ADDRESSES)]
        if type(state["supervisor"]) is not int or not all(isinstance(text, str) for text in texts):
            raise TypeError("a value has the wrong type")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ZkConsumerError(
            f"{path} does not contain the state of a development cluster ({type(error).__name__}: {error}); delete it"
        ) from error
    return state


def _running() -> dict[str, Any] | None:
    """Return the state of the cluster in the background, None if there is none.

    The files of a supervisor that was killed are deleted.
    """
    path = _state_file()
    try:
        state = _read_state(path)
        lock = path.with_suffix(".lock").open("r+")
    except FileNotFoundError:
        return None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return state
        path.unlink(missing_ok=True)
        folder = Path(state["logs"])
        marker = folder / _MARKER
        if marker.is_file() and marker.read_text(errors="replace") == str(state["supervisor"]):
            shutil.rmtree(folder, ignore_errors=True)
        return None


def _print(options: argparse.Namespace, state: dict[str, Any] | None) -> None:
    if options.json:
        common.print_json(state)
        return
    if state is None:
        common.echo("no cluster is running")
        return
    common.echo(f"Kafka {state['kafka']}, supervisor pid {state['supervisor']}")
    for name in _ADDRESSES:
        common.echo(f"{name}={state[name]}")
    sys.stdout.flush()
