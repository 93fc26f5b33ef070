"""BrokerChannel: a blocking connection to a broker.

As in the Scala consumer, one thread owns one socket, with one request in flight. Fetch responses are read field by
field: the records of each partition are received directly into a separate buffer, which can be freed once they have
been consumed.

See docs/decisions/17-own-broker-channel.rst.

Source: Kafka 1.1 kafka.network.BlockingChannel.
"""

from __future__ import annotations

import contextlib
import functools
import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from typing import Any

from kafka.protocol.broker_version_data import BrokerVersionData
from kafka.protocol.consumer import ListOffsetsRequest
from kafka.protocol.metadata import ApiVersionsRequest

from zkconsumer.broker.api_versions import BEFORE_API_VERSIONS, choose_version, fetch_versions
from zkconsumer.broker.frame import Frame, ReceiveBuffer
from zkconsumer.broker.security import Security
from zkconsumer.broker.transfer import remaining_s, transfer
from zkconsumer.errors import AuthenticationError, BrokerUnavailableError, ClosedError
from zkconsumer.message import Endpoint
from zkconsumer.net.host_names import Addresses, resolve

#: Maximum size of a Fetch response in bytes: Kafka's size field is an int32.
_MAX_FRAME = (1 << 31) - 1
#: Keys of the requests that have the same effect if the broker processes them twice: Fetch, ListOffsets, Metadata,
#: OffsetCommit, OffsetFetch and FindCoordinator.
_REPEATABLE = frozenset({1, 2, 3, 8, 9, 10})
#: Errors of a connection that the broker has closed.
_CLOSED_BY_BROKER = (ConnectionError, ssl.SSLEOFError, ssl.SSLZeroReturnError)
#: Maximum size in bytes of a response to a request other than Fetch. A Metadata response with a million partitions is
#: about this large.
_MAX_RESPONSE = 100 << 20

#: Maximum size in bytes of a broker's SASL token.
_MAX_TOKEN = 64 << 10

_REQUEST_FAILED = "request to broker {} failed"


