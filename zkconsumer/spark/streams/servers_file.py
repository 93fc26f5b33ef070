"""A file in which the driver writes the current brokers of the cluster for the sink of a running query.

Spark passes options to a sink only when the query starts. However, it creates the sink's writer for each batch, in a
process on the driver's host. The writer reads the file, and Spark sends the writer to the tasks.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from zkconsumer.log import get_logger

#: Prefix of the file name, followed by the process id.
_PREFIX = "zkconsumer-servers-"


class ServersFile:
    """Writes the file. Used in the driver, by one thread.

    Attributes:
        path: path of the file; None until ``open``, and after ``close``.
    """

    def __init__(self) -> None:
        self.path: Path | None = None
        self._log = get_logger("zkconsumer.spark")

    def open(self, servers: str) -> str:
        """Create the file if it does not exist, and return its path. Delete the files of processes that were killed.

        Raises:
            OSError: the file could not be created.
        """
        if self.path is None:
            _delete_abandoned()
            self.path = _write(servers)
        return str(self.path)

    def write(self, servers: str) -> None:
        """Replace the content of the file if it is open. Errors are logged, and the file keeps its content.

        The file is written even if the brokers are the same, because the operating system may delete temporary files
        that have not been modified for days.

        Args:
            servers: the brokers, as in ``bootstrap.servers``.
        """
        if self.path is None:
            return
        try:
            _write(servers, self.path)
        except OSError as error:
            self._log.warning("servers_file_not_written", path=str(self.path), error=str(error))

    def close(self) -> None:
        """Delete the file."""
        path, self.path = self.path, None
        if path is not None:
            path.unlink(missing_ok=True)


def _write(servers: str, path: Path | None = None) -> Path:
    """Write a new file, which replaces ``path`` if it is not None, and return its path."""
    descriptor, name = tempfile.mkstemp(prefix=f"{_PREFIX}{os.getpid()}-")
    new = Path(name)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(servers)
        return new if path is None else new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def _delete_abandoned() -> None:
    """Delete the files of processes that no longer exist.

    If the directory is shared with another container, this may delete the file of a running application. Its sink
    then uses the brokers in its options until the next ``write``.
    """
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*-*"):
        process_id = path.name.removeprefix(_PREFIX).partition("-")[0]
        try:
            os.kill(int(process_id), 0)
        except ProcessLookupError:
            with suppress(OSError):  # it was deleted in the meantime, or belongs to another user
                path.unlink()
        except (ValueError, OverflowError, OSError):
            continue  # not a file of this class, or the process belongs to another user


def read_servers(path: str) -> str | None:
    """Return the brokers in the file; None if there is no file."""
    try:
        return Path(path).read_text() or None
    except OSError:
        return None
