"""BrokerChannel: one blocking connection to one broker.

The shape of the original's BlockingChannel: one thread owns one socket, one request is under way at a
time. Answers to fetches are read piece by piece, so that the records of each partition land in a buffer
of their own, without a copy and without keeping their neighbours in memory.

Source: Kafka 1.1 kafka.network.BlockingChannel.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from kafka import errors as kafka_errors
from kafka.protocol.broker_version_data import BrokerVersionData
from kafka.protocol.metadata import ApiVersionsRequest

from zkconsumer.errors import BrokerUnavailableError, ClosedError, UnsupportedBrokerError
from zkconsumer.message import Endpoint
from zkconsumer.version import __version__

#: No answer is larger than this; a larger size field means that the other side is not a Kafka broker.
MAX_FRAME = (1 << 31) - 1

_UNSUPPORTED_VERSION = 35
_BUFFER = 64 * 1024


class Frame:
    """One answer while it is read from the socket."""

    def __init__(self, channel: BrokerChannel, size: int) -> None:
        self._channel = channel
        self.left = size

    def _take(self, size: int) -> None:
        if size < 0 or size > self.left:
            raise BrokerUnavailableError(
                f"broker {self._channel.endpoint} sent an answer that ends {size - self.left} bytes early; "
                "the connection is closed"
            )
        self.left -= size

    def read(self, size: int) -> bytes:
        """Return the next ``size`` bytes."""
        self._take(size)
        return self._channel._read(size)

    def read_records(self, size: int) -> Any:
        """Return the next ``size`` bytes in a buffer of just that size."""
        self._take(size)
        return self._channel._read_into(pa.allocate_buffer(size)) if size else b""


class BrokerChannel:
    """One connection to one broker, used by one thread.

    Other threads may only call ``close()``, which makes a blocked call raise ``ClosedError``.

    Args:
        timeout: seconds for connecting and for each answer.
        receive_buffer: bytes of the socket's receive buffer; -1 leaves it to the system.
    """

    def __init__(self, endpoint: Endpoint, client_id: str, *, timeout: float = 30.0, receive_buffer: int = -1) -> None:
        self.endpoint = endpoint
        self.versions: BrokerVersionData | None = None
        self._client_id = client_id
        self._timeout = timeout
        self._receive_buffer = receive_buffer
        self._socket: socket.socket | None = None
        self._closed = False
        self._correlation = 0
        self._buffer = memoryview(bytearray(_BUFFER))
        self._at = self._end = 0

    def connect(self) -> BrokerChannel:
        """Open the connection and agree on request versions, where that has not been done.

        Raises:
            BrokerUnavailableError: refused, unreachable, or no answer in time.
            UnsupportedBrokerError: the broker has no version of ApiVersions that we know.
        """
        if self._closed:
            raise ClosedError(f"the channel to {self.endpoint} is closed")
        if self._socket is not None:
            return self
        with self._mapped_errors("connect to"):
            sock = socket.create_connection(self.endpoint, self._timeout)
            if self._receive_buffer > 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            self._socket, self._at, self._end = sock, 0, 0
            if self._closed:
                self._shut()
                raise ClosedError(f"the channel to {self.endpoint} is closed")
        self.versions = self._negotiate()
        return self

    def close(self) -> None:
        """Close for good; a call blocked in another thread ends."""
        self._closed = True
        sock = self._socket
        if sock is not None:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # not connected any more
        self._shut()

    def disconnect(self) -> None:
        """Drop the connection; the next request opens another one."""
        self._shut()

    def _shut(self) -> None:
        sock, self._socket = self._socket, None
        if sock is not None:
            sock.close()

    def request(self, request: Any) -> Any:
        """Send ``request`` and return its answer, decoded.

        The newest version that both sides know is used, within the limits of the request.
        """
        with self.exchange(request) as frame:
            reply = request.header.get_response_class()
            flexible = reply.flexible_version_q(request.API_VERSION) and request.API_KEY != 18
            body = memoryview(frame.read(frame.left))[1 if flexible else 0 :]
            try:
                return reply.decode(body)
            except Exception as error:  # the generated decoders fail in many ways on bytes that are not theirs
                raise BrokerUnavailableError(
                    f"broker {self.endpoint} sent an answer that is not one to {type(request).__name__}: {error!r}"
                ) from error

    @contextlib.contextmanager
    def exchange(self, request: Any) -> Iterator[Frame]:
        """Send ``request`` and give its answer to be read, after the correlation id.

        The connection is dropped unless the answer is read to its end.
        """
        self.connect()
        if request.API_VERSION is None:
            request.API_VERSION = self._version_of(request)
        with self._mapped_errors("talk to"):
            self._correlation = (self._correlation + 1) & 0x7FFFFFFF
            request.with_header(correlation_id=self._correlation, client_id=self._client_id)
            assert self._socket is not None
            self._socket.sendall(request.encode(framed=True, header=True))
            size, correlation = struct.unpack(">ii", self._read(8))
            if correlation != self._correlation or not 4 <= size <= MAX_FRAME:
                raise BrokerUnavailableError(
                    f"{self.endpoint} does not answer as a Kafka broker does (size {size}, correlation id "
                    f"{correlation} for {self._correlation}); check that the port is a PLAINTEXT listener"
                )
            frame = Frame(self, size - 4)
            yield frame
            if frame.left:
                self._shut()

    def _version_of(self, request: Any) -> int:
        assert self.versions is not None
        try:
            return int(self.versions.api_version(request))
        except (kafka_errors.IncompatibleBrokerVersion, kafka_errors.UnsupportedVersionError) as error:
            raise UnsupportedBrokerError(
                f"broker {self.endpoint} has no version of {type(request).__name__} that this client has: {error}"
            ) from error

    def _negotiate(self) -> BrokerVersionData:
        version = ApiVersionsRequest.max_version
        for _ in range(2):
            request = ApiVersionsRequest(
                version=version, client_software_name="zkconsumer", client_software_version=__version__
            )
            reply = self.request(request)
            if reply.error_code == 0 and reply.api_keys:
                return BrokerVersionData(
                    api_versions={key.api_key: (key.min_version, key.max_version) for key in reply.api_keys}
                )
            if reply.error_code != _UNSUPPORTED_VERSION:
                break
            # A refusal has the layout of version 0 and names the newest version that the broker has.
            version = next((key.max_version for key in reply.api_keys or () if key.api_key == 18), 0)
        self._shut()
        raise UnsupportedBrokerError(f"broker {self.endpoint} refused ApiVersions with error {reply.error_code}")

    @contextlib.contextmanager
    def _mapped_errors(self, doing: str) -> Iterator[None]:
        try:
            yield
        except TimeoutError as error:
            self._shut()
            raise BrokerUnavailableError(
                f"cannot {doing} broker {self.endpoint}: no answer within {self._timeout:g} s"
            ) from error
        except (OSError, ValueError, struct.error, IndexError) as error:
            self._shut()
            if self._closed:
                raise ClosedError(f"the channel to {self.endpoint} is closed") from error
            raise BrokerUnavailableError(f"cannot {doing} broker {self.endpoint}: {error}") from error
        except BaseException:
            self._shut()
            raise

    def _read(self, size: int) -> bytes:
        have = self._end - self._at
        if have >= size:
            self._at += size
            return self._buffer[self._at - size : self._at].tobytes()
        if size > _BUFFER:
            return memoryview(self._read_into(pa.allocate_buffer(size))).tobytes()
        self._buffer[:have] = self._buffer[self._at : self._end]
        self._at, self._end = 0, have
        while self._end < size:
            self._end += self._receive(self._buffer[self._end :])
        self._at = size
        return self._buffer[:size].tobytes()

    def _read_into(self, target: Any) -> Any:
        view = memoryview(target).cast("B")
        got = min(self._end - self._at, len(view))
        view[:got] = self._buffer[self._at : self._at + got]
        self._at += got
        while got < len(view):
            got += self._receive(view[got:])
        return view

    def _receive(self, view: memoryview) -> int:
        sock = self._socket
        if sock is None:
            raise OSError("the connection is closed")
        got = sock.recv_into(view)
        if not got:
            raise OSError("the broker closed the connection")
        return got


class Throttle:
    """Obeys a broker's ``throttle_time_ms``, which clients have to since Kafka 2.0 (KIP-219)."""

    def __init__(self) -> None:
        self._until = 0.0

    def note(self, throttle_time_ms: int) -> None:
        """Take what an answer said."""
        if throttle_time_ms > 0:
            self._until = time.monotonic() + throttle_time_ms / 1000

    def remaining(self) -> float:
        """Seconds that no further request may be sent."""
        return max(0.0, self._until - time.monotonic())
