"""The checkpoint directory of an application, in a file system that Hadoop supports: batches and application file.

Source: Spark 4.3 OffsetSeqLog, CommitLog, StreamMetadata.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from py4j.protocol import Py4JJavaError

from zkconsumer.errors import StreamsError
from zkconsumer.message import TopicPartition
from zkconsumer.spark.offset import BatchOffset

#: Name of the application file in the checkpoint directory.
FILE = "zkconsumer-streams.json"

Found = TypeVar("Found")


@dataclass(frozen=True)
class QueryProgress:
    """Progress of the query to which a checkpoint belongs.

    Attributes:
        query: query id; "" if no query was started with the checkpoint.
        planned: number of the last planned batch; -1 if there is none.
        finished: number of the last finished batch; -1 if there is none.
        ends: next offset of each partition after the last finished batch.
    """

    query: str = ""
    planned: int = -1
    finished: int = -1
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)

    @property
    def is_interrupted(self) -> bool:
        """Whether Spark will repeat a batch."""
        return self.planned > self.finished


class CheckpointDirectory:
    """A checkpoint directory.

    Args:
        session: a Spark session.
        path: path of the directory.

    Attributes:
        path: path of the directory.

    Raises:
        StreamsError: the file system cannot be used. All methods raise it as well.
    """

    def __init__(self, session: Any, path: str) -> None:
        self.path = path
        self._jvm = session._jvm
        self._file, self._new = self._find(FILE), self._find(f"{FILE}.new")
        self._files = self._call(
            lambda: self._file.getFileSystem(session._jsparkSession.sessionState().newHadoopConf())
        )

    def __str__(self) -> str:
        return f"checkpoint {self.path}"

    def is_used(self) -> bool:
        """Return whether a query was started with this checkpoint."""
        return self._call(lambda: bool(self._files.exists(self._find("offsets"))))

    def read_progress(self) -> QueryProgress:
        """Return the progress of the query."""
        return self._call(self._read_progress)

    def find_local_file(self) -> str | None:
        """Return the path of the application file, or None if it is not in the local file system.

        All workers must share the directory of a local checkpoint.
        """
        uri = self._call(lambda: self._files.makeQualified(self._file).toUri())
        return str(uri.getPath()) if uri.getScheme() == "file" else None

    def exists(self) -> bool:
        """Return whether the directory exists."""
        return self._call(lambda: bool(self._files.exists(self._find(""))))

    def delete(self) -> None:
        """Delete the directory.

        Raises:
            StreamsError: the file system did not delete it.
        """
        if not self._call(lambda: bool(self._files.delete(self._find(""), True))) and self.exists():
            raise StreamsError(f"the file system did not delete {self}; delete the directory manually")

    def read(self) -> str | None:
        """Return the content of the application file, or None if there is no file."""
        return self._call(lambda: self._read_first(self._file, self._new))

    def write(self, text: str) -> None:
        """Replace the application file. If the write is interrupted, ``read`` returns the old or the new content."""
        self._call(lambda: self._write(text))

    def _find(self, name: str) -> Any:
        path = self._jvm.org.apache.hadoop.fs.Path
        return path(self.path, name) if name else path(self.path)

    def _call(self, operation: Callable[[], Found]) -> Found:
        """Call a function, and convert Hadoop's errors."""
        with _translating_errors(self.path):
            return operation()

    def _read_progress(self) -> QueryProgress:
        metadata = self._read_first(self._find("metadata"))
        if metadata is None:
            return QueryProgress()
        planned, finished = (max(self._list_batches(name), default=-1) for name in ("offsets", "commits"))
        log = "" if finished < 0 else self._read_first(self._find(f"offsets/{finished}")) or ""
        try:
            query = str(json.loads(metadata)["id"])
        except (KeyError, TypeError, ValueError) as error:
            raise StreamsError(f"{self.path}/metadata is malformed: {error!r}; restore the checkpoint") from error
        return QueryProgress(query, planned, finished, _parse_ends(log))

    def _list_batches(self, name: str) -> list[int]:
        directory = self._find(name)
        found = self._files.listStatus(directory) if self._files.exists(directory) else ()
        names = (str(status.getPath().getName()) for status in found)
        return [int(name) for name in names if re.fullmatch("[0-9]+", name)]

    def _read_first(self, *paths: Any) -> str | None:
        """Return the content of the first existing file; None if there is none."""
        found = [path for path in paths if self._files.exists(path)]
        if not found:
            return None
        stream = self._files.open(found[0])
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream)).decode(errors="replace")
        finally:
            stream.close()

    def _write(self, text: str) -> None:
        stream = self._files.create(self._new, True)
        try:
            self._jvm.org.apache.commons.io.IOUtils.write(bytearray(text.encode()), stream)
        finally:
            stream.close()
        if self._files.exists(self._file) and not self._files.delete(self._file, False):
            raise StreamsError(f"{self._file} cannot be replaced; check the permissions of the checkpoint directory")
        if not self._files.rename(self._new, self._file):
            raise StreamsError(f"{self._file} cannot be written; check the permissions of the checkpoint directory")


def _parse_ends(log: str) -> dict[TopicPartition, int]:
    """Return the next offset of each partition, given a file of Spark's offset log."""
    for line in log.splitlines()[2:]:  # the first two lines contain the version and Spark's metadata
        with contextlib.suppress(ValueError):
            offset = json.loads(line)
            if isinstance(offset, dict) and "ranges" in offset:
                return BatchOffset.from_json(offset).ends
    return {}


@contextmanager
def _translating_errors(place: str) -> Iterator[None]:
    """Convert Hadoop file system errors to StreamsError."""
    try:
        yield
    except Py4JJavaError as error:
        cause = str(error.java_exception.toString())
        raise StreamsError(f"checkpoint {place} cannot be used: {cause}") from error
