"""The reader for Spark 4.0 and 4.1, which request a batch without a start offset and without a read limit.

See docs/decisions/38-first-batch-without-trigger.rst.

Spark calls ``latestOffset()`` only after the batch that ends at the last offset has finished. When a query restarts,
Spark first calls ``partitions(end, end)`` with the last offset in its offset log, whose batch may or may not have
finished. If it has not, ``partitions(start, end)`` follows, otherwise ``latestOffset()``.

The trigger is unknown. ``Trigger.AvailableNow`` and ``Trigger.Once`` run only one batch, so the first batch of each run
of a query reads all unread records, unless the user set a limit.

Source: Spark 4.1 PythonMicroBatchStream, MicroBatchExecution.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import InputPartition

from zkconsumer.log import get_logger
from zkconsumer.spark.compat import PLANNING_PROCESS, is_process_of
from zkconsumer.spark.offset import INITIAL
from zkconsumer.spark.query_context import QueryContext
from zkconsumer.spark.readers.stream_reader import StreamReader


class LatestOffsetReader(StreamReader):
    """Plans a batch after the offset that it planned or that Spark passed last.

    In the planning process, the constructor joins the group: Spark creates the readers of all sources of a query before
    it requests an offset; see ``EarlyJoin``.
    """

    def __init__(self, context: QueryContext) -> None:
        super().__init__(context)
        self._end: dict[str, Any] = INITIAL
        self._is_first = True
        if is_process_of(PLANNING_PROCESS):  # Spark also creates a reader when it plans tasks
            self._joined_process()

    def latestOffset(self) -> dict[str, Any]:
        """Record that the last batch has finished, and plan the next one or end the query."""
        if self._end.get("ended"):
            self.stop()
            return self._end
        from zkconsumer.spark.planning.batch_planner import TriggerKind

        process = self._joined_process()
        if self._is_first:
            self._end = process.plan(self._end, process.limits.only_batch_max_offsets, TriggerKind.UNKNOWN)
            self._is_first = False
            if unread := (process.latest() or {})["lag"]:
                get_logger("zkconsumer.spark").info("first_batch_limited", unread_count=unread)
        else:
            self._end = process.plan(self._end, process.limits.max_offsets, TriggerKind.REPEATED)
        if self._end is not INITIAL:
            process.report_batch(self._end)
        return self._end

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the tasks of a batch; none if Spark passes the last offset of the log twice."""
        self._end = end
        if end.get("ended") or start == end:
            return []
        return [*self._joined_process().tasks(end)]
