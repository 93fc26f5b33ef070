"""Spark's Python processes: workers of tasks, and the processes in which sources plan batches and sinks commit."""

from __future__ import annotations

import contextlib

import psutil

#: Marks of the command lines of Spark's Python processes: workers of tasks, and the planning of sources.
_OF_SPARK = "pyspark.daemon", "pyspark.sql.worker", "pyspark.sql.streaming", "python_streaming_source_runner"


def list_python_workers(parent: int) -> list[psutil.Process]:
    """Return Spark's Python processes among the descendants of a process, except those that have ended."""
    found = []
    with contextlib.suppress(psutil.NoSuchProcess):
        for process in psutil.Process(parent).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                command = " ".join(process.cmdline())
                if process.status() != psutil.STATUS_ZOMBIE and any(mark in command for mark in _OF_SPARK):
                    found.append(process)
    return found
