"""The batch whose jobs Spark generates.

Usually Spark requests the RDD of a batch time while it generates the jobs of the same batch. A window with a longer
slide interval requests the RDDs of several batch times while the jobs of a later batch are generated, which runs them.
Spark does not pass that batch to the functions of a stream, so an additional output stream records it.
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
    """Record each batch. Call it before other output streams are created, because Spark evaluates them in that order.

    Args:
        tick: any stream of the context.
    """
    tick.transform(record_batch).foreachRDD(ignore)


def record_batch(time: datetime, _tick: RDD[Any]) -> None:
    """Record a batch. Spark submits no job for it, because the result is not an RDD. Checkpoints contain its name."""
    global _latest_ms
    _latest_ms = round(time.timestamp() * 1000)


def ignore(_rdd: RDD[Any]) -> None:
    """Do nothing. Checkpoints contain its name."""


def find_batch(time_ms: int) -> int | None:
    """Return the batch that runs what is planned now for a batch time.

    None if batches are not recorded, because the context was recovered from a checkpoint of an earlier version.
    """
    return _latest_ms if _latest_ms >= time_ms else None
