"""The reader for Spark 4.2 and later, which passes a read limit with each request for a batch.

Source: Spark 4.3 pyspark.sql.streaming.datasource, python_streaming_source_runner.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from zkconsumer.spark.readers.stream_reader import StreamReader


class AdmissionControlReader(StreamReader, SupportsTriggerAvailableNow):
    """Plans a batch after the offset that Spark passes, within Spark's read limit."""

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the value of ``maxOffsetsPerTrigger``.

        Spark calls this method for all sources of a query before it requests an offset, so the source joins the group;
        see ``EarlyJoin``.
        """
        return ReadMaxRows(self._joined_process().limits.max_offsets)

    def prepareForTriggerAvailableNow(self) -> None:
        """Stop the query at the log end offsets that the next call to ``latestOffset`` finds."""
        self._joined_process().prepare_for_available_now()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Record that the batch that ends at ``start`` has finished, and plan the next one or end the query."""
        if start.get("ended"):
            self.stop()
            return start
        from zkconsumer.spark.planning.batch_planner import TriggerKind

        if isinstance(limit, ReadMaxRows):
            return self._joined_process().plan(start, limit.max_rows, TriggerKind.REPEATED)
        return self._joined_process().plan(start, None, TriggerKind.ONCE)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the end offsets, the lag and the member's state for progress events; None before the first batch."""
        return self._process.latest() if self._process is not None else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the tasks of a batch."""
        del start
        return [] if end.get("ended") else [*self._joined_process().tasks(end)]
