"""Timestamp extractors.

Source: Kafka 3.9 TimestampExtractor and its implementations.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from zkconsumer.topology.loop.records import SourceRecord

#: Function that returns a record's timestamp in milliseconds, given the record, its key, its value, and the highest
#: timestamp of its partition so far (-1 before the first record). Records with a negative timestamp are dropped.
TimestampExtractor = Callable[[SourceRecord, Any, Any, int], int]


def fail_on_invalid(record: SourceRecord, _key: Any, _value: Any, _partition_time_ms: int) -> int:
    """Return the timestamp of the record (default extractor).

    Raises:
        ValueError: the record has no timestamp, which ends the task.
    """
    if record.timestamp < 0:
        raise ValueError("the record has no timestamp; set another timestamp_extractor for the source")
    return record.timestamp


def require_timestamp(record: SourceRecord, _key: Any, _value: Any, _partition_time_ms: int) -> int:
    """Return the timestamp of a record for a global store, which supports no other extractor.

    Raises:
        ValueError: the record has no timestamp, which ends the task.
    """
    if record.timestamp < 0:
        raise ValueError("the record has no timestamp; records of a global store must have timestamps")
    return record.timestamp


def skip_on_invalid(record: SourceRecord, _key: Any, _value: Any, _partition_time_ms: int) -> int:
    """Return the timestamp of the record; records without a timestamp are dropped."""
    return record.timestamp


def partition_time_on_invalid(record: SourceRecord, _key: Any, _value: Any, partition_time_ms: int) -> int:
    """Return the timestamp of the record. If it has none, return the highest timestamp of its partition so far.

    Raises:
        ValueError: neither the record nor an earlier record of its partition has a timestamp.
    """
    if record.timestamp >= 0:
        return record.timestamp
    if partition_time_ms < 0:
        raise ValueError("neither the record nor an earlier record of its partition has a timestamp")
    return partition_time_ms


def wall_clock(_record: SourceRecord, _key: Any, _value: Any, _partition_time_ms: int) -> int:
    """Return the system time. A task with this extractor reads its own clock instead of calling the function.

    The clock of a ``TopologyTestDriver`` advances only in ``advance_wall_clock_time``.
    """
    return time.time_ns() // 1_000_000
