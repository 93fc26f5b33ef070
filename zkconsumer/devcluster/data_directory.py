"""DataDirectory: the directory of a development cluster, which is deleted even if its process was killed."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

_PREFIX = "zkconsumer-"

#: Name of the file that the process of the cluster keeps locked.
_LOCK = "cluster.lock"


class DataDirectory:
    """A temporary directory with a locked file. The operating system releases the lock when the process terminates.

    Attributes:
        path: path of the directory.
    """

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        new = self.path / f"{_LOCK}.new"
        self._lock = new.open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        new.rename(self.path / _LOCK)  # after the lock is held, so that ``delete_abandoned`` does not acquire it

    def delete(self) -> None:
        """Delete the directory."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


def delete_abandoned() -> None:
    """Delete the directories of clusters whose process was killed, for example by SIGKILL."""
    for lock in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/{_LOCK}"):
        try:
            descriptor = os.open(lock, os.O_RDWR | os.O_NOFOLLOW)
        except OSError:
            continue  # it was deleted in the meantime, or belongs to another user
        with os.fdopen(descriptor, "r+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue  # the cluster is running
            if os.fstat(descriptor).st_uid == os.getuid() and not lock.parent.is_symlink():
                shutil.rmtree(lock.parent, ignore_errors=True)
