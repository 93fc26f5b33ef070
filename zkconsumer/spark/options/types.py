"""Option types that consumer properties do not use: topics, regular expressions, offsets, timestamps, columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from zkconsumer.config.types import Json, split_list
from zkconsumer.errors import ConfigurationError
from zkconsumer.message import TopicPartition
from zkconsumer.topic_filter import TopicFilter
from zkconsumer.zookeeper.registry import OFFSET_MAX, check_topic_name

#: Named start and end positions of a partition.
MODES = ("group", "earliest", "latest")

#: Columns of Spark's Kafka source, with their types.
COLUMNS = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key: string, value: binary>>",
}

_PARTITIONS_EXAMPLE = '{"a":[0,1],"b":[2]}'
_OFFSETS_EXAMPLE = '{"a":{"0":23,"1":-1},"b":"earliest"}'
_TIMES_EXAMPLE = '{"a":{"0":1700000000000},"b":1700000000000}'
_TIME = "milliseconds since the epoch"


@dataclass(frozen=True, slots=True)
class TopicNames:
    """A comma-separated list of topic names, parsed into a tuple."""

    name: ClassVar[str] = "list"
    valid: ClassVar[str] = "topic names"
    is_secret: ClassVar[bool] = False

    def parse(self, text: str, /) -> tuple[str, ...]:
        topics = tuple(topic for topic in split_list(text) if topic)
        if not topics:
            raise ValueError("a comma-separated list of topic names")
        for topic in topics:
            try:
                check_topic_name(topic)
            except ConfigurationError as error:
                raise ValueError("a list of valid topic names", str(error)) from None
        return topics


@dataclass(frozen=True, slots=True)
class Expression:
    """A Java regular expression that selects topics, parsed into a topic filter.

    Attributes:
        make_filter: creates the topic filter for a regular expression.
        valid: description of valid expressions.
        has_commas: whether the expression may contain commas, which mean ``|``.
        may_be_empty: whether the expression may be empty.
    """

    make_filter: Callable[[str], TopicFilter]
    valid: str = "Java regular expression; a comma means ``|``"
    has_commas: bool = True
    may_be_empty: bool = False
    name: ClassVar[str] = "string"
    is_secret: ClassVar[bool] = False

    def parse(self, text: str, /) -> TopicFilter:
        if "," in text and not self.has_commas:
            raise ValueError(
                "a regular expression without a comma",
                "other members of the group read a comma as '|'; use '|' for alternatives, and aa|aaa instead of a "
                "repetition such as a{2,3}",
            )
        try:
            topic_filter = self.make_filter(text)
        except ConfigurationError as error:
            raise ValueError("a supported regular expression", str(error)) from error
        if not topic_filter.regex and not self.may_be_empty:
            raise ValueError("a non-empty regular expression")
        return topic_filter


@dataclass(frozen=True, slots=True)
class OffsetsOption:
    """``group``, ``earliest``, ``latest``, or offsets by partition in JSON.

    JSON is parsed into a mapping from topic to a mode, or to offsets and markers (-1 or -2) by partition.
    """

    name: ClassVar[str] = "string"
    valid: ClassVar[str] = f"``group``, ``earliest``, ``latest``, or JSON such as ``{_OFFSETS_EXAMPLE}``"
    is_secret: ClassVar[bool] = False

    def parse(self, text: str, /) -> str | dict[str, Any]:
        if text.lower() in MODES:
            return text.lower()
        offsets: dict[str, Any] = _OFFSETS.parse(text)
        return offsets


@dataclass(frozen=True, slots=True)
class Timestamp:
    """A timestamp in milliseconds since the epoch."""

    name: ClassVar[str] = "integer"
    valid: ClassVar[str] = _TIME
    is_secret: ClassVar[bool] = False

    def parse(self, text: str, /) -> int:
        if not re.fullmatch(r"[0-9]{1,18}", text):  # int() also accepts signs, whitespace and underscores
            raise ValueError("a timestamp in milliseconds since the epoch")
        return int(text)


@dataclass(frozen=True, slots=True)
class Columns:
    """A comma-separated list of distinct, case-insensitive column names, parsed into a tuple."""

    name: ClassVar[str] = "list"
    valid: ClassVar[str] = ", ".join(f"``{name}``" for name in COLUMNS)
    is_secret: ClassVar[bool] = False

    def parse(self, text: str, /) -> tuple[str, ...]:
        by_lower = {name.lower(): name for name in COLUMNS}
        wanted = [part.lower() for part in split_list(text)]
        if not wanted or len(set(wanted)) < len(wanted) or not by_lower.keys() >= set(wanted):
            raise ValueError(f"a comma-separated list of distinct columns ({', '.join(COLUMNS)})")
        return tuple(by_lower[name] for name in wanted)


def _by_topic(content: Any) -> Iterator[tuple[str, Any]]:
    """Yield the topics of a JSON object and their values.

    Raises:
        ConfigurationError: a key is not a valid topic name.
    """
    for topic, wanted in content.items():
        check_topic_name(topic)
        yield topic, wanted


def _convert_all_offsets(content: Any) -> dict[str, str | dict[int, int]]:
    """Return the mode of each topic, or its offsets and markers by partition."""
    return {topic: _convert_offsets(wanted) for topic, wanted in _by_topic(content)}


def _parse_partition(number: str) -> int:
    """Return the partition number that is a key of a JSON object."""
    if not re.fullmatch("0|[1-9][0-9]{0,9}", number):  # int() also accepts signs, whitespace and underscores
        raise ValueError(number)
    return int(number)


def _convert_offsets(wanted: Any) -> str | dict[int, int]:
    """Return the mode of a topic, or its offsets and markers by partition."""
    if isinstance(wanted, str):
        if wanted.lower() not in MODES:
            raise ValueError(wanted)
        return wanted.lower()
    if not all(type(offset) is int and -2 <= offset <= OFFSET_MAX for offset in wanted.values()):
        raise ValueError(wanted)
    return {_parse_partition(number): offset for number, offset in wanted.items()}


def _convert_times(content: Any) -> dict[str, int | dict[int, int]]:
    """Return one timestamp, or timestamps by partition, for each topic."""
    found: dict[str, int | dict[int, int]] = {}
    for topic, wanted in _by_topic(content):
        if isinstance(wanted, dict):
            found[topic] = {
                _parse_partition(number): Timestamp().parse(str(timestamp)) for number, timestamp in wanted.items()
            }
        else:
            found[topic] = Timestamp().parse(str(wanted))
    return found


def _convert_partitions(content: Any) -> tuple[TopicPartition, ...]:
    found = [TopicPartition(topic, number) for topic, numbers in content.items() for number in numbers]
    if not found or not all(type(p.partition) is int and p.partition >= 0 for p in found):
        raise ValueError(content)
    for partition in found:
        check_topic_name(partition.topic)
    return tuple(sorted(set(found)))


_OFFSETS = Json(
    f"'group', 'earliest', 'latest' or JSON such as {_OFFSETS_EXAMPLE}, where -1 means latest and -2 means earliest",
    OffsetsOption.valid,
    _convert_all_offsets,
)

PARTITIONS = Json(
    f"JSON with partitions by topic, such as {_PARTITIONS_EXAMPLE}",
    f"such as ``{_PARTITIONS_EXAMPLE}``",
    _convert_partitions,
)

TIMES = Json(
    'JSON with timestamps in milliseconds since the epoch, such as {"a":{"0":1700000000000}}',
    f"such as ``{_TIMES_EXAMPLE}``, {_TIME}",
    _convert_times,
)
