"""How a task tells the process that plans that a decoder has seen the end of the stream.

Spark has no way for that; so the one listens where the driver is reachable, and the other calls once.
"""

from __future__ import annotations

import secrets
import threading
from dataclasses import dataclass
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Listener

from zkconsumer.errors import BrokerUnavailableError
from zkconsumer.log import get_logger

_JOIN_TIMEOUT = 5.0


@dataclass(frozen=True)
class EndSignal:
    """Where to call; travels with each task."""

    host: str
    port: int
    key: bytes

    def tell(self) -> None:
        """Tell it, and wait until it is known.

        Raises:
            BrokerUnavailableError: the driver is not reachable there.
        """
        try:
            with Client((self.host, self.port), authkey=self.key) as connection:
                connection.recv_bytes()
        except (OSError, EOFError, AuthenticationError) as error:
            raise BrokerUnavailableError(
                f"the end of the stream cannot be told to the driver at {self.host}:{self.port}: {error!r}. Where "
                "executors run on other machines, zkconsumer.spark.register(spark) tells the source the driver's name"
            ) from error


class EndListener:
    """Waits for the end of the stream.

    Args:
        host: of the driver, as the executors know it.
    """

    def __init__(self, host: str) -> None:
        key = secrets.token_bytes(32)
        self._listener = Listener((host, 0), authkey=key)
        self.signal = EndSignal(host, self._listener.address[1], key)
        self._told = threading.Event()
        self._closing = False
        self._log = get_logger("zkconsumer.spark")
        self._thread = threading.Thread(target=self._run, name="zkconsumer-end-of-stream", daemon=True)

    def start(self) -> None:
        """Listen."""
        self._thread.start()

    @property
    def is_told(self) -> bool:
        """Whether a task has told it."""
        return self._told.is_set()

    def close(self) -> None:
        """Listen no more."""
        self._closing = True
        try:
            Client((self.signal.host, self.signal.port), authkey=self.signal.key).close()  # ends the wait for one
        except (OSError, EOFError, AuthenticationError):
            pass  # it has ended already
        self._thread.join(_JOIN_TIMEOUT)
        self._listener.close()

    def _run(self) -> None:
        while not self._closing:
            try:
                with self._listener.accept() as connection:
                    if not self._closing:
                        self._told.set()
                        connection.send_bytes(b"ok")
            except (OSError, EOFError, AuthenticationError) as error:  # a stranger, or one that went away
                if not self._closing:
                    self._log.warning("end_of_stream_not_heard", error=repr(error))
