"""Records that processors receive and forward."""

from __future__ import annotations

from typing import Any, NamedTuple

from zkconsumer.topology.loop.headers import Header, copy_headers
from zkconsumer.topology.loop.native import Record


class RecordMetadata(NamedTuple):
    """Topic, partition and offset of the current record; (None, -1, -1) during punctuation."""

    topic: str | None
    partition: int
    offset: int


#: Metadata of records that a punctuator forwards.
PUNCTUATION_METADATA = RecordMetadata(None, -1, -1)


class SourceRecord(NamedTuple):
    """A serialized record of a source topic.

    Attributes:
        topic: topic name.
        partition: partition number.
        offset: offset in the partition.
        timestamp: timestamp in milliseconds since the epoch; -1 if the record has no timestamp.
        key: serialized key, or None.
        value: serialized value, or None.
        headers: header names and values.
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
        """Topic, partition and offset of the record."""
        return RecordMetadata(self.topic, self.partition, self.offset)

    @property
    def place(self) -> str:
        """Topic, partition and offset of the record, as text for error messages."""
        return f"topic {self.topic}, partition {self.partition}, offset {self.offset}"


class Change(NamedTuple):
    """A change to the value of a key in a cached store. Flush listeners receive it as the value of a record.

    Attributes:
        new: new value; None if the key was deleted.
        old: previous value; None if the key was not in the store, or if the listener did not request old values.
    """

    new: Any
    old: Any


class SinkRecord(NamedTuple):
    """A serialized record that a sink sends.

    Attributes:
        topic: topic name.
        partition: partition number that the sink's partitioner selected; None if the producer selects it.
        timestamp: timestamp in milliseconds since the epoch.
        key: serialized key, or None.
        value: serialized value, or None.
        headers: header names and values.
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
