"""Records that are gone before they were read: what ``failOnDataLoss`` decides, and how it is told.

Source: Spark 4.2 KafkaExceptions; the names of the conditions are Spark's, what they tell is more.
"""

from __future__ import annotations

from zkconsumer.errors import OffsetOutOfRangeError
from zkconsumer.message import TopicPartition


class DataLossError(OffsetOutOfRangeError):
    """Some records are not there any more; the text begins with Spark's name of the condition."""

    def __init__(self, condition: str, text: str) -> None:
        super().__init__(
            f"[KAFKA_DATA_LOSS.{condition}] {text} To go on without them, set the option failOnDataLoss=false."
        )


def start_is_gone(partition: TopicPartition, wanted: int, first: int, remedy: str) -> DataLossError:
    """The log begins behind the offset to read next."""
    return DataLossError(
        "START_OFFSET_RESET",
        f"topic {partition.topic!r} partition {partition.partition}: the offset to read next is {wanted}, but its log "
        f"begins at {first}; the {first - wanted} offsets between are lost. {remedy}",
    )


def end_went_back(partition: TopicPartition, wanted: int, end: int) -> DataLossError:
    """The log ends before the offset to read next."""
    return DataLossError(
        "PARTITION_OFFSET_CHANGED",
        f"topic {partition.topic!r} partition {partition.partition}: the offset to read next is {wanted}, but its log "
        f"ends at {end}; was the topic deleted and created anew, or a start beyond its end asked for?",
    )


def range_is_gone(partition: TopicPartition, start: int, until: int, first: int, end: int) -> DataLossError:
    """A planned range is not in the log (any more) when it is read."""
    return DataLossError(
        "COULD_NOT_READ_OFFSET_RANGE",
        f"topic {partition.topic!r} partition {partition.partition}: offset {start} of the range to {until} is not in "
        f"the log, which holds offsets from {first} to {end}.",
    )
