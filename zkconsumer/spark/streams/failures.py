"""Messages of query exceptions."""

from __future__ import annotations

import re
from typing import Any

#: The exception of the library at the end of a traceback.
_OWN_ERROR = re.compile(r"zkconsumer\.[\w.]+: ")
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
    lines = str(error).splitlines() or [repr(error)]
    own = [line for line in lines if _OWN_ERROR.match(line)]
    if own:
        return own[-1]
    causes: list[str] = []
    captured: Any = error
    while captured is not None:
        causes += _CAUSE.findall(getattr(captured, "_stackTrace", None) or "")
        captured = getattr(captured, "_cause", None)
    text = f"{lines[0]}; caused by {causes[-1]}" if causes else lines[0]
    if _IO_ERROR.match(text):
        text += (
            f"; check that the driver and all workers share checkpoint {checkpoint}, can write to it, and have free "
            "disk space"
        )
    return text
