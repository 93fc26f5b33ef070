"""Records that are gone before they were read: what ``failOnDataLoss`` decides, and how it is told.

Source: Spark 4.2 KafkaExceptions; the names of the conditions are Spark's, what they tell is more.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from zkconsumer.errors import OffsetOutOfRangeError
from zkconsumer.message import TopicPartition


class DataLossError(OffsetOutOfRangeError):
    """Some records are not there any more; the text begins with Spark's name of the condition."""

    def __init__(self, condition: str, text: str) -> None:
        super().__init__(
            f"[KAFKA_DATA_LOSS.{condition}] {text} To go on without them, set the option failOnDataLoss=false."
        )


def raise_or_log(loss: DataLossError, fails: bool, log: Any) -> None:
    """Log a loss, or raise it where ``fails``, that is ``failOnDataLoss``, says so."""
    if fails:
        raise loss
    log.warning("records_lost", error=str(loss))


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


def topics_are_gone(topics: Iterable[str]) -> DataLossError:
    """Topics were deleted."""
    named = ", ".join(repr(topic) for topic in sorted(topics))
    return DataLossError(
        "PARTITIONS_DELETED",
        f"topic {named} was deleted; what was not read of it is lost. If that is meant, subscribe to it no more.",
    )


def topic_is_another(topic: str, before: str, now: str) -> DataLossError:
    """A topic was deleted and created anew."""
    return DataLossError(
        "PARTITIONS_DELETED",
        f"topic {topic!r} was deleted and created anew ({before} before, {now} now); what was not read of the first is "
        "lost, and the second would be read from its beginning.",
    )


def new_partition_has_lost(partition: TopicPartition, first: int) -> DataLossError:
    """A partition was found so late that its first records had gone."""
    return DataLossError(
        "ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO",
        f"topic {partition.topic!r} partition {partition.partition} is new to the query, and its log begins at {first} "
        "already; what was before has gone unread.",
    )


def range_is_gone(partition: TopicPartition, start: int, until: int, first: int, end: int) -> DataLossError:
    """A planned range is not in the log (any more) when it is read."""
    return DataLossError(
        "COULD_NOT_READ_OFFSET_RANGE",
        f"topic {partition.topic!r} partition {partition.partition}: offset {start} of the range to {until} is not in "
        f"the log, which holds offsets from {first} to {end}.",
    )
