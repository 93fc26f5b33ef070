"""ReaderGuard: one thread at a time reads a stream, in the process that created it."""

from __future__ import annotations

import os
import threading

from zkconsumer.errors import ClosedError, ZkConsumerError


class ReaderGuard:
    """Rejects reading a stream in several threads at the same time, or in a forked process.

    Args:
        name: the stream in error messages.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._process_id = os.getpid()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    @property
    def is_reading(self) -> bool:
        """Whether a thread is reading."""
        return self._thread is not None

    def enter(self) -> None:
        """Begin to read in this thread.

        Raises:
            ClosedError: this process is a fork.
            ZkConsumerError: another thread is reading.
        """
        if os.getpid() != self._process_id:
            raise ClosedError(
                f"this stream was created in process {self._process_id} and cannot be used after a fork; create a new "
                "consumer in this process"
            )
        thread = threading.current_thread()
        with self._lock:
            if self._thread is not None and self._thread is not thread:
                raise ZkConsumerError(
                    f"{self._name} is being read by thread {self._thread.name!r}; only one thread may read a stream "
                    "at a time. Create one stream for each thread with create_message_streams({topic: threads})"
                )
            self._thread = thread

    def leave(self) -> None:
        """End reading, if this thread is reading."""
        if self._thread is threading.current_thread():
            self._thread = None
