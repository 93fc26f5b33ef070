"""Messages of query exceptions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

#: The exception of the library at the end of a traceback.
_OWN_ERROR = re.compile(r"^zkconsumer\.[\w.]+: .*$", re.MULTILINE)
#: A cause in a stack trace of the JVM.
_CAUSE = re.compile(r"^Caused by: (.+)$", re.MULTILINE)
#: Spark's conditions for I/O errors of a checkpoint, and exceptions of Java and Hadoop, of which Spark translates some.
_IO_ERROR = re.compile(
    r"\[(CANNOT_LOAD_STATE_STORE|CANNOT_WRITE_STATE_STORE|STREAMING_CHECKPOINT_LOG_WRITE_FAILURE|FAILED_RENAME_TEMP_FILE)\b"
    r"|java\.io\.|java\.nio\.file\.|org\.apache\.hadoop\."
)


def describe_error(error: BaseException, checkpoint: str) -> str:
    """Return the message of an error; for a Spark exception, the message of the Python exception in the worker.

    Without one, the last cause in the JVM is added, such as a full disk, and for an I/O error the checkpoint.

    Args:
        error: the error.
        checkpoint: directory of the checkpoint.
    """
    message, traces = str(error) or repr(error), "\n".join(_list_stack_traces(error))
    own = _OWN_ERROR.findall(message) or _OWN_ERROR.findall(traces)
    if own:
        return str(own[-1])
    text, causes = message.splitlines()[0], _CAUSE.findall(traces)
    if causes:
        text += f"; caused by {causes[-1]}"
    if _IO_ERROR.match(text):
        text += (
            f"; check that the driver and all workers share checkpoint {checkpoint}, can write to it, and have free "
            "disk space"
        )
    return text


def _list_stack_traces(error: BaseException) -> Iterator[str]:
    """Yield the stack traces of a Spark exception and its causes in the JVM."""
    captured: Any = error
    while captured is not None:
        yield getattr(captured, "_stackTrace", None) or ""
        captured = getattr(captured, "_cause", None)
