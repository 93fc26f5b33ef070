"""Determines start positions when a query first starts, after a restart, and for newly assigned partitions.

``StartingOffsets`` also holds the ending offsets of a batch read.

Source: Flink 1.15 FlinkKafkaConsumerBase, StartupMode for the modes and their fallbacks; Spark 4.2
KafkaSourceProvider.getKafkaOffsetRangeLimit for the syntax.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from zkconsumer.errors import ConfigurationError
from zkconsumer.log_ends import EARLIEST, LATEST
from zkconsumer.message import TopicPartition
from zkconsumer.spark.options.option_reader import OptionReader
from zkconsumer.spark.options.table import BY_NAME

_ENDS = {"earliest": EARLIEST, "latest": LATEST}
_MARKERS = {-1: LATEST, -2: EARLIEST}


class StartSource(enum.Enum):
    """What determined the start position of a partition. Log events contain the values."""

    CHECKPOINT = "checkpoint"
    GROUP = "group"
    AUTO_OFFSET_RESET = "auto.offset.reset"
    #: The partition was created after the topics were last listed, or its topic was re-created.
    NEW_PARTITION = "new partition"
    #: The records at the position were lost; reading restarts at the log start offset.
    RECORDS_LOST = "records lost"
    #: A starting option determined the position: ``earliest``, ``latest``, an offset, a marker (-1 or -2), or a
    #: timestamp.
    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    MARKER = "marker"
    TIMESTAMP = "timestamp"


class StartPosition(NamedTuple):
    """The start position of a partition, and what determined it.

    Attributes:
        source: what determined the position.
        offset: next offset to read, or -1 if it must be looked up.
        timestamp: timestamp to look up if ``offset`` is -1: ``EARLIEST``, ``LATEST``, or milliseconds
            since the epoch; None to use ``auto.offset.reset``.
        strict: whether to fail if the partition has no record at or after ``timestamp``.
    """

    source: StartSource
    offset: int = -1
    timestamp: int | None = None
    strict: bool = False


@dataclass(frozen=True, slots=True)
class StartingOffsets:
    """Determines where reading starts in each partition.

    Attributes:
        mode: ``group``, ``earliest`` or ``latest``; applies to partitions that ``named`` does not contain, unless
            ``timestamp`` is set.
        named: mapping from topic to one value, or to values by partition. With ``timestamps``, a value is a timestamp
            in milliseconds since the epoch; otherwise, it is a mode, an offset or a marker (-1 or -2).
        timestamps: whether ``named`` contains timestamps, or ``timestamp`` is set.
        timestamp: milliseconds since the epoch, for partitions that ``named`` does not contain; None if it is not set.
        strict: whether to fail if a partition has no record at or after its timestamp, instead of starting at its
            end offset.
        restart: where to resume if both checkpoint and group have an offset: ``furthest``, ``checkpoint`` or
            ``group``.
    """

    mode: str
    named: Mapping[str, Any]
    timestamps: bool = False
    timestamp: int | None = None
    strict: bool = False
    restart: str = "furthest"

    @classmethod
    def parse(
        cls,
        reader: OptionReader,
        *,
        prefix: str = "starting",
        default: str | None = None,
        rejected: str | None = None,
    ) -> StartingOffsets:
        """Parse the starting or ending offset options. If several are set, they have the same precedence as in Spark.

        Args:
            prefix: option name prefix, ``starting`` or ``ending``.
            default: mode to use if no option is set; None for the declared default.
            rejected: ``earliest`` or ``latest`` if the offsets must not have this mode, or its marker, because a batch
                read would return no records.

        Raises:
            ConfigurationError: an option value is invalid, or contains the mode ``rejected``.

        Source: Spark 4.3 KafkaSourceProvider.validateBatchOptions.
        """
        name = f"{prefix}Offsets"
        default = default or str(BY_NAME[name.lower()].default)
        offsets, timestamp = reader.get(name, default), reader[f"{prefix}Timestamp"]
        by_time = reader[f"{prefix}OffsetsByTimestamp"]
        common: dict[str, Any] = {"strict": reader[f"{prefix}OffsetsByTimestampStrategy"] == "error"}
        if prefix == "starting":
            common["restart"] = reader["resumeFrom"]
        if timestamp is not None:
            return cls(default, named={}, timestamps=True, timestamp=timestamp, **common)
        if by_time is not None:
            return cls(default, named=by_time, timestamps=True, **common)
        found = cls(offsets, named={}, **common) if isinstance(offsets, str) else cls(default, offsets, **common)
        if rejected is not None:
            found._reject(rejected, name)
        return found

    def _reject(self, mode: str, option: str) -> None:
        """Raise ``ConfigurationError`` if a topic or partition uses ``mode`` or its marker."""
        [marker] = [number for number, timestamp in _MARKERS.items() if timestamp == _ENDS[mode]]
        uses = [""] if self.mode == mode else []
        for topic, wanted in self.named.items():
            if wanted == mode:
                uses.append(f" (topic {topic!r})")
            elif isinstance(wanted, dict):
                uses += [f" (topic {topic!r} partition {p})" for p, offset in wanted.items() if offset == marker]
        if uses:
            raise ConfigurationError(
                f"option {option!r} must not be {mode!r} or {marker} for batch reads, because no records would be read"
                f"{uses[0]}"
            )

    def start_position(
        self,
        partition: TopicPartition,
        group_offset: int,
        *,
        checkpoint_offset: int | None,
        is_first_assignment: bool,
        is_new: bool,
    ) -> StartPosition:
        """Return the start position of a newly assigned partition.

        Args:
            group_offset: the group's committed offset, or -1 if there is none.
            checkpoint_offset: next offset to read according to the checkpoint; None if the checkpoint does not contain
                the partition.
            is_first_assignment: whether the query has no checkpoint and has never been assigned partitions.
            is_new: whether to read from the beginning if the group has no offset, because the partition was created
                after the topics were last listed, or its topic was re-created.
        """
        if checkpoint_offset is not None:
            is_ahead = self.restart == "furthest" and checkpoint_offset >= group_offset
            if self.restart == "checkpoint" or is_ahead or group_offset < 0:
                return StartPosition(StartSource.CHECKPOINT, checkpoint_offset)
            return StartPosition(StartSource.GROUP, group_offset)
        if is_first_assignment:
            return self._start_first(partition, group_offset, is_new)
        return self._start_from_group(group_offset, is_new)

    def _start_from_group(self, group_offset: int, is_new: bool) -> StartPosition:
        if group_offset >= 0:
            return StartPosition(StartSource.GROUP, group_offset)
        if is_new:
            return StartPosition(StartSource.NEW_PARTITION, timestamp=EARLIEST)
        return StartPosition(StartSource.AUTO_OFFSET_RESET)

    def _start_first(self, partition: TopicPartition, group_offset: int, is_new: bool) -> StartPosition:
        """Return the start position of a partition in the first assignment, according to the starting options."""
        wanted = self._find_named(partition)
        timestamp = int(wanted) if self.timestamps and wanted is not None else self.timestamp
        if timestamp is not None:
            return StartPosition(StartSource.TIMESTAMP, timestamp=timestamp, strict=self.strict)
        mode = self.mode if wanted is None else wanted
        if mode in _ENDS:
            return StartPosition(StartSource(mode), timestamp=_ENDS[mode])
        if isinstance(mode, int):
            if mode in _MARKERS:
                return StartPosition(StartSource.MARKER, timestamp=_MARKERS[mode])
            return StartPosition(StartSource.OFFSET, mode)
        return self._start_from_group(group_offset, is_new)

    def _find_named(self, partition: TopicPartition) -> Any:
        for_topic = self.named.get(partition.topic)
        return for_topic.get(partition.partition) if isinstance(for_topic, dict) else for_topic


def resolve(
    positions: Mapping[TopicPartition, StartPosition],
    find_offsets: Callable[[Iterable[TopicPartition], int], Mapping[TopicPartition, int]],
    reset: int,
) -> dict[TopicPartition, int]:
    """Return the offset of each start position, looking up timestamps at the brokers.

    Args:
        find_offsets: function that looks up the offset of each partition at a timestamp; see ``LogOffsets.offsets``.
        reset: value of ``auto.offset.reset``: ``EARLIEST`` or ``LATEST``.

    Raises:
        ConfigurationError: a partition has no record at or after its timestamp, and its start position is ``strict``.
        RetriableError: a partition has no leader, or a leader did not respond.
    """
    by_time: dict[int, list[TopicPartition]] = {}
    for partition, position in positions.items():
        if position.offset < 0:
            by_time.setdefault(reset if position.timestamp is None else position.timestamp, []).append(partition)
    offsets = {partition: position.offset for partition, position in positions.items() if position.offset >= 0}
    for timestamp, partitions in by_time.items():
        offsets.update(find_offsets(partitions, timestamp))
    late = [partition for partition in sorted(positions) if offsets[partition] < 0]
    for partition in late:
        if positions[partition].strict:
            raise ConfigurationError(
                f"topic {partition.topic!r} partition {partition.partition} has no record at or after timestamp "
                f"{positions[partition].timestamp}; to use its end offset instead, set the option "
                "startingOffsetsByTimestampStrategy (or endingOffsetsByTimestampStrategy) to 'latest'"
            )
    if late:
        offsets.update(find_offsets(late, LATEST))
    return offsets
