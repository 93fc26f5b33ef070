"""Records that processors receive and forward."""

from __future__ import annotations

from typing import Any, NamedTuple

from zkconsumer.topology.headers import Header, copy_headers
from zkconsumer.topology.loop import Record


class RecordMetadata(NamedTuple):
    """Where the current record was read. In a punctuation the topic is None, and partition and offset are -1."""

    topic: str | None
    partition: int
    offset: int


#: Metadata of records that a punctuation forwards.
PUNCTUATION_METADATA = RecordMetadata(None, -1, -1)


class SourceRecord(NamedTuple):
    """A record of a topic, before it is deserialized.

    Attributes:
        topic: topic name.
        partition: partition number.
        offset: offset in the partition.
        timestamp: milliseconds since the epoch; -1 if the record has none.
        key: serialized key, or None.
        value: serialized value, or None.
        headers: names and values.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()

    @property
    def metadata(self) -> RecordMetadata:
        """Where the record was read."""
        return RecordMetadata(self.topic, self.partition, self.offset)

    @property
    def place(self) -> str:
        """Topic, partition and offset, for errors."""
        return f"topic {self.topic}, partition {self.partition}, offset {self.offset}"


class Change(NamedTuple):
    """A change of a key in a cached store; the value of the record that a flush listener receives.

    Attributes:
        new: the new value; None if the key was deleted.
        old: the value in the store before; None if there was none, or if the listener does not request old values.
    """

    new: Any
    old: Any


class SinkRecord(NamedTuple):
    """A serialized record that a sink sends.

    Attributes:
        topic: topic name.
        partition: partition number that the sink's partitioner selected; None for the producer's choice.
        timestamp: milliseconds since the epoch.
        key: serialized key, or None.
        value: serialized value, or None.
        headers: names and values.
    """

    topic: str
    partition: int | None
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


__all__ = [
    "PUNCTUATION_METADATA",
    "Change",
    "Header",
    "Record",
    "RecordMetadata",
    "SinkRecord",
    "SourceRecord",
    "copy_headers",
]
