"""Where a query begins: in the partitions that it has first, in those that come later, and after a restart.

And where a batch read ends, which is said in the same words.

Source: Flink 1.15 FlinkKafkaConsumerBase, StartupMode for the modes and what they fall back to; Spark 4.2
KafkaSourceProvider.getKafkaOffsetRangeLimit for the spellings.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from zkconsumer.broker import protocol
from zkconsumer.broker.log_offsets import LogOffsets
from zkconsumer.errors import ConfigurationError
from zkconsumer.message import TopicPartition
from zkconsumer.rebalance.topic_filter import Whitelist
from zkconsumer.spark.options.option_reader import OptionReader

Restart = Literal["furthest", "checkpoint", "group"]

#: The source of a beginning in a partition that did not exist when the query looked last.
NEW = "new partition"

_ENDS = {"earliest": protocol.EARLIEST, "latest": protocol.LATEST}
_MARKERS = {-1: protocol.LATEST, -2: protocol.EARLIEST}
_EXAMPLE = '{"a":{"0":23,"1":-1},"b":"earliest"}, where -1 is the end and -2 the beginning'


class StartPosition(NamedTuple):
    """Where to begin, and who says so.

    ``offset`` is known, or -1; then ``timestamp`` is what to ask the brokers for: one of protocol.EARLIEST and
    LATEST, milliseconds, or None for what auto.offset.reset says; ``strict`` says that such a time has to be found.
    """

    source: str
    offset: int = -1
    timestamp: int | None = None
    strict: bool = False


@dataclass(frozen=True, slots=True)
class StartingOffsets:
    """Decides for each partition.

    Attributes:
        mode: ``group``, ``earliest`` or ``latest``, for what is not named.
        named: for a partition, a topic, or topics by Java's regular expression (its text): an offset from 0 on, a mode,
            or (with ``timestamps``) milliseconds. A partition goes before its topic, a topic before an expression.
        timestamps: whether ``named`` and ``timestamp`` are times.
        timestamp: for what is not named.
        strict: a time that no record is at or after fails; else it is the end of the log.
        restart: who wins in partitions that the checkpoint and the group know.
    """

    mode: str
    named: Mapping[str, Any]
    timestamps: bool = False
    timestamp: int | None = None
    strict: bool = False
    restart: Restart = "furthest"

    @classmethod
    def parse(cls, take: OptionReader, *, prefix: str = "starting", default: str = "group") -> StartingOffsets:
        """Read the options that say it; of several the same goes first as in Spark.

        Args:
            prefix: of the options' names, ``starting`` or ``ending``.

        Raises:
            ConfigurationError: one of them cannot be read.
        """
        offsets = take(f"{prefix}Offsets")
        by_time, at = take(f"{prefix}OffsetsByTimestamp"), take(f"{prefix}Timestamp")
        strategy = (take(f"{prefix}OffsetsByTimestampStrategy") or "latest").lower()
        if strategy not in ("latest", "error"):
            raise ConfigurationError(
                f"option {prefix}OffsetsByTimestampStrategy = {strategy!r}: 'latest' or 'error' is expected"
            )
        restart = (take("restart.from") or "furthest").lower()
        if restart not in ("furthest", "checkpoint", "group"):
            raise ConfigurationError(
                f"option restart.from = {restart!r}: 'furthest', 'checkpoint' or 'group' is expected"
            )
        common: dict[str, Any] = {"strict": strategy == "error", "restart": restart}
        if at is not None:
            time_of_all = _milliseconds(f"{prefix}Timestamp", at)
            return cls(default, named={}, timestamps=True, timestamp=time_of_all, **common)
        if by_time is not None:
            named = _read_times(f"{prefix}OffsetsByTimestamp", by_time)
            return cls(default, named=named, timestamps=True, **common)
        text = (offsets or default).strip()
        if text.lower() in ("group", *_ENDS):
            return cls(text.lower(), named={}, **common)
        return cls(default, named=_read_offsets(f"{prefix}Offsets", text), **common)

    def begin(
        self, partition: TopicPartition, group: int, *, reached: int | None, fresh: bool, new: bool
    ) -> StartPosition:
        """Return where to begin in a partition that was just gained.

        Args:
            group: the group's offset, -1 for none.
            reached: where this query has come to by its checkpoint, None where that does not know the partition.
            fresh: the query has no checkpoint, and the partition is among its first.
            new: it did not exist when the query looked last.
        """
        if reached is not None:
            if self.restart == "checkpoint" or (self.restart == "furthest" and reached >= group):
                return StartPosition("checkpoint", reached)
            return StartPosition("group", group) if group >= 0 else StartPosition("checkpoint", reached)
        if fresh:
            return self._first(partition, group)
        return self._later(group, new)

    def _later(self, group: int, new: bool) -> StartPosition:
        if group >= 0:
            return StartPosition("group", group)
        if new:
            return StartPosition(NEW, timestamp=protocol.EARLIEST)
        return StartPosition("auto.offset.reset")

    def _first(self, partition: TopicPartition, group: int) -> StartPosition:
        wanted = self._named(partition)
        if self.timestamps and (wanted is not None or self.timestamp is not None):
            at = self.timestamp if wanted is None else int(wanted)
            assert at is not None
            return StartPosition("timestamp", timestamp=at, strict=self.strict)
        mode = self.mode if wanted is None else wanted
        if mode in _ENDS:
            return StartPosition(str(mode), timestamp=_ENDS[mode])
        if isinstance(mode, int):
            if mode in _MARKERS:
                return StartPosition("marker", timestamp=_MARKERS[mode])
            return StartPosition("offset", mode)
        return self._later(group, new=False)

    def _named(self, partition: TopicPartition) -> Any:
        for_topic = self.named.get(partition.topic)
        if for_topic is None:
            matching = (value for key, value in self.named.items() if _matches(key, partition.topic))
            for_topic = next(matching, None)
        return for_topic.get(partition.partition) if isinstance(for_topic, dict) else for_topic


def _matches(expression: str, topic: str) -> bool:
    return Whitelist(expression).is_topic_allowed(topic, exclude_internal_topics=False)


def resolve(begins: Mapping[TopicPartition, StartPosition], logs: LogOffsets, reset: int) -> dict[TopicPartition, int]:
    """Return the offset that each means.

    Args:
        reset: what ``auto.offset.reset`` says, protocol.EARLIEST or LATEST.

    Raises:
        ConfigurationError: a time that has to be found is behind the last record.
        RetriableError: a leader is missing or does not answer.
    """
    by_time: dict[int, list[TopicPartition]] = {}
    for partition, begin in begins.items():
        if begin.offset < 0:
            by_time.setdefault(reset if begin.timestamp is None else begin.timestamp, []).append(partition)
    offsets = {partition: begin.offset for partition, begin in begins.items() if begin.offset >= 0}
    for at, partitions in by_time.items():
        offsets.update(logs.offsets(partitions, at))
    late = [partition for partition in sorted(begins) if offsets[partition] < 0]
    for partition in late:
        if begins[partition].strict:
            raise ConfigurationError(
                f"topic {partition.topic!r} partition {partition.partition} has no record at or after the time "
                f"{begins[partition].timestamp}; with ...OffsetsByTimestampStrategy=latest its end is taken"
            )
    if late:
        offsets.update(logs.offsets(late, protocol.LATEST))
    return offsets


def _read_offsets(name: str, text: str) -> dict[str, Any]:
    """Return what a JSON of offsets says: by topic or expression, a mode, or by partition an offset or a marker."""
    found: dict[str, Any] = {}
    try:
        for topic, wanted in json.loads(text).items():
            _matches(topic, topic)
            if isinstance(wanted, str):
                if wanted.lower() not in ("group", *_ENDS):
                    raise ValueError(wanted)
                found[topic] = wanted.lower()
                continue
            found[topic] = {int(number): offset for number, offset in wanted.items()}
            if not all(type(offset) is int and offset >= -2 for offset in found[topic].values()):
                raise ValueError(wanted)
    except (ValueError, AttributeError, ConfigurationError) as error:
        raise ConfigurationError(
            f"option {name} = {text!r}: 'group', 'earliest', 'latest' or offsets are expected, such as {_EXAMPLE}"
        ) from error
    return found


def _read_times(name: str, text: str) -> dict[str, Any]:
    try:
        content = json.loads(text)
        found: dict[str, Any] = {}
        for topic, wanted in content.items():
            _matches(topic, topic)
            found[topic] = (
                {int(number): _milliseconds(name, str(at)) for number, at in wanted.items()}
                if isinstance(wanted, dict)
                else _milliseconds(name, str(wanted))
            )
    except (ValueError, AttributeError) as error:
        raise ConfigurationError(
            f'option {name} = {text!r}: times in milliseconds are expected, such as {{"a":{{"0":1700000000000}}}}'
        ) from error
    return found


def _milliseconds(name: str, text: str) -> int:
    if not re.fullmatch(r"\s*[0-9]{1,18}\s*", text):
        raise ConfigurationError(f"option {name} = {text!r}: a time in milliseconds since 1970 is expected")
    if int(text) > time.time() * 1000:
        raise ConfigurationError(
            f"option {name} = {text!r}: that is in the future; milliseconds since 1970 are expected"
        )
    return int(text)
