"""Chooses the reader for the installed Spark."""

from __future__ import annotations

from zkconsumer.spark.compat import HAS_ADMISSION_CONTROL
from zkconsumer.spark.query_context import QueryContext
from zkconsumer.spark.readers.stream_reader import StreamReader


def create_reader(context: QueryContext) -> StreamReader:
    """Return the reader of a streaming query."""
    if HAS_ADMISSION_CONTROL:
        from zkconsumer.spark.readers.admission_control import AdmissionControlReader

        return AdmissionControlReader(context)
    from zkconsumer.spark.readers.latest_offset import LatestOffsetReader

    return LatestOffsetReader(context)
