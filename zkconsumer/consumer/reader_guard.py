"""ReaderGuard: ensures that only one thread at a time reads a stream, in the process that created it."""

from __future__ import annotations

import os
import threading

from zkconsumer.errors import ClosedError, ZkConsumerError


class ReaderGuard:
    """Rejects concurrent reads of a stream by several threads, and reads in a forked process.

    Args:
        name: stream name used in error messages.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._process_id = os.getpid()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def enter(self) -> None:
        """Start reading in the current thread.

        Raises:
            ClosedError: the current process was forked after the stream was created.
            ZkConsumerError: another thread is reading the stream.
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
                    f"{self._name} is being read by thread {self._thread.name!r}, but only one thread may read a "
                    "stream at a time; create one stream per thread with create_message_streams({topic: threads})"
                )
            self._thread = thread

    def leave(self) -> None:
        """Stop reading, if the current thread is the reader."""
        if self._thread is threading.current_thread():
            self._thread = None
