"""Timestamp extractors.

Source: Kafka 3.9 TimestampExtractor and its implementations.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from zkconsumer.topology.records import SourceRecord

#: Returns the timestamp of a record in milliseconds, from the record, its key and value, and the highest timestamp of
#: its partition so far, which is -1 before the first. A record with a negative timestamp is dropped.
TimestampExtractor = Callable[[SourceRecord, Any, Any, int], int]


def fail_on_invalid(record: SourceRecord, _key: Any, _value: Any, _partition_time_ms: int) -> int:
    """Return the timestamp of a record; the default.

    Raises:
        ValueError: the record has none, which ends the task.
    """
    if record.timestamp < 0:
        raise ValueError("the record has no timestamp; set timestamp_extractor of add_source")
    return record.timestamp


def require_timestamp(record: SourceRecord, _key: Any, _value: Any, _partition_time_ms: int) -> int:
    """Return the timestamp of a record of a global store, which cannot have another extractor.

    Raises:
        ValueError: the record has none, which ends the task.
    """
    if record.timestamp < 0:
        raise ValueError("the record has no timestamp; records of a global store must have timestamps")
    return record.timestamp


def skip_on_invalid(record: SourceRecord, _key: Any, _value: Any, _partition_time_ms: int) -> int:
    """Return the timestamp of a record; a record without one is dropped."""
    return record.timestamp


def partition_time_on_invalid(record: SourceRecord, _key: Any, _value: Any, partition_time_ms: int) -> int:
    """Return the timestamp of a record, or the highest one of its partition so far if the record has none.

    Raises:
        ValueError: no earlier record of the partition has a timestamp.
    """
    if record.timestamp >= 0:
        return record.timestamp
    if partition_time_ms < 0:
        raise ValueError("the record has no timestamp, and there is no earlier record in the partition")
    return partition_time_ms


def wall_clock(_record: SourceRecord, _key: Any, _value: Any, _partition_time_ms: int) -> int:
    """Return the wall-clock time of the task: in ``TopologyTestDriver`` that of the driver.

    A task calls its own clock instead of this function, which returns the time of the machine.
    """
    return time.time_ns() // 1_000_000
