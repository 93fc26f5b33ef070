"""The part of a reader that does not depend on the version of Spark's interface."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from zkconsumer.log import show_level
from zkconsumer.signals import Exit, FirstSignal
from zkconsumer.spark.offset import INITIAL
from zkconsumer.spark.query_context import QueryContext

if TYPE_CHECKING:  # executors import this module; they need only the modules of ``read``
    from zkconsumer.spark.planning.process import PlanningProcess


class StreamReader(DataSourceStreamReader):
    """Forwards Spark's calls to the ``PlanningProcess``.

    The constructor does no I/O, because Spark also creates a reader in a process that does not plan batches.
    """

    def __init__(self, context: QueryContext) -> None:
        self._context = context
        self._exit: FirstSignal | None = None
        self._process: PlanningProcess | None = None

    # ---- in the planning process ----

    def initialOffset(self) -> dict[str, Any]:
        """Return a constant; a batch's start offsets are part of the batch's own offset."""
        return INITIAL

    def commit(self, end: dict[str, Any]) -> None:
        """Record that a batch has finished. Usually ``latestOffset`` has already done so."""
        if self._process is not None:
            self._process.finish(end)

    def stop(self) -> None:
        """Leave the group, so that the member's ephemeral znodes are deleted immediately."""
        if self._process is not None:
            self._process.stop()
            self._process = None
        if self._exit is not None:
            self._exit.close()  # the process is exiting
            self._exit = None

    def _joined_process(self) -> PlanningProcess:
        """Return the planning process. The first call joins the group."""
        if self._process is None:
            from zkconsumer.spark.planning.process import PlanningProcess

            show_level(logging.INFO)  # Spark copies standard error to its log
            self._exit = _exit_on_sigterm()
            self._process = PlanningProcess(self._context)
            self._process.join()
        return self._process

    # ---- in the executors ----

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield Arrow record batches."""
        from zkconsumer.spark.executor.fetch_task import FetchTask
        from zkconsumer.spark.executor.reader import read

        assert isinstance(partition, FetchTask)
        return read(partition)

    def __getstate__(self) -> dict[str, Any]:
        return {}  # executors only call ``read``, which uses no attributes


def _is_running(code: CodeType, frame: FrameType | None) -> bool:
    """Return whether ``frame`` or one of its callers executes the code of a function.

    Unlike a flag that the function sets, this is also true before the first statement of the function.
    """
    while frame is not None:
        if frame.f_code is code:
            return True
        frame = frame.f_back
    return False


def _exit_on_sigterm() -> FirstSignal:
    """Raise SystemExit on SIGTERM, which Spark sends to terminate the process, so that ``stop`` is called.

    The signal does not interrupt ``stop``, which may be running because Spark also closes the connection. Otherwise,
    the member would remain in the group until its session expires.

    Returns:
        The handler, which ``stop`` closes.
    """
    first = FirstSignal(lambda _number: Exit(0))

    def exit_once(number: int, frame: FrameType | None) -> None:
        if not _is_running(StreamReader.stop.__code__, frame):
            first(number, frame)

    signal.signal(signal.SIGTERM, exit_once)
    return first
