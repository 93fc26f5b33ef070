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
import threading
import time
from collections.abc import Iterator
from typing import Any

from kafka import errors as kafka_errors
from kafka.protocol.broker_version_data import BrokerVersionData
from kafka.protocol.consumer import ListOffsetsRequest
from kafka.protocol.metadata import ApiVersionsRequest

from zkconsumer.broker.security import PLAINTEXT, Security
from zkconsumer.buffers import allocate
from zkconsumer.errors import BrokerUnavailableError, ClosedError, UnsupportedBrokerError
from zkconsumer.message import Endpoint
from zkconsumer.version import __version__

#: No answer is larger than this; a larger size field means that the other side is not a Kafka broker.
MAX_FRAME = (1 << 31) - 1

_UNSUPPORTED_VERSION = 35
#: What a broker has that cannot tell: 0.8.2 has it all, 0.9 no less.
_BEFORE_API_VERSIONS = (0, 8, 2)
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
        return self._channel._read_into(allocate(size)) if size else b""


class BrokerChannel:
    """One connection to one broker, used by one thread.

    Other threads may only call ``close()``, which makes a blocked call raise ``ClosedError``.

    Args:
        timeout: seconds for connecting, and that an answer may pause.
        receive_buffer: bytes of the socket's receive buffer; -1 leaves it to the system.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        client_id: str,
        *,
        timeout: float = 30.0,
        receive_buffer: int = -1,
        security: Security = PLAINTEXT,
    ) -> None:
        self._security = security
        self.endpoint = endpoint
        self.versions: BrokerVersionData | None = None
        self._client_id = client_id
        self._timeout = timeout
        self._receive_buffer = receive_buffer
        self._lock = threading.RLock()  # guards the three fields below; never held while something is waited for
        self._socket: socket.socket | None = None
        self._users = 0
        self._closed = False
        self._correlation = 0
        self._buffer = memoryview(bytearray(_BUFFER))
        self._at = self._end = 0

    def connect(self) -> BrokerChannel:
        """Open the connection and agree on request versions, where that has not been done.

        Raises:
            BrokerUnavailableError: refused, unreachable, or no answer in time.
            UnsupportedBrokerError: the broker has no version of ApiVersions that we know.
            AuthenticationError: one side does not trust the other.
        """
        with self._in_use():
            if self._socket is None:
                with self._mapped_errors("connect to"):
                    self._open()
                self.versions = self._negotiate()
                try:
                    self._security.authenticate(self.request, self.endpoint.host)
                except BaseException:
                    self.disconnect()
                    raise
        return self

    def close(self) -> None:
        """Close for good; a call blocked in another thread ends."""
        with self._lock:
            self._closed = True
            if self._users and self._socket is not None:
                # Only woken up: were the descriptor free, another connection might get its number, and the thread
                # that is about to wait for this one would wait for that.
                try:
                    self._socket.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass  # not connected any more
            else:
                self.disconnect()

    def disconnect(self) -> None:
        """Drop the connection; the next request opens another one."""
        with self._lock:
            sock, self._socket = self._socket, None
            if sock is not None:
                sock.close()

    @contextlib.contextmanager
    def _in_use(self) -> Iterator[None]:
        """Keep the descriptor while a call needs it; a ``close()`` meanwhile takes effect at its end."""
        with self._lock:
            if self._closed:
                raise ClosedError(f"the channel to {self.endpoint} is closed")
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if self._closed and not self._users:
                    self.disconnect()

    def _open(self) -> None:
        addresses = socket.getaddrinfo(self.endpoint.host, self.endpoint.port, type=socket.SOCK_STREAM)
        for number, (family, kind, proto, _, address) in enumerate(addresses, 1):
            sock = socket.socket(family, kind, proto)
            sock.settimeout(self._timeout)
            if self._receive_buffer > 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            with self._lock:
                if self._closed:
                    sock.close()
                    raise ClosedError(f"the channel to {self.endpoint} is closed")
                self._socket, self._at, self._end = sock, 0, 0  # from here on close() can end the attempt
            try:
                sock.connect(address)
                if not self._security.uses_tls:
                    return
                encrypted = self._security.wrap(sock, self.endpoint.host)
                with self._lock:
                    if self._closed:
                        encrypted.close()
                        raise ClosedError(f"the channel to {self.endpoint} is closed")
                    self._socket = encrypted  # close() can end the handshake, too
                self._security.shake_hands(encrypted, self.endpoint.host)
                return
            except OSError:
                self.disconnect()
                if self._closed or number == len(addresses):
                    raise

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
        with self._in_use():
            self.connect()
            if request.API_VERSION is None:
                request.API_VERSION = self._version_of(request)
            with self._mapped_errors("talk to"):
                yield from self._exchange(request)

    def _exchange(self, request: Any) -> Iterator[Frame]:
        self._correlation = (self._correlation + 1) & 0x7FFFFFFF
        request.with_header(correlation_id=self._correlation, client_id=self._client_id)
        sock = self._socket
        if sock is None:
            raise OSError("the connection is closed")
        sock.sendall(request.encode(framed=True, header=True))
        size, correlation = struct.unpack(">ii", self._read(8))
        if correlation != self._correlation or not 4 <= size <= MAX_FRAME:
            raise BrokerUnavailableError(
                f"{self.endpoint} does not answer as a Kafka broker does (size {size}, correlation id "
                f"{correlation} for {self._correlation}); check that the port is a PLAINTEXT listener"
            )
        frame = Frame(self, size - 4)
        yield frame
        if frame.left:
            self.disconnect()

    def _version_of(self, request: Any) -> int:
        assert self.versions is not None
        try:
            return int(self.versions.api_version(request))
        except (kafka_errors.IncompatibleBrokerVersion, kafka_errors.UnsupportedVersionError) as error:
            raise UnsupportedBrokerError(
                f"broker {self.endpoint} has no version of {type(request).__name__} that this client has: {error}"
            ) from error

    def _negotiate(self) -> BrokerVersionData:
        """Agree on versions.

        Brokers before 0.10 do not know ApiVersions: 0.8 hangs up on it, 0.9 never answers. Where ZooKeeper has told
        their generation they are not asked; where it is not known at all, they are found out by that, and by a request
        that they do know.
        """
        versions = BrokerVersionData(broker_version=_BEFORE_API_VERSIONS)
        if self.endpoint.has_api_versions is False:
            return versions
        if self.endpoint.has_api_versions:
            return self._ask_versions()
        for _ in range(2):  # a broker that is about to stop hangs up too, but not twice
            try:
                return self._ask_versions()
            except BrokerUnavailableError as error:
                silent = isinstance(error.__cause__, TimeoutError)
                if not silent and not isinstance(error.__cause__, ConnectionError):
                    raise
            with self._mapped_errors("connect to"):
                self._open()
            if silent:
                break
        self.request(ListOffsetsRequest(version=0, replica_id=-1, topics=[]))  # about nothing, so it costs nothing
        return versions

    def _ask_versions(self) -> BrokerVersionData:
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
        self.disconnect()
        raise UnsupportedBrokerError(f"broker {self.endpoint} refused ApiVersions with error {reply.error_code}")

    @contextlib.contextmanager
    def _mapped_errors(self, doing: str) -> Iterator[None]:
        try:
            yield
        except TimeoutError as error:
            self.disconnect()
            raise BrokerUnavailableError(
                f"cannot {doing} broker {self.endpoint}: no answer within {self._timeout:g} s"
            ) from error
        except (OSError, ValueError, struct.error, IndexError) as error:
            self.disconnect()
            if self._closed:
                raise ClosedError(f"the channel to {self.endpoint} is closed") from error
            raise BrokerUnavailableError(f"cannot {doing} broker {self.endpoint}: {error}") from error
        except BaseException:
            self.disconnect()
            raise

    def _read(self, size: int) -> bytes:
        have = self._end - self._at
        if have >= size:
            self._at += size
            return self._buffer[self._at - size : self._at].tobytes()
        if size > _BUFFER:
            return bytes(self._read_into(bytearray(size)))
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
            raise ConnectionResetError("the broker closed the connection")
        return got


class Throttle:
    """Obeys a broker's ``throttle_time_ms``, which clients have to since Kafka 2.0 (KIP-219).

    Args:
        longest: seconds; a broker that wants more does not read on before, while a damaged number would stop us for
            days.
    """

    def __init__(self, longest: float) -> None:
        self._longest = longest
        self._until = 0.0

    def note(self, throttle_time_ms: int) -> None:
        """Take what an answer said."""
        if throttle_time_ms > 0:
            self._until = time.monotonic() + min(self._longest, throttle_time_ms / 1000)

    def remaining(self) -> float:
        """Seconds that no further request may be sent."""
        return max(0.0, self._until - time.monotonic())
