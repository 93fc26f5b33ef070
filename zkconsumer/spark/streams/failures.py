"""Messages of query exceptions."""

from __future__ import annotations

import re
from typing import Any

#: The exception of the library at the end of a traceback.
_OWN_ERROR = re.compile(r"zkconsumer\.[\w.]+: ")
#: A cause in a stack trace of the JVM.
_CAUSE = re.compile(r"^Caused by: (.+)$", re.MULTILINE)


def describe_error(error: BaseException) -> str:
    """Return the message of an error; for a Spark exception, the message of the Python exception in the worker.

    Without one, the last cause in the JVM is added, such as a full disk.
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
    return f"{lines[0]}; caused by {causes[-1]}" if causes else lines[0]
