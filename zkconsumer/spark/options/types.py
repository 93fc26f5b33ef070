"""Types of options that properties do not have: topics, regular expressions, offsets, times and columns."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from zkconsumer.config.types import Json
from zkconsumer.errors import ConfigurationError
from zkconsumer.message import TopicPartition
from zkconsumer.rebalance.topic_filter import TopicFilter, Whitelist
from zkconsumer.zookeeper.registry import OFFSET_MAX, check_topic_name

#: Where reading starts or ends in a partition, unless it is an offset.
MODES = ("group", "earliest", "latest")

#: Columns of Spark's own Kafka source, with their types.
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
_TIME = "milliseconds since 1970, not in the future"


@dataclass(frozen=True, slots=True)
class TopicNames:
    """Names of topics, separated by commas. The value is a tuple."""

    name: ClassVar[str] = "list"
    valid: ClassVar[str] = "topic names"
    is_secret: ClassVar[bool] = False

    def parse(self, text: str, /) -> tuple[str, ...]:
        topics = tuple(topic.strip() for topic in text.split(",") if topic.strip())
        if not topics:
            raise ValueError("topic names separated by commas")
        for topic in topics:
            try:
                check_topic_name(topic)
            except ConfigurationError as error:
                raise ValueError("valid topic names", str(error)) from None
        return topics


@dataclass(frozen=True, slots=True)
class Expression:
    """A Java regular expression that selects topics. The value is a topic filter.

    Attributes:
        make_filter: returns the topic filter of an expression.
        valid: the form of the expressions in words.
        has_commas: whether an expression may contain a comma, which means ``|``.
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
                "other members of the group read a comma as '|'; use '|' for alternatives, and replace a repetition "
                "such as a{2,3} by aa|aaa",
            )
        try:
            topic_filter = self.make_filter(text)
        except ConfigurationError as error:
            raise ValueError("a supported regular expression", str(error)) from error
        if not topic_filter.regex and not self.may_be_empty:
            raise ValueError("a non-empty regular expression")
        return topic_filter


@dataclass(frozen=True, slots=True)
class Offsets:
    """``group``, ``earliest``, ``latest``, or offsets by partition in JSON.

    The value of JSON has by topic or Java regular expression either a mode, or offsets and markers by partition.
    """

    name: ClassVar[str] = "string"
    valid: ClassVar[str] = f"``group``, ``earliest``, ``latest``, or JSON such as ``{_OFFSETS_EXAMPLE}``"
    is_secret: ClassVar[bool] = False

    def parse(self, text: str, /) -> str | dict[str, Any]:
        if text.lower() in MODES:
            return text.lower()
        try:
            return {topic: _convert_offsets(topic, wanted) for topic, wanted in json.loads(text).items()}
        except (ValueError, AttributeError, RecursionError) as error:
            raise ValueError(
                f"'group', 'earliest', 'latest' or JSON such as {_OFFSETS_EXAMPLE}, where -1 means latest and -2 "
                "earliest"
            ) from error


@dataclass(frozen=True, slots=True)
class Timestamp:
    """A past time. The value is in milliseconds since 1970."""

    name: ClassVar[str] = "integer"
    valid: ClassVar[str] = _TIME
    is_secret: ClassVar[bool] = False

    def parse(self, text: str, /) -> int:
        if not re.fullmatch(r"[0-9]{1,18}", text):  # int() accepts more
            raise ValueError("a time in milliseconds since 1970")
        if int(text) > time.time() * 1000:
            raise ValueError("a past time in milliseconds since 1970")
        return int(text)


@dataclass(frozen=True, slots=True)
class Columns:
    """Distinct names of columns, separated by commas and case-insensitive. The value is a tuple."""

    name: ClassVar[str] = "list"
    valid: ClassVar[str] = ", ".join(f"``{name}``" for name in COLUMNS)
    is_secret: ClassVar[bool] = False

    def parse(self, text: str, /) -> tuple[str, ...]:
        by_lower = {name.lower(): name for name in COLUMNS}
        wanted = [part.strip().lower() for part in text.split(",")]
        if len(set(wanted)) < len(wanted) or not by_lower.keys() >= set(wanted):
            raise ValueError(f"a comma-separated list of distinct columns ({', '.join(COLUMNS)})")
        return tuple(by_lower[name] for name in wanted)


def _convert_offsets(topic: str, wanted: Any) -> str | dict[int, int]:
    """Return a mode, or offsets and markers by partition."""
    Whitelist(topic)  # raises an error unless it is a topic or an expression
    if isinstance(wanted, str):
        if wanted.lower() not in MODES:
            raise ValueError(wanted)
        return wanted.lower()
    if not all(type(offset) is int and -2 <= offset <= OFFSET_MAX for offset in wanted.values()):
        raise ValueError(wanted)
    return {int(number): offset for number, offset in wanted.items()}


def _convert_times(content: Any) -> dict[str, int | dict[int, int]]:
    """Return a time, or times by partition, by topic or expression."""
    found: dict[str, int | dict[int, int]] = {}
    for topic, wanted in content.items():
        Whitelist(topic)  # raises an error unless it is a topic or an expression
        if isinstance(wanted, dict):
            found[topic] = {int(number): Timestamp().parse(str(timestamp)) for number, timestamp in wanted.items()}
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


PARTITIONS = Json(
    f"JSON with partitions by topic, such as {_PARTITIONS_EXAMPLE}",
    f"such as ``{_PARTITIONS_EXAMPLE}``",
    _convert_partitions,
)

TIMES = Json(
    'JSON with past times in milliseconds since 1970, such as {"a":{"0":1700000000000}}',
    f"such as ``{_TIMES_EXAMPLE}``, {_TIME}",
    _convert_times,
)
