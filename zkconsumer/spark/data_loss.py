"""Errors for records that were deleted before the query read them (option ``failOnDataLoss``).

Source: Spark 4.2 KafkaExceptions. The error conditions have Spark's names; the messages contain more detail.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from zkconsumer.errors import OffsetOutOfRangeError
from zkconsumer.log import Logger
from zkconsumer.message import TopicPartition


class DataLossError(OffsetOutOfRangeError):
    """Raised when records to be read have been deleted. The message starts with Spark's error condition.

    Attributes:
        text: the message without the condition and the remedy, for log events.
        lost: number of lost offsets by partition; partitions for which it is unknown are omitted.
    """

    def __init__(self, condition: str, text: str, lost: Mapping[TopicPartition, int]) -> None:
        super().__init__(
            f"[KAFKA_DATA_LOSS.{condition}] {text} To skip the missing records, set the option failOnDataLoss=false."
        )
        self.text = text
        self.lost = {partition: count for partition, count in lost.items() if count > 0}


def raise_or_log(loss: DataLossError, fails: bool, log: Logger) -> None:
    """Raise the error if ``fails`` (option ``failOnDataLoss``); otherwise, log a warning."""
    if fails:
        raise loss
    lost = {str(partition): count for partition, count in sorted(loss.lost.items())}
    log.warning("records_lost", records_by_partition=lost, records=sum(lost.values()), reason=loss.text)


def start_offset_deleted(partition: TopicPartition, position: int, log_start: int, remedy: str) -> DataLossError:
    """Return the error for a position before the log start offset."""
    return DataLossError(
        "START_OFFSET_RESET",
        f"{_place(partition)}: the next offset to read is {position}, but the log start offset is {log_start}; "
        f"{log_start - position} offsets are lost. {remedy}".rstrip(),
        {partition: log_start - position},
    )


def end_offset_decreased(partition: TopicPartition, position: int, log_end: int) -> DataLossError:
    """Return the error for a position after the log end offset."""
    return DataLossError(
        "PARTITION_OFFSET_CHANGED",
        f"{_place(partition)}: the next offset to read is {position}, but the log end offset is {log_end}. The topic "
        "may have been deleted and re-created, or the starting offset was set beyond the end of the log.",
        {},
    )


def topics_deleted(topics: Set[str], lost: Mapping[TopicPartition, int]) -> DataLossError:
    """Return the error for topics that were deleted.

    Args:
        lost: known number of unread offsets of the deleted topics, by partition.
    """
    names = [repr(topic) for topic in sorted(topics)]
    subject = f"topic {names[0]} was" if len(names) == 1 else f"topics {', '.join(names)} were"
    return DataLossError(
        "PARTITIONS_DELETED",
        f"{subject} deleted; unread records are lost. If the deletion was intended, remove the topic from the "
        "subscription.",
        lost,
    )


def topic_recreated(topic: str, before: str, now: str, lost: Mapping[TopicPartition, int]) -> DataLossError:
    """Return the error for a topic that was deleted and re-created.

    Args:
        before: id of the deleted topic.
        now: id of the new topic.
        lost: known number of unread offsets of the deleted topic, by partition.
    """
    return DataLossError(
        "PARTITIONS_DELETED",
        f"topic {topic!r} was deleted and re-created (topic id {before} before, {now} now); unread records of the "
        "deleted topic are lost, and the new topic is read from its log start offset.",
        lost,
    )


def new_partition_truncated(partition: TopicPartition, log_start: int) -> DataLossError:
    """Return the error for a new partition whose first records were deleted before the query found it."""
    return DataLossError(
        "ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO",
        f"{_place(partition)} is new, but its log start offset is already {log_start}; the records before it were not "
        "read.",
        {partition: log_start},
    )


def range_deleted(partition: TopicPartition, start: int, until: int, log_start: int, log_end: int) -> DataLossError:
    """Return the error for a planned range that is not completely in the log.

    Args:
        start: next offset to read.
        until: end of the range, exclusive.
    """
    return DataLossError(
        "COULD_NOT_READ_OFFSET_RANGE",
        f"{_place(partition)}: the range [{start}, {until}) is not completely in the log; the log start offset is "
        f"{log_start} and the log end offset is {log_end}.",
        {partition: until - start - max(0, min(until, log_end) - max(start, log_start))},
    )


def _place(partition: TopicPartition) -> str:
    return f"topic {partition.topic!r} partition {partition.partition}"
