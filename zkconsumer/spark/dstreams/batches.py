"""Records the batch for which Spark is generating jobs.

Usually, Spark requests the RDD for a batch time while it generates the jobs of that batch. A window whose slide
interval is longer than the batch interval requests the RDDs for several batch times while the jobs of a later batch are
generated, and the later batch runs them. Spark does not pass the later batch to the functions of a stream, so an
additional output stream records it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pyspark.core.rdd import RDD
from pyspark.streaming import DStream

#: Time of the latest batch whose jobs were generated in this process, in milliseconds; 0 before the first one. Only
#: Spark's job generator thread uses it.
_latest_ms = 0


def record_batches(tick: DStream[Any]) -> None:
    """Record each batch. Call this before creating other output streams: Spark evaluates them in creation order.

    Args:
        tick: any stream of the context.
    """
    tick.transform(record_batch).foreachRDD(ignore)


def record_batch(time: datetime, _tick: RDD[Any]) -> None:
    """Record a batch. Returns None instead of an RDD, so that Spark submits no job for this stream.

    Checkpoints contain the name of this function.
    """
    global _latest_ms
    _latest_ms = round(time.timestamp() * 1000)


def ignore(_rdd: RDD[Any]) -> None:
    """Do nothing. Checkpoints contain the name of this function."""


def find_batch(time_ms: int) -> int:
    """Return the time of the batch that will run the plan for ``time_ms``, if this plan is created now."""
    return max(_latest_ms, time_ms)
