"""Stops the child processes of a benchmark."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import psutil

from zkconsumer.devcluster.cluster import raise_on_sigterm


@contextlib.contextmanager
def stopping_children() -> Iterator[None]:
    """Kill all child processes at the end of the block, and end the block on Ctrl-C, SIGTERM and SIGHUP.

    Some child processes run in a session of their own, so they do not receive the signals of the terminal.
    """
    raise_on_sigterm()
    try:
        yield
    finally:
        children = psutil.Process().children(recursive=True)
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        psutil.wait_procs(children, timeout=30)
