"""The topics of a ``TopologyTestDriver``.

Source: Kafka 3.9 org.apache.kafka.streams.TestInputTopic and TestOutputTopic.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from zkconsumer.argument_checks import to_integer
from zkconsumer.durations import Milliseconds, to_milliseconds
from zkconsumer.topology.errors import InvalidArgumentError
from zkconsumer.topology.loop.headers import MAX_TIMESTAMP
from zkconsumer.topology.loop.records import Header, Record, SinkRecord, copy_headers
from zkconsumer.topology.serdes import Deserializer, Serializer


@dataclass(frozen=True, slots=True)
class TestRecord:
    """A record of an output topic."""

    __test__: ClassVar[bool] = False  # not a pytest test class

    key: Any
    value: Any
    timestamp: int
    headers: tuple[Header, ...] = ()


class TestInputTopic:
    """Writes records to a topic of a ``TopologyTestDriver``."""

    __test__ = False

    def __init__(
        self,
        pipe: Callable[[SinkRecord], None],
        topic: str,
        serializers: tuple[Serializer, Serializer],
        start_ms: int,
        auto_advance_ms: Milliseconds,
    ) -> None:
        self._pipe, self._topic = pipe, topic
        self._serialize_key, self._serialize_value = serializers
        self._time_ms, self._auto_advance_ms = start_ms, check_advance("auto_advance_ms", auto_advance_ms)

    def advance_time(self, advance_ms: Milliseconds) -> None:
        """Advance the time that is used for records without a timestamp.

        Args:
            advance_ms: time to add, in milliseconds or as a ``timedelta``.

        Raises:
            ValueError: ``advance_ms`` is negative or has the wrong type.
        """
        self._time_ms += check_advance("advance_ms", advance_ms)

    def pipe_input(self, key: Any, value: Any, timestamp: int | None = None, headers: Iterable[Header] = ()) -> None:
        """Write a record, and process it.

        Args:
            key: key of the record.
            value: value of the record.
            timestamp: timestamp in milliseconds since the epoch; None uses the topic's current time, which then
                advances by ``auto_advance_ms``.
            headers: header names and values.

        Raises:
            ValueError: no source reads the topic, ``timestamp`` is not an integer, or a serializer failed.
            StreamsError: a node failed, and the error handler returned FAIL, now or in an earlier call.
        """
        if timestamp is None:
            timestamp = self._time_ms
            self._time_ms += self._auto_advance_ms
        time_ms = to_integer(timestamp)
        if time_ms is None:
            raise InvalidArgumentError(f"timestamp must be an integer in milliseconds, got {timestamp!r}")
        raw_key = _convert(self._topic, "key", "serializer", self._serialize_key, key)
        raw_value = _convert(self._topic, "value", "serializer", self._serialize_value, value)
        self._pipe(SinkRecord(self._topic, None, time_ms, raw_key, raw_value, tuple(copy_headers(headers))))

    def pipe_records(self, records: Iterable[Record | TestRecord]) -> None:
        """Write several records."""
        for record in records:
            self.pipe_input(record.key, record.value, record.timestamp, record.headers)

    def pipe_key_values(
        self, entries: Iterable[tuple[Any, Any]], start_ms: int | None = None, advance_ms: Milliseconds = 0
    ) -> None:
        """Write several records with keys and values.

        Args:
            entries: pairs of key and value.
            start_ms: timestamp of the first record; None uses the topic's current time, as in ``pipe_input``.
            advance_ms: time between two records, in milliseconds or as a ``timedelta``; it can be negative. Ignored
                if ``start_ms`` is None.

        Raises:
            ValueError: see ``pipe_input``, or ``advance_ms`` has the wrong type.
        """
        step_ms = _to_duration("advance_ms", advance_ms)
        for number, (key, value) in enumerate(entries):
            self.pipe_input(key, value, None if start_ms is None else start_ms + number * step_ms)

    def pipe_values(self, values: Iterable[Any], start_ms: int | None = None, advance_ms: Milliseconds = 0) -> None:
        """Write several records without keys; see ``pipe_key_values``."""
        self.pipe_key_values(((None, value) for value in values), start_ms, advance_ms)


class TestOutputTopic:
    """Reads records from a topic of a ``TopologyTestDriver``; each record is returned only once.

    All methods raise ``LookupError`` if no sink can write to the topic.
    """

    __test__ = False

    def __init__(
        self,
        records: deque[SinkRecord],
        topic: str,
        deserializers: tuple[Deserializer, Deserializer],
        produced: Collection[str],
        known: Collection[str] | None,
    ) -> None:
        self._records, self._topic, self._produced, self._known = records, topic, produced, known
        self._deserialize_key, self._deserialize_value = deserializers

    def __len__(self) -> int:
        """Return the number of unread records."""
        if self._known is not None and self._topic not in self._known and self._topic not in self._produced:
            topics = ", ".join(sorted(self._known)) or "none"
            raise LookupError(f"no sink writes to topic {self._topic!r} (sink topics: {topics})")
        return len(self._records)

    def read_record(self) -> TestRecord:
        """Return the next record.

        Raises:
            LookupError: there is no unread record.
            ValueError: the record cannot be deserialized.
        """
        if not len(self):
            produced = ", ".join(sorted(self._produced)) or "none"
            raise LookupError(f"topic {self._topic!r} has no more records (topics with output: {produced})")
        record = self._records.popleft()
        key = _convert(self._topic, "key", "deserializer", self._deserialize_key, record.key)
        value = _convert(self._topic, "value", "deserializer", self._deserialize_value, record.value)
        return TestRecord(key, value, record.timestamp, record.headers)

    def read_value(self) -> Any:
        """Return the value of the next record; see ``read_record``."""
        return self.read_record().value

    def read_key_value(self) -> tuple[Any, Any]:
        """Return the key and value of the next record; see ``read_record``."""
        record = self.read_record()
        return record.key, record.value

    def read_records(self) -> list[TestRecord]:
        """Return all unread records."""
        return [self.read_record() for _ in range(len(self))]

    def read_values(self) -> list[Any]:
        """Return the values of all unread records."""
        return [record.value for record in self.read_records()]

    def read_key_values(self) -> list[tuple[Any, Any]]:
        """Return the keys and values of all unread records."""
        return [(record.key, record.value) for record in self.read_records()]

    def read_map(self) -> dict[Any, Any]:
        """Return the unread records as a dict with the last value of each key.

        Raises:
            ValueError: a key is None.
        """
        result = dict(self.read_key_values())
        if None in result:
            raise ValueError(f"topic {self._topic!r} contains a record whose key is None")
        return result


def check_advance(name: str, advance_ms: Any) -> int:
    """Return a non-negative duration in milliseconds as an int, or raise InvalidArgumentError.

    Args:
        name: name of the argument.
        advance_ms: the argument.
    """
    duration_ms = _to_duration(name, advance_ms)
    if duration_ms < 0:
        raise InvalidArgumentError(f"{name} must not be negative, got {advance_ms!r}")
    if duration_ms > MAX_TIMESTAMP:
        raise InvalidArgumentError(f"{name} must be at most {MAX_TIMESTAMP}, got {advance_ms!r}")
    return duration_ms


def _to_duration(name: str, value: Any) -> int:
    duration_ms = to_milliseconds(value)
    if duration_ms is None:
        expected = "an integer in milliseconds or a timedelta of whole milliseconds"
        raise InvalidArgumentError(f"{name} must be {expected}, got {value!r}")
    return duration_ms


def _convert(topic: str, what: str, converter: str, convert: Callable[[str, Any], Any], item: Any) -> Any:
    try:
        return convert(topic, item)
    except Exception as error:
        raise ValueError(
            f"topic {topic!r}: {what} {converter} of the test topic failed for {item!r}: {error}; "
            f"pass a matching {what}_{converter} when creating the topic"
        ) from error
