"""Extracts the messages of query exceptions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

#: A zkconsumer exception at the end of a traceback.
_OWN_ERROR = re.compile(r"^zkconsumer\.[\w.]+: .*$", re.MULTILINE)
#: The first line of a Python traceback, and its last line, which contains the exception.
_TRACEBACK = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*(?P<error>\S.*)$", re.MULTILINE)
#: A cause in a JVM stack trace.
_CAUSE = re.compile(r"^Caused by: (.+)$", re.MULTILINE)
#: File system exceptions. A java.io.IOException can also be a connection error.
_FILE_ERROR = re.compile(r"java\.io\.FileNotFoundException\b|java\.nio\.file\.|org\.apache\.hadoop\.")
#: Spark's error conditions for checkpoint I/O, and Java and Hadoop exceptions, some of which Spark wraps.
_IO_ERROR = re.compile(
    r"\[(CANNOT_LOAD_STATE_STORE|CANNOT_WRITE_STATE_STORE|STREAMING_CHECKPOINT_LOG_WRITE_FAILURE|FAILED_RENAME_TEMP_FILE)\b"
    rf"|java\.io\.(IO|UncheckedIO)Exception\b|{_FILE_ERROR.pattern}"
)


def describe_error(error: BaseException, checkpoint: str) -> str:
    """Return the message of an error; for a Spark exception, the message of zkconsumer's exception in the worker.

    If there is none, the root cause in the JVM is appended, for example a full disk. For I/O errors, a remedy that
    names the checkpoint is also appended.

    Args:
        error: the error.
        checkpoint: checkpoint directory.
    """
    message, traces = str(error) or repr(error), list(_list_stack_traces(error))
    own = _OWN_ERROR.findall(message) or _OWN_ERROR.findall("\n".join(traces))
    if own:
        return str(own[-1])
    text, causes = _summarize(message), _CAUSE.findall("\n".join(traces))
    if causes:
        text += f"; caused by {causes[-1]}"
    # A stack trace begins with the exception class, which the message of a Spark exception does not contain.
    if _IO_ERROR.match(text) or _FILE_ERROR.match([*traces, *causes][-1]):
        text += (
            f"; check that checkpoint {checkpoint} is on storage that the driver and all workers can read and write, "
            "and that the storage is not full"
        )
    return text


def describe_failure(text: str) -> str:
    """Return the error message in a Spark exception with its stack trace, as in the event of a query's end.

    This is the message of zkconsumer's exception if there is one; otherwise, it is one line.
    """
    own = _OWN_ERROR.findall(text)
    return str(own[-1]) if own else _summarize(text.strip() or "unknown error")


def _summarize(message: str) -> str:
    """Return the first line of a message; if a traceback begins there, the exception instead of its beginning."""
    first = message.splitlines()[0]
    traceback = list(_TRACEBACK.finditer(message))
    if "Traceback (most recent call last):" not in first or not traceback:
        return first
    return f"{first.partition('Traceback (most recent')[0]}{traceback[-1]['error']}"


def _list_stack_traces(error: BaseException) -> Iterator[str]:
    """Yield the stack traces of a Spark exception and its causes in the JVM."""
    captured: Any = error
    while captured is not None:
        yield getattr(captured, "_stackTrace", None) or ""
        captured = getattr(captured, "_cause", None)
