"""State file of the detached development cluster, and the lock that marks the cluster as running."""

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
from zkconsumer.excerpt import excerpt
from zkconsumer.tools import common
from zkconsumer.tools.common import ToolError

#: Keys of the addresses and the cluster directory in the state file, in output order.
ADDRESSES = ("zookeeper.connect", "bootstrap.servers", "logs")

#: Name of the supervisor's pid file in the cluster directory. A directory without this file is not deleted.
MARKER = "supervisor.pid"


def require() -> dict[str, Any]:
    """Return the state of the detached cluster.

    Raises:
        ToolError: no detached cluster is running.
    """
    state = running()
    if state is None:
        raise ToolError("no detached cluster is running; start one with `zkconsumer cluster up --detach`")
    return state


def hint(arguments: Collection[str], addresses: Collection[str]) -> str:
    """Return a hint with the options that connect a tool to the detached cluster, or an empty string.

    It is empty if no cluster is running, if the tool already uses its addresses, or if the tool has no such options.

    Args:
        arguments: option names of the tool.
        addresses: values of the tool's options, including the addresses to which it could not connect.
    """
    try:
        state = running()
    except ZkConsumerError:
        return ""
    if state is None or state["zookeeper.connect"] in addresses or state["bootstrap.servers"] in addresses:
        return ""
    zookeeper = [name for name in ("--zkconnect", "--zookeeper.connect", "--zookeeper") if name in arguments][:1]
    needed = [("--broker-list", "bootstrap.servers")] if "--broker-list" in arguments else []
    needed = needed or [(name, "zookeeper.connect") for name in zookeeper]
    if is_kraft(state["kafka"]) and "--bootstrap-server" in arguments:
        needed.append(("--bootstrap-server", "bootstrap.servers"))
    found = [f"{option} {state[address]}" for option, address in needed]
    return f"a development cluster is running; to use it: {' '.join(found)}" if found else ""


def state_file() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "zkconsumer" / "cluster.json"


def publish(path: Path, state: Mapping[str, Any]) -> None:
    """Write the state file of a running cluster atomically: readers find the complete file or none."""
    with common.replace_file(path) as complete:
        complete.write_text(json.dumps(state))


@contextlib.contextmanager
def supervising(path: Path) -> Iterator[None]:
    """Hold the lock that marks the cluster as running; delete the state file at the end of the block.

    The operating system releases the lock when this process terminates, even if it is killed.

    Raises:
        ZkConsumerError: another process holds the lock.
    """
    with path.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ZkConsumerError(
                "a development cluster is already running or starting; once it is running, stop it with "
                "`zkconsumer cluster down`"
            ) from None
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def _read_state(path: Path) -> dict[str, Any]:
    """Return the content of the state file.

    Raises:
        ZkConsumerError: the file is malformed.
    """
    try:
        state: dict[str, Any] = json.loads(path.read_text())
        for name, expected in {"supervisor": int, **dict.fromkeys(("kafka", *ADDRESSES), str)}.items():
            if type(state[name]) is not expected:
                kind = "an integer" if expected is int else "a string"
                raise TypeError(f"{name!r} must be {kind}, got {excerpt(str(state[name]))}")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        problem = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise ZkConsumerError(
            f"{path} does not contain the state of a development cluster ({problem}); delete the file"
        ) from error
    return state


def running() -> dict[str, Any] | None:
    """Return the state of the detached cluster, or None if none is running.

    The state file and cluster directory of a killed supervisor are deleted.
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
