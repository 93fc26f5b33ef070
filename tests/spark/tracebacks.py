"""Errors in the standard error of a Spark job, without the tracebacks of pyspark's own."""

from __future__ import annotations

import re
import sysconfig

_FRAME = re.compile(r'\s+File "(?P<path>[^"]+)", line \d+')
#: A log level, unless it is in quotation marks: Spark prints the level that a program sets.
_ERROR = re.compile(r'ERROR(?!")')
_PACKAGES = re.compile(r"site-packages/|\.zip/")


def find_errors(text: str) -> list[str]:
    """Return the lines that report an error: log events, and frames of tracebacks outside pyspark.

    A traceback is ignored if all of its frames are in pyspark or the standard library. At the end of a job, Spark
    closes the sockets of idle Python workers and then kills them. With Unix domain sockets, a worker can
    print a traceback in between (BrokenPipeError in pyspark/daemon.py), also in a job that does not use this package.

    The lines of several workers can be interleaved, and a worker can be killed before it has printed all lines.
    Therefore, each frame is checked on its own.
    """
    return [line for line in text.splitlines() if _ERROR.search(line) or _has_foreign_frame(line)]


def _has_foreign_frame(line: str) -> bool:
    frame = _FRAME.match(line)
    return frame is not None and not _is_ignored(frame["path"])


def _is_ignored(path: str) -> bool:
    if path.startswith("<frozen "):
        return True
    *parents, inner = _PACKAGES.split(path)
    return inner.startswith("pyspark/") if parents else path.startswith(sysconfig.get_path("stdlib") + "/")
