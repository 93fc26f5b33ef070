"""A load that produces at a fixed interval."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from zkconsumer.devcluster import Admin


class PacedLoad:
    """A thread that produces records at a fixed interval until it is stopped. After a delay, it catches up.

    Args:
        admin: admin client, used only by the thread, which closes it when it stops.
        interval_s: interval, in seconds.
        produce: function that produces the records of one interval with the admin client.
    """

    def __init__(self, admin: Admin, interval_s: float, produce: Callable[[Admin], object]) -> None:
        self._admin, self._interval_s, self._produce = admin, interval_s, produce
        self._stopped = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="bench-load", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, and raise its error if it failed."""
        self._stopped.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            due = time.monotonic()
            while not self._stopped.wait(max(0.0, due - time.monotonic())):
                due += self._interval_s
                self._produce(self._admin)
        except BaseException as error:
            self._error = error
        finally:
            self._admin.close()
