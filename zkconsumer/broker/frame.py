"""ReceiveBuffer and Frame: the receive buffer of a broker connection, and the response being read.

Small fields are copied from the receive buffer. The records of each partition are received directly into a separate
buffer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zkconsumer.broker.buffers import allocate
from zkconsumer.errors import BrokerUnavailableError
from zkconsumer.message import Endpoint

#: Receive buffer size in bytes. Longer fields bypass the buffer.
_BUFFER_SIZE = 64 * 1024

#: Maximum number of bytes that ``Frame.read_fields`` returns if fewer are required. A partition without records has
#: about 50 bytes of fields.
_MAX_FIELDS = 512

#: Function that receives bytes into a view, and returns their number: at least as many as its second argument; fewer,
#: but at least one, if the connection failed or the time limit expired.
Receive = Callable[[memoryview, int], int]


class ReceiveBuffer:
    """Buffer for received bytes that have not been read yet. Used only by the channel's thread.

    The receive function is passed to each method instead of being stored: a reference cycle with the channel would keep
    the channel alive until Python's cycle collector runs.
    """

    def __init__(self) -> None:
        self._buffer = memoryview(bytearray(_BUFFER_SIZE))
        self._position = self._end = 0

    @property
    def unread_size(self) -> int:
        """Number of bytes that have been received but not read."""
        return self._end - self._position

    @property
    def unread(self) -> bytes:
        """Bytes that have been received but not read."""
        return self._buffer[self._position : self._end].tobytes()

    def clear(self) -> None:
        """Discard bytes received on an earlier connection."""
        self._position = self._end = 0

    def read(self, size: int, receive: Receive) -> bytes:
        """Return the next ``size`` bytes."""
        if size > _BUFFER_SIZE:
            return self._read_large(size, receive)
        while self.unread_size < size:
            self.receive(size, receive)
        self._position += size
        return self._buffer[self._position - size : self._position].tobytes()

    def put_back(self, size: int) -> None:
        """Make the last ``size`` bytes of the last ``read``, which must not be larger than the buffer, unread again."""
        self._position -= size

    def receive(self, size: int, receive: Receive) -> None:
        """Receive until ``size`` unread bytes are in the buffer, or until ``receive`` returns fewer."""
        unread = self.unread_size
        self._buffer[:unread] = self._buffer[self._position : self._end]
        self._position, self._end = 0, unread
        self._end += receive(self._buffer[unread:], size - unread)

    def _read_large(self, size: int, receive: Receive) -> bytes:
        """Read in pieces, so that memory usage is at most twice the number of bytes received."""
        pieces: list[Any] = []
        missing, piece_size = size, _BUFFER_SIZE
        while missing:
            piece_size = min(missing, piece_size)
            pieces.append(self.read_into(bytearray(piece_size), receive))
            missing -= piece_size
            piece_size = size - missing
        return b"".join(pieces)

    def read_into(self, target: Any, receive: Receive) -> memoryview:
        """Fill ``target`` with the next bytes, and return a view of it."""
        view = memoryview(target).cast("B")
        filled = min(self.unread_size, len(view))
        view[:filled] = self._buffer[self._position : self._position + filled]
        self._position += filled
        while filled < len(view):
            filled += receive(view[filled:], len(view) - filled)
        return view


class Frame:
    """A response that is being read from the socket; see ``protocol.ResponseReader``.

    Attributes:
        remaining: number of bytes that have not been read.
    """

    def __init__(self, buffer: ReceiveBuffer, receive: Receive, endpoint: Endpoint, size: int) -> None:
        self._buffer = buffer
        self._receive = receive
        self._endpoint = endpoint
        self.remaining = size

    def _consume(self, size: int) -> None:
        if size < 0 or size > self.remaining:
            raise BrokerUnavailableError(
                f"broker {self._endpoint} sent a malformed response: invalid field size {size} with "
                f"{self.remaining} bytes left"
            )
        self.remaining -= size

    def read(self, size: int) -> bytes:
        """Return the next ``size`` bytes."""
        self._consume(size)
        return self._buffer.read(size, self._receive)

    def read_fields(self, size: int) -> bytes:
        """Return the next bytes: at least ``size``, and more of the response if it was received, up to a limit."""
        available = min(self._buffer.unread_size, self.remaining, _MAX_FIELDS)
        return self.read(available if 0 <= size < available else size)

    def put_back(self, size: int) -> None:
        """Put the last ``size`` bytes of ``read_fields`` back, to read them again."""
        self._buffer.put_back(size)
        self.remaining += size

    def read_records(self, size: int) -> Any:
        """Return the next ``size`` bytes in a separate buffer of that size.

        Large buffers take up memory only as bytes arrive.
        """
        self._consume(size)
        return self._buffer.read_into(allocate(size), self._receive) if size else b""
