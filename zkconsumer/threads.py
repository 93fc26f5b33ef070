"""Threads with an owner, which starts, stops and joins them."""

from __future__ import annotations

import threading
from collections.abc import Callable


class OwnedThread:
    """A daemon thread that its owner can join from any thread, even from the thread itself.

    The owner tells ``run`` to return, usually by an event, and then calls ``join``.

    Args:
        run: the function that the thread calls.
        name: name of the thread.
        on_crash: called in the thread with the exception that ended ``run``. It must report it: to the application, or
            at least in the log.
    """

    def __init__(self, run: Callable[[], object], name: str, on_crash: Callable[[BaseException], object]) -> None:
        self._function = run
        self._on_crash = on_crash
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    @property
    def name(self) -> str:
        """Name of the thread."""
        return self._thread.name

    @property
    def is_alive(self) -> bool:
        """Whether the thread was started and has not ended. False in a forked process."""
        return self._thread.is_alive()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs in this thread."""
        return threading.current_thread() is self._thread

    def join(self, timeout_s: float) -> bool:
        """Wait for the end of the thread.

        Args:
            timeout_s: maximum seconds to wait.

        Returns:
            whether the thread has ended or was never started. False at once in the thread itself.
        """
        if self.is_alive and not self.is_current:
            self._thread.join(timeout_s)
        return not self.is_alive

    def _run(self) -> None:
        try:
            self._function()
        except BaseException as error:
            self._on_crash(error)
