"""Task reports to the planning process: the end of the stream, and skipped records.

A task connects to the planning process only if it has something to report.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from zkconsumer.errors import BrokerUnavailableError
from zkconsumer.message import Endpoint, TopicPartition
from zkconsumer.net.host_names import resolve
from zkconsumer.spark.keyed_server import LOOPBACK, KeyedServer, ServerAddress, messages, to_line

#: Maximum seconds to wait for a connection, a request or a response.
_TIMEOUT_S = 10.0

_ACKNOWLEDGEMENT = b"ok"


class SkippedRange(NamedTuple):
    """The number of offsets that a task or the planning process skipped in one range of a batch.

    Attributes:
        start: first offset of the task's range.
        lost: number of offsets that were deleted before they were read.
        skipped: number of offsets skipped in corrupt record batches, plus number of records that the decoder rejected.
    """

    topic: str
    partition: int
    start: int
    lost: int = 0
    skipped: int = 0

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition of the range."""
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True)
class TaskReport:
    """A task's report to the planning process.

    Attributes:
        has_ended: whether the decoder detected the end of the stream.
        skipped: ranges with skipped records.
    """

    has_ended: bool = False
    skipped: tuple[SkippedRange, ...] = ()

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> TaskReport:
        """Create a report from the result of ``asdict``.

        Raises:
            TypeError, KeyError: the content is not a report.
        """
        return cls(bool(content["has_ended"]), tuple(SkippedRange(*one) for one in content["skipped"]))


@dataclass(frozen=True)
class ReportAddress(ServerAddress):
    """Address of a ``ReportListener``; pickled with each task."""

    def send(self, report: TaskReport) -> None:
        """Send a report, and wait for the acknowledgement.

        Raises:
            BrokerUnavailableError: the listener is unreachable, or belongs to another query.
        """
        try:
            with self.connect(_TIMEOUT_S) as connection:
                connection.sendall(to_line(asdict(report)))
                if connection.recv(len(_ACKNOWLEDGEMENT)) != _ACKNOWLEDGEMENT:
                    raise ConnectionError("the listener belongs to another query")
        except OSError as error:
            raise BrokerUnavailableError(
                f"could not send a report to the driver at {Endpoint(self.host, self.port)}: {error!r}; call "
                "zkconsumer.spark.register(spark), which passes the driver's host name to the executors (with Spark "
                "Connect, set the environment variable SPARK_LOCAL_HOSTNAME on the server)"
            ) from error


class ReportListener:
    """Listens for task reports.

    Args:
        host: driver host name that executors can resolve.
        bind: address to listen on; None for the address of ``host``.
        on_skipped: function to call with skipped ranges; called in a listener thread.
    """

    def __init__(
        self, host: str, bind: str | None = None, *, on_skipped: Callable[[Iterable[SkippedRange]], None]
    ) -> None:
        self._on_skipped = on_skipped
        self._has_ended = threading.Event()
        self._server = KeyedServer(
            self._receive,
            host=host,
            bind=host if bind is None else bind,
            name="zkconsumer-task-reports",
            timeout_s=_TIMEOUT_S,
        )
        address = self._server.address
        self.address = ReportAddress(address.host, address.port, address.key)

    def start(self) -> None:
        """Start the listening thread."""
        self._server.start()

    @property
    def has_ended(self) -> bool:
        """Whether a task reported the end of the stream."""
        return self._has_ended.is_set()

    def close(self) -> None:
        """Close the port, and wait for the threads."""
        self._server.close()

    def _receive(self, connection: socket.socket) -> None:
        for message in messages(connection):
            report = TaskReport.from_json(message)
            self._on_skipped(report.skipped)
            if report.has_ended:
                self._has_ended.set()
            connection.sendall(_ACKNOWLEDGEMENT)


def local_address() -> tuple[str, str | None]:
    """Return this machine's host name and the address to listen on, for use if the driver's host is unknown.

    If the host name has no IPv4 address, or is not resolved in time, the loopback address is returned.

    Source: Spark 4.2 Utils.localCanonicalHostName, which also reads SPARK_LOCAL_HOSTNAME.
    """
    host = os.environ.get("SPARK_LOCAL_HOSTNAME") or os.environ.get("SPARK_LOCAL_IP") or socket.gethostname()
    lookup = resolve(host, 0)
    try:
        families = {family for family, *_ in lookup.result(_TIMEOUT_S)}
    except OSError:  # the name is unknown, or was not resolved in time
        lookup.cancel()
        return LOOPBACK, None
    return (host, "") if socket.AF_INET in families else (LOOPBACK, None)
