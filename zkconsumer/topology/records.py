"""Records that processors receive and forward."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from zkconsumer.errors import StreamsError

#: Name and value; a name can occur several times.
Header = tuple[str, bytes | None]


def copy_headers(headers: Iterable[Header]) -> list[Header]:
    """Return a copy of headers, as tuples.

    Raises:
        StreamsError: one of them is not a pair of str and bytes or None.
    """
    result: list[Header] = []
    for header in headers:
        match header:
            case (str(name), (bytes() | None) as value):
                result.append((name, value))
            case _:
                raise StreamsError(f"a header must be a tuple of str and bytes or None, got {header!r}")
    return result


@dataclass(slots=True, init=False)
class Record:
    """A record inside a topology. Do not change its attributes: all children of a node receive the same object.

    Source: Kafka 3.9 org.apache.kafka.streams.processor.api.Record. As in Kafka Streams, a child that changes the list
    of headers in place changes it for its later siblings.

    Args:
        key: any object, or None.
        value: any object, or None.
        timestamp: milliseconds since the epoch, not negative.
        headers: names and values; they are copied.

    Raises:
        StreamsError: the timestamp is negative or not an integer, or a header is invalid.
    """

    key: Any
    value: Any
    timestamp: int
    headers: list[Header]

    def __init__(self, key: Any, value: Any, timestamp: int, headers: Iterable[Header] | None = None) -> None:
        if not isinstance(timestamp, int) or timestamp < 0:
            raise StreamsError(f"the timestamp of a record must be an integer of at least 0, got {timestamp!r}")
        self.key = key
        self.value = value
        self.timestamp = timestamp
        self.headers = copy_headers(headers) if headers else []

    def with_key(self, key: Any) -> Record:
        """Return a copy with another key."""
        return Record(key, self.value, self.timestamp, self.headers)

    def with_value(self, value: Any) -> Record:
        """Return a copy with another value."""
        return Record(self.key, value, self.timestamp, self.headers)

    def with_timestamp(self, timestamp: int) -> Record:
        """Return a copy with another timestamp in milliseconds."""
        return Record(self.key, self.value, timestamp, self.headers)

    def with_headers(self, headers: Iterable[Header]) -> Record:
        """Return a copy with other headers."""
        return Record(self.key, self.value, self.timestamp, headers)


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
