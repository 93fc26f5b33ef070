"""Reports of tasks to the planning process: the end of the stream, and records that were skipped.

Spark has no channel from tasks to a Python data source. The planning process therefore listens on a TCP port of the
driver's host, and a task connects to it if it has something to report.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import socket
import socketserver
import threading
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from zkconsumer.errors import BrokerUnavailableError
from zkconsumer.message import TopicPartition

#: Maximum seconds to wait for a connection, a request or a response.
_TIMEOUT = 10.0

_KEY_BYTES = 32
#: Maximum bytes of a report: about 100,000 ranges.
_MAX_BYTES = 8 << 20
_ACKNOWLEDGEMENT = b"ok"


class SkippedRange(NamedTuple):
    """What a task, or the planning process, has skipped in one range of a batch.

    Attributes:
        start: first offset of the range in its task.
        lost: number of offsets that had been deleted before they were read.
        skipped: number of offsets of corrupt record batches and of records that the decoder rejected.
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
    """What a task reports.

    Attributes:
        has_ended: the decoder has detected the end of the stream.
        skipped: ranges with skipped records.
    """

    has_ended: bool = False
    skipped: tuple[SkippedRange, ...] = ()

    @classmethod
    def parse(cls, text: bytes) -> TaskReport:
        """Parse the JSON of a report.

        Raises:
            ValueError, TypeError, KeyError: the text is not a report.
        """
        content = json.loads(text)
        return cls(bool(content["has_ended"]), tuple(SkippedRange(*one) for one in content["skipped"]))


@dataclass(frozen=True)
class ReportAddress:
    """Address and secret key of a ``ReportListener``; pickled with each task."""

    host: str
    port: int
    key: bytes

    def send(self, report: TaskReport) -> None:
        """Send a report, and wait for the acknowledgement.

        Raises:
            BrokerUnavailableError: the listener is unreachable, or belongs to another query.
        """
        try:
            with socket.create_connection((self.host, self.port), _TIMEOUT) as connection:
                connection.sendall(self.key + json.dumps(asdict(report)).encode() + b"\n")
                if connection.recv(len(_ACKNOWLEDGEMENT)) != _ACKNOWLEDGEMENT:
                    raise ConnectionError("the listener belongs to another query")
        except OSError as error:
            raise BrokerUnavailableError(
                f"could not send a report to the driver at {self.host}:{self.port}: {error!r}. If executors run on "
                "other machines, call zkconsumer.spark.register(spark), which sets the driver's host; with Spark "
                "Connect, set the environment variable SPARK_LOCAL_HOSTNAME of the server to a name that the executors "
                "resolve"
            ) from error


class ReportListener:
    """Listens for the reports of tasks.

    Args:
        host: host name of the driver, as executors resolve it.
        bind: address to listen on; None for the address of ``host``.
        on_skipped: called with skipped ranges, by a thread of the listener.
    """

    def __init__(
        self, host: str, bind: str | None = None, on_skipped: Callable[[Iterable[SkippedRange]], None] = lambda _: None
    ) -> None:
        key = secrets.token_bytes(_KEY_BYTES)
        has_ended = self._has_ended = threading.Event()

        class Handler(socketserver.StreamRequestHandler):
            timeout = _TIMEOUT

            def handle(self) -> None:
                if not hmac.compare_digest(self.rfile.read(_KEY_BYTES), key):
                    return
                report = TaskReport.parse(self.rfile.readline(_MAX_BYTES))
                on_skipped(report.skipped)
                if report.has_ended:
                    has_ended.set()
                self.wfile.write(_ACKNOWLEDGEMENT)

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            block_on_close = False
            request_queue_size = 128

            def handle_error(self, request: Any, client_address: Any) -> None:
                """Ignore clients that time out or disconnect; only tasks have the key."""

        self._server = Server((host if bind is None else bind, 0), Handler)
        self.address = ReportAddress(host, self._server.server_address[1], key)
        self._thread = threading.Thread(target=self._server.serve_forever, name="zkconsumer-task-reports", daemon=True)

    def start(self) -> None:
        """Start the listening thread."""
        self._thread.start()

    @property
    def has_ended(self) -> bool:
        """Whether a task has reported the end of the stream."""
        return self._has_ended.is_set()

    def close(self) -> None:
        """Stop the listening thread and close the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def local_address() -> tuple[str, str | None]:
    """Return the host name of this machine, and the address to listen on, if the driver's host is unknown.

    Source: Spark 4.2 Utils.localCanonicalHostName, which also reads SPARK_LOCAL_HOSTNAME.
    """
    host = os.environ.get("SPARK_LOCAL_HOSTNAME") or os.environ.get("SPARK_LOCAL_IP") or socket.gethostname()
    try:
        socket.getaddrinfo(host, None, socket.AF_INET)
    except OSError:
        return "127.0.0.1", None
    return host, ""
