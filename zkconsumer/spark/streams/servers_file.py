"""A file in which the driver writes the current brokers of the cluster for the sink of a running query.

Spark passes options to a sink only when the query starts. However, it creates the sink's writer for each batch, in a
process on the driver's host. The writer reads the file, and Spark sends the writer to the tasks.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from zkconsumer.log import get_logger


class ServersFile:
    """Writes the file. Used in the driver, by one thread.

    Attributes:
        path: path of the file; None until ``open``, and after ``close``.
    """

    def __init__(self) -> None:
        self.path: Path | None = None
        self._log = get_logger("zkconsumer.spark")

    def open(self, servers: str) -> str:
        """Create the file if it does not exist, and return its path.

        Raises:
            OSError: the file could not be created.
        """
        if self.path is None:
            self.path = _create(servers)
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
            _create(servers).replace(self.path)
        except OSError as error:
            self._log.warning("servers_file_not_written", path=str(self.path), error=str(error))

    def close(self) -> None:
        """Delete the file."""
        path, self.path = self.path, None
        if path is not None:
            path.unlink(missing_ok=True)


def _create(servers: str) -> Path:
    descriptor, name = tempfile.mkstemp(prefix="zkconsumer-servers-")
    with os.fdopen(descriptor, "w") as file:
        file.write(servers)
    return Path(name)


def read_servers(path: str) -> str | None:
    """Return the brokers in the file; None if there is no file."""
    try:
        return Path(path).read_text() or None
    except OSError:
        return None