class BrokerChannel:
    """A connection to a broker, used by one thread.

    Other threads may only read ``is_in_use`` and call ``close()``, which makes a blocked call raise ``ClosedError``.

    Args:
        client_id, timeout_s, receive_buffer, security: see ``Connecting``, which creates channels.
    """

    def __init__(
        self, endpoint: Endpoint, client_id: str, timeout_s: float, receive_buffer: int, security: Security
    ) -> None:
        self._security = security
        self.endpoint = endpoint
        self.versions: BrokerVersionData | None = None
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._receive_buffer = receive_buffer
        self._lock = threading.RLock()  # guards the fields used by close(); never held while blocking
        self._socket: socket.socket | None = None
        self._is_established = False  # whether requests may have been sent over the connection since it was opened
        self._lookup: Future[Addresses] = Future()  # current or most recent name resolution
        self._active_calls = 0
        self._closed = False
        self._correlation = 0
        self._received = ReceiveBuffer()
        self._has_response = False  # whether the broker has responded on the current connection
        self._call_timeout_s = timeout_s
        self._deadline = 0.0  # ``time.monotonic()`` when the current call times out

    def connect(self) -> BrokerChannel:
        """Open the connection, negotiate request versions and authenticate, unless the connection is already open.

        Raises:
            BrokerUnavailableError: the broker refused the connection, is unreachable, or did not respond in time.
            UnsupportedBrokerError: the broker rejected the ApiVersions request.
            AuthenticationError: one side rejected the TLS handshake, or the broker rejected the credentials.
        """
        with self._use(self._timeout_s):
            if self._socket is None:
                with self._map_errors("could not connect to broker {}"):
                    self._open()
                try:
                    self.versions = self._negotiate()
                    self._security.authenticate(self.request, self._exchange_token, self.endpoint.host)
                except BaseException:
                    self.disconnect()
                    raise
                self._is_established = True
        return self

    def close(self) -> None:
        """Close the channel permanently; a call blocked in another thread raises ``ClosedError``."""
        with self._lock:
            self._closed = True
            self._lookup.cancel()
            if self._active_calls and self._socket is not None:
                # Keep the file descriptor open: otherwise, a new connection could reuse its number, and the blocked
                # thread would read from that connection.
                try:
                    self._socket.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass  # already disconnected
            else:
                self.disconnect()

    @property
    def is_in_use(self) -> bool:
        """Whether a call is in progress."""
        with self._lock:
            return self._active_calls > 0

    @property
    def is_reusable(self) -> bool:
        """Whether the connection is open and idle, without unread data."""
        with self._lock:
            sock = self._socket
            if self._closed or self._active_calls or sock is None or self._received.unread_size:
                return False
            poller = select.poll()
            poller.register(sock, select.POLLIN)
            return not poller.poll(0)  # readable if the broker closed the connection or sent data

    def disconnect(self) -> None:
        """Close the connection; the next request opens a new one."""
        with self._lock:
            sock, self._socket = self._socket, None
            self._is_established = False
            if sock is not None:
                sock.close()

    @contextlib.contextmanager
    def _use(self, timeout_s: float) -> Iterator[None]:
        """Context manager for a call: a concurrent ``close()`` closes the file descriptor only when the call ends.

        See docs/decisions/05-requests-to-brokers-have-deadlines.rst.

        Args:
            timeout_s: maximum seconds for the call, including nested calls.
        """
        with self._lock:
            if self._closed:
                raise ClosedError(f"the channel to {self.endpoint} is closed")
            if not self._active_calls:
                self._call_timeout_s, self._deadline = timeout_s, time.monotonic() + timeout_s
            self._active_calls += 1
        try:
            yield
        finally:
            with self._lock:
                self._active_calls -= 1
                if self._closed and not self._active_calls:
                    self.disconnect()

    def _open(self) -> None:
        addresses = self._resolve()
        for number, (family, kind, proto, _, address) in enumerate(addresses, 1):
            # Divide the remaining time, so that an unresponsive address leaves time for the following addresses.
            timeout_s = self._remaining() / (len(addresses) - number + 1)
            sock = socket.socket(family, kind, proto)
            sock.settimeout(timeout_s)
            if self._receive_buffer > 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            with self._lock:
                if self._closed:
                    sock.close()
                    raise ClosedError(f"the channel to {self.endpoint} is closed")
                self._received.clear()
                self._has_response = False
                self._socket = sock  # from now on, close() interrupts connect()
            try:
                sock.connect(address)
                if not self._security.uses_tls:
                    return
                encrypted = self._security.wrap(sock, self.endpoint.host)
                with self._lock:
                    if self._closed:
                        encrypted.close()
                        raise ClosedError(f"the channel to {self.endpoint} is closed")
                    self._socket = encrypted  # from now on, close() interrupts the handshake as well
                encrypted.settimeout(self._remaining())
                self._security.handshake(encrypted)
                return
            except OSError as error:
                self._raise_rejection(error)
                self.disconnect()
                if self._closed or number == len(addresses):
                    raise

    def _resolve(self) -> Addresses:
        """Resolve the broker's host name."""
        lookup = resolve(self.endpoint.host, self.endpoint.port)
        with self._lock:
            if self._closed:
                lookup.cancel()
            self._lookup = lookup  # from now on, close() cancels the lookup
        try:
            return lookup.result(self._remaining())
        except CancelledError as error:
            raise ClosedError(f"the channel to {self.endpoint} is closed") from error
        except TimeoutError as error:
            lookup.cancel()
            raise OSError(f"the host name was not resolved within {self._call_timeout_s:g} s") from error

    def _remaining(self) -> float:
        """Return the seconds until the deadline of the current call; raise TimeoutError if it has passed."""
        return remaining_s(self._deadline)

    def request(self, request: Any, timeout_s: float | None = None) -> Any:
        """Send ``request`` and return the decoded response.

        Uses the newest version that both the broker and the request's version range allow.

        Args:
            timeout_s: maximum seconds for the request; None for the channel's timeout.
        """
        with self.exchange(request, timeout_s) as frame:
            if frame.remaining > _MAX_RESPONSE:
                raise BrokerUnavailableError(
                    f"broker {self.endpoint} sent a response of {frame.remaining} bytes to {type(request).__name__}; "
                    f"the limit is {_MAX_RESPONSE} bytes"
                )
            response_class = request.header.get_response_class()
            # Flexible versions have a tagged-fields byte in the response header, except for ApiVersions (KIP-511).
            is_flexible = response_class.flexible_version_q(request.API_VERSION)
            has_tags = is_flexible and request.API_KEY != ApiVersionsRequest.API_KEY
            body = memoryview(frame.read(frame.remaining))[1 if has_tags else 0 :]
            try:
                return response_class.decode(body)
            except Exception as error:  # decoders raise various exception types for malformed responses
                raise BrokerUnavailableError(
                    f"broker {self.endpoint} sent a malformed response to {type(request).__name__}: {error!r}"
                ) from error

    @contextlib.contextmanager
    def exchange(self, request: Any, timeout_s: float | None = None) -> Iterator[Frame]:
        """Send ``request`` and yield a ``Frame`` with the part of the response after the correlation id.

        Brokers close connections that are idle (``connections.max.idle.ms``) or whose SASL session has ended, and all
        connections when they shut down. If the broker closed a connection that was used before, the channel connects
        again and repeats the request once. Source: Kafka 1.1 kafka.consumer.SimpleConsumer.sendRequest.

        Raises:
            BrokerUnavailableError: the request failed, or the block did not read the complete response. The connection
                is closed after this error, and after any error raised in the block.
        """
        with self._use(self._timeout_s if timeout_s is None else timeout_s):
            may_repeat = self._is_established and request.API_KEY in _REPEATABLE
            try:
                frame = self._send(request)
            except BrokerUnavailableError as error:
                if not may_repeat or not isinstance(error.__cause__, _CLOSED_BY_BROKER):
                    raise
                frame = self._send(request)
            with self._map_errors(_REQUEST_FAILED):
                yield frame
                if frame.remaining:
                    raise BrokerUnavailableError(
                        f"broker {self.endpoint} sent a malformed response to {type(request).__name__}: "
                        f"{frame.remaining} bytes follow its last field"
                    )

    def _send(self, request: Any) -> Frame:
        """Connect if necessary, send the request, and receive the response up to the correlation id."""
        self.connect()
        if request.API_VERSION is None:
            assert self.versions is not None
            request.API_VERSION = choose_version(request, self.versions, self.endpoint)
        with self._map_errors(_REQUEST_FAILED):
            return self._exchange(request)

    def _exchange(self, request: Any) -> Frame:
        self._correlation = (self._correlation + 1) & 0x7FFFFFFF
        request.with_header(correlation_id=self._correlation, client_id=self._client_id)
        self._send_bytes(request.encode(framed=True, header=True), 8)
        header = self._received.read(8, self._receive)
        size, correlation = struct.unpack(">ii", header)
        if correlation != self._correlation or not 4 <= size <= _MAX_FRAME:
            self._raise_rejection(None, header)
            raise BrokerUnavailableError(
                f"{self.endpoint} did not send a valid Kafka response (size {size}, correlation id {correlation}; "
                f"the request had correlation id {self._correlation}); check that the port is a "
                f"{self._security.protocol} listener of a broker"
            )
        self._has_response = True
        return Frame(self._received, self._receive, self.endpoint, size - 4)

    def _exchange_token(self, token: bytes) -> bytes:
        """Send a SASL token without a request header, and return the broker's token; see ``Security.authenticate``."""
        with self._map_errors(_REQUEST_FAILED):
            self._send_bytes(struct.pack(">i", len(token)) + token, 4)
            [size] = struct.unpack(">i", self._received.read(4, self._receive))
            if not 0 <= size <= _MAX_TOKEN:
                raise ValueError(f"invalid SASL token size {size}")
            return self._received.read(size, self._receive)

    def _negotiate(self) -> BrokerVersionData:
        """Return the request versions that the broker supports.

        Brokers before 0.10 do not support ApiVersions requests: 0.8 closes the connection, 0.9 does not respond. The
        request is not sent to brokers that are known to be older than 0.10. If the broker version is unknown, an old
        broker is recognized by this behavior, and by its response to a request that all old brokers support.

        See docs/decisions/06-versions-of-old-brokers.rst.
        """
        if self.endpoint.has_api_versions is False:
            return BEFORE_API_VERSIONS
        if self.endpoint.has_api_versions:
            return fetch_versions(self.request, self.endpoint)
        for _ in range(2):  # a broker that is shutting down closes the first connection and rejects the second
            try:
                with self._halve_deadline():
                    return fetch_versions(self.request, self.endpoint)
            except BrokerUnavailableError as error:
                is_timeout = isinstance(error.__cause__, TimeoutError)
                if not is_timeout and not isinstance(error.__cause__, ConnectionError):
                    raise
            with self._map_errors("could not connect to broker {}"):
                self._open()
            if is_timeout:
                break
        # All old brokers support this request. Without topics, its response is empty.
        self.request(ListOffsetsRequest(version=0, replica_id=-1, topics=[]))
        return BEFORE_API_VERSIONS

    @contextlib.contextmanager
    def _halve_deadline(self) -> Iterator[None]:
        """Halve the remaining time of the current call during the block, to reserve the other half for a retry."""
        deadline = self._deadline
        self._deadline -= self._remaining() / 2
        try:
            yield
        finally:
            self._deadline = deadline

    @contextlib.contextmanager
    def _map_errors(self, failure: str) -> Iterator[None]:
        """Close the connection after any error in the block, and convert I/O and parse errors to this package's errors.

        Args:
            failure: start of the error message, where ``{}`` stands for the endpoint.
        """
        try:
            yield
        except TimeoutError as error:
            self.disconnect()
            raise BrokerUnavailableError(
                f"{failure.format(self.endpoint)}: no complete response within {self._call_timeout_s:g} s"
            ) from error
        except (OSError, ValueError, struct.error, IndexError) as error:
            self._raise_rejection(error, self._received.unread)
            self.disconnect()
            if self._closed:
                raise ClosedError(f"the channel to {self.endpoint} is closed") from error
            raise BrokerUnavailableError(f"{failure.format(self.endpoint)}: {error}") from error
        except BaseException:
            self.disconnect()
            raise

    def _raise_rejection(self, error: Exception | None, received: bytes = b"") -> None:
        """Close the connection and raise ``AuthenticationError`` if it is new and was rejected; otherwise, return."""
        if self._has_response or self._closed:
            return
        rejection = self._security.find_rejection(error, self._socket, received, f"broker {self.endpoint}")
        if rejection is not None:
            self.disconnect()
            raise AuthenticationError(str(rejection)) from error

    def _send_bytes(self, data: bytes, header_size: int) -> None:
        """Send data, and receive what follows until the header of the response is in the receive buffer."""
        self._received.receive(header_size, functools.partial(self._transfer, data))

    def _receive(self, view: memoryview, minimum: int) -> int:
        return self._transfer(b"", view, minimum)

    def _transfer(self, data: bytes, view: memoryview, minimum: int) -> int:
        sock = self._socket
        if sock is None:
            raise OSError("the connection is closed")
        received = transfer(sock, data, view, minimum, self._remaining())
        if not received and minimum > 0:
            raise ConnectionResetError("the broker closed the connection")
        return received
