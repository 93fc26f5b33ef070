"""The development cluster in the background: its state file, and the lock that marks it as running."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from zkconsumer.devcluster.servers import is_kraft
from zkconsumer.errors import ZkConsumerError
from zkconsumer.tools.common import ToolError

#: Names of the addresses and of the directory in the state file, in the order in which they are printed.
ADDRESSES = ("zookeeper.connect", "bootstrap.servers", "logs")

#: File in the directory of a cluster that contains the pid of its supervisor. Only such a directory may be deleted.
MARKER = "supervisor.pid"


def require() -> dict[str, Any]:
    """Return the state of the cluster in the background.

    Raises:
        ToolError: there is none.
    """
    state = running()
    if state is None:
        raise ToolError(
            "no cluster is running in the background; start one with `zkconsumer cluster up --detach`, or set "
            "--bootstrap-server to the brokers of another cluster"
        )
    return state


def hint(arguments: Collection[str], addresses: Collection[str]) -> str:
    """Return the options with which a tool connects to the cluster in the background, or an empty string.

    Args:
        arguments: names of the options that the tool has.
        addresses: addresses to which the tool could not connect.
    """
    try:
        state = running()
    except ZkConsumerError:
        return ""
    if state is None or state["zookeeper.connect"] in addresses or state["bootstrap.servers"] in addresses:
        return ""
    needed = [(name, "zookeeper.connect") for name in ("--zookeeper", "--zkconnect", "--zookeeper.connect")]
    needed.append(("--broker-list", "bootstrap.servers"))
    if is_kraft(state["kafka"]):
        needed.append(("--bootstrap-server", "bootstrap.servers"))
    found = [f"{option} {state[address]}" for option, address in needed if option in arguments]
    return f"a development cluster is running; to use it: {' '.join(found)}" if found else ""


def state_file() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "zkconsumer" / "cluster.json"


def publish(path: Path, state: Mapping[str, Any]) -> None:
    """Write the state file of a cluster that runs; a reader finds either the whole content or no file."""
    complete = path.with_suffix(".new")
    complete.write_text(json.dumps(state))
    complete.replace(path)


@contextlib.contextmanager
def supervising(path: Path) -> Iterator[None]:
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
        texts = [state[name] for name in ("kafka", *ADDRESSES)]
        if type(state["supervisor"]) is not int or not all(isinstance(text, str) for text in texts):
            raise TypeError("a value has the wrong type")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ZkConsumerError(
            f"{path} does not contain the state of a development cluster ({type(error).__name__}: {error}); delete it"
        ) from error
    return state


def running() -> dict[str, Any] | None:
    """Return the state of the cluster in the background, None if there is none.

    The files of a supervisor that was killed are deleted.
    """
    path = state_file()
    try:
        state = _read_state(path)
        lock = path.with_suffix(".lock").open("r+")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ZkConsumerError(f"cannot read {path}: {error.strerror}; check its permissions") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return state
        path.unlink(missing_ok=True)
        folder = Path(state["logs"])
        marker = folder / MARKER
        if marker.is_file() and marker.read_text(errors="replace") == str(state["supervisor"]):
            shutil.rmtree(folder, ignore_errors=True)
        return None
