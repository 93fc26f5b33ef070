"""OwnedThread: a thread that is started, stopped and joined by its owner."""

from __future__ import annotations

import threading
from collections.abc import Callable

#: Maximum seconds that a method called by the application blocks before it wakes up to run signal handlers. They run in
#: the main thread, but the operating system may deliver a signal to another thread without waking the main thread.
WAKE_INTERVAL_S = 0.5


class OwnedThread:
    """A daemon thread that its owner can join from any thread, even from the thread itself.

    The owner makes ``run`` return, usually by setting an event, and then calls ``join``.

    Args:
        run: function that the thread executes.
        name: thread name.
        on_crash: function that is called in the thread with an exception raised by ``run``. It must report the
            exception to the application, or at least log it.
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
        """Thread name."""
        return self._thread.name

    @property
    def is_alive(self) -> bool:
        """Whether the thread was started and has not terminated; False in a forked process."""
        return self._thread.is_alive()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs in this thread."""
        return threading.current_thread() is self._thread

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread to terminate.

        Args:
            timeout_s: maximum seconds to wait.

        Returns:
            Whether the thread has terminated or was never started. A call in the thread itself does not wait, and
            returns False.
        """
        if self.is_alive and not self.is_current:
            self._thread.join(timeout_s)
        return not self.is_alive

    def _run(self) -> None:
        try:
            self._function()
        except BaseException as error:
            self._on_crash(error)
