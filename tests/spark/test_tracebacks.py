"""Tests of ``find_errors``: which tracebacks of a Spark job are ignored."""

from __future__ import annotations

import queue

import pytest

from .tracebacks import find_errors

_SITE = "/venv/lib/python3.11/site-packages"
_DAEMON = f"{_SITE}/pyspark/python/lib/pyspark.zip/pyspark/daemon.py"


def frame(path: str) -> str:
    return f'  File "{path}", line 95, in call'


@pytest.mark.parametrize(
    "path",
    [
        f"{_SITE}/zkconsumer/spark/source.py",
        "/project/zkconsumer/spark/source.py",
        "/project/pyspark/job.py",
        f"{_SITE}/pyspark/python/lib/py4j-0.10.9.9-src.zip/py4j/java_gateway.py",
        f"{_SITE}/pyspark_zkconsumer/__init__.py",
        "/tmp/packages.zip/zkconsumer/spark/source.py",
        "<string>",
    ],
)
def test_traceback_with_other_frame_is_found(path: str) -> None:
    lines = ["Traceback (most recent call last):", frame(_DAEMON), frame(path), "    call()", "BrokenPipeError: ..."]

    assert find_errors("\n".join(lines)) == [frame(path)]


def test_tracebacks_of_pyspark_are_ignored() -> None:
    """Two of them are interleaved, and the last one is not complete."""
    start = "Traceback (most recent call last):"
    own = [frame(_DAEMON), frame(f"{_SITE}/pyspark/worker.py"), frame(queue.__file__), frame("<frozen runpy>")]
    lines = [start, own[0], start, *own, *own[1:], "BrokenPipeError: [Errno 32] Broken pipe", "EOFError", start]

    assert find_errors("\n".join(lines)) == []


def test_logged_error_is_found() -> None:
    line = "26/01/01 00:00:00 ERROR MicroBatchExecution: Query failed"

    assert find_errors(f"the first line\n{line}\n") == [line]
