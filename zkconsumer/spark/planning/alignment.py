"""Event-time alignment: no partition of a query is read further ahead in event time than ``maxAlignmentLag``.

Spark has one watermark for all partitions, which follows the partition that is furthest ahead. The unread records of a
slower partition are then late, and are dropped. With alignment the faster partitions wait: a batch reads each partition
up to the alignment limit, which is the earliest time of the next records of all active partitions, plus the lag. If the
delay of ``withWatermark`` is at least the lag plus the disorder inside a partition, no row is dropped because another
partition is ahead.

A partition that has had no records to read for longer than ``idleTimeout`` is idle. It does not hold back the others
until it has a record again.

Source: Flink 1.15 WatermarkOutputMultiplexer, WatermarksWithIdleness for the minimum and for idleness.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from zkconsumer.broker.log_offsets import LogOffsets
from zkconsumer.log import get_logger
from zkconsumer.message import MessageAndMetadata, TopicPartition
from zkconsumer.spark.executor.decoders import RecordDecoder, open_decoder
from zkconsumer.spark.options.source_options import SourceOptions
from zkconsumer.spark.planning.sampling import SAMPLE_BYTES, sample

#: Maximum number of partitions that are sampled at once, and for one batch unless it would be empty.
_SAMPLED = 64

#: Maximum bytes to fetch, from a partition and in total, if brokers cannot look up the first offset after the limit.
#: At least ``SAMPLE_BYTES`` are fetched from each partition.
_SCAN_BYTES = 1 << 20
_SCAN_TOTAL_BYTES = 64 << 20

#: Function that returns the event time of a record in milliseconds since 1970, or None if the record has none.
EventTime = Callable[[MessageAndMetadata], int | None]


class AlignmentLimit(NamedTuple):
    """Latest event time that the next batch may read.

    Attributes:
        max_event_time_ms: milliseconds since 1970, inclusive.
        slowest_partition: partition whose next record determines the limit.
    """

    max_event_time_ms: int
    slowest_partition: TopicPartition


class EventTimes:
    """Event times of the next records of partitions, and which partitions are idle. Does no I/O.

    Args:
        lag_ms: ``maxAlignmentLag``.
        idle_after_s: seconds without a record after which a partition is idle.
        clock: returns the time in seconds.
        idle: partitions that are idle until they have a record, because they were idle before a restart.

    Attributes:
        idle: the idle partitions at the last call of ``find_limit``.
    """

    def __init__(
        self, lag_ms: int, idle_after_s: float, clock: Callable[[], float], idle: Iterable[TopicPartition] = ()
    ) -> None:
        self._lag_ms, self._idle_after_s, self._clock = lag_ms, idle_after_s, clock
        #: Time of the next record of each partition, or of its last record if it has no next one.
        self._times: dict[TopicPartition, int] = {}
        self._empty_since: dict[TopicPartition, float] = dict.fromkeys(idle, -math.inf)
        self.idle: set[TopicPartition] = set()

    def find_limit(self, heads: Mapping[TopicPartition, int | None], *, closed: bool = False) -> AlignmentLimit | None:
        """Return the limit; None if all partitions are idle, or an active one has had no record yet.

        Args:
            heads: time of the next record of each partition, None if it has none.
            closed: the query reads no later records, so an empty partition is idle at once.
        """
        now = self._clock()
        self._times = {partition: head for partition, head in self._times.items() if partition in heads}
        self._empty_since = {partition: since for partition, since in self._empty_since.items() if partition in heads}
        self.idle = set()
        for partition, head in heads.items():
            if head is not None:
                self._empty_since.pop(partition, None)
                self._times[partition] = head
                continue
            since = self._empty_since.setdefault(partition, now)
            if closed or now - since > self._idle_after_s:
                self.idle.add(partition)
        active = heads.keys() - self.idle
        if not active or active - self._times.keys():
            return None
        slowest = min(active, key=lambda partition: (self._times[partition], partition))
        return AlignmentLimit(self._times[slowest] + self._lag_ms, slowest)


class Alignment:
    """Limits what the next batch reads of each partition. Used by Spark's thread.

    Args:
        logs: looks up offsets by time, and samples records.
        event_time: function of the user's decoder; None to use record timestamps, which brokers can look up.
    """

    def __init__(self, times: EventTimes, logs: LogOffsets, event_time: EventTime | None) -> None:
        self._times = times
        self._logs = logs
        self._event_time = event_time
        #: Position of the last sampled record of each partition, and its time. Until the next sample this is a lower
        #: limit of the times of the records that follow.
        self._heads: dict[TopicPartition, tuple[int, int]] = {}
        #: Positions at which no record could be sampled, for example because it is corrupt.
        self._unreadable: dict[TopicPartition, int] = {}
        #: A maximum event time, and the first offset after it in each partition; -1 if there was none.
        self._offsets_after: dict[TopicPartition, tuple[int, int]] = {}
        self._held_by: TopicPartition | None = None
        self._is_disabled = self._has_failed = False
        self._log = get_logger("zkconsumer.spark")

    @classmethod
    def from_options(cls, options: SourceOptions, logs: LogOffsets, idle: Iterable[TopicPartition]) -> Alignment | None:
        """Return the alignment of a query, None if ``maxAlignmentLag`` is not set.

        Args:
            idle: partitions that were idle before a restart.
        """
        if options.alignment is None:
            return None
        event_time = None
        if options.decoder is not None:
            decoder = open_decoder(*options.decoder)
            if isinstance(decoder, RecordDecoder) and type(decoder).event_time is not RecordDecoder.event_time:
                event_time = decoder.event_time
        return cls(EventTimes(*options.alignment, time.monotonic, idle), logs, event_time)

    @property
    def idle(self) -> frozenset[TopicPartition]:
        """The partitions that were idle when the last batch was planned."""
        return frozenset(self._times.idle)

    def state(self) -> dict[str, Any]:
        """Return the entries for progress reports: which partition holds back the others, and which ones are idle."""
        return {
            "eventTimeAlignment": "off" if self._is_disabled else "on",
            "eventTimeHeldBackBy": str(self._held_by) if self._held_by is not None else None,
            "idlePartitions": sorted(str(partition) for partition in self._times.idle),
        }

    def limit_ends(
        self, positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], *, closed: bool
    ) -> Mapping[TopicPartition, int]:
        """Return the offset before which each partition may be read; its end offset if it is not held back.

        Args:
            closed: the query reads no records after ``ends``.

        Raises:
            RetriableError: a leader is missing or does not answer.
        """
        for partition in self._heads.keys() - positions.keys():
            del self._heads[partition]
        for partition in self._offsets_after.keys() - positions.keys():
            del self._offsets_after[partition]
        self._unreadable = {p: at for p, at in self._unreadable.items() if positions.get(p) == at}
        unread = {p: position for p, position in positions.items() if position < ends.get(p, position)}
        if self._is_disabled:
            return ends
        self._raise_heads(unread)
        stale = self._stale(unread)
        unknown = [partition for partition in stale if partition not in self._heads]
        known = [partition for partition in stale if partition in self._heads]
        self._sample_heads(unread, unknown + known[: max(0, _SAMPLED - len(unknown))])
        if self._is_disabled:
            return ends
        limit, bounds = self._bounds(positions, ends, unread, closed=closed)
        if unread and limit is not None and not any(bounds[p] > position for p, position in unread.items()):
            self._sample_lowest(unread)
            if self._is_disabled:
                return ends
            limit, bounds = self._bounds(positions, ends, unread, closed=closed)
        if limit is not None:
            self._record_slowest(limit, any(bounds[p] < ends[p] for p in unread))
        return bounds

    def _bounds(
        self,
        positions: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        unread: Mapping[TopicPartition, int],
        *,
        closed: bool,
    ) -> tuple[AlignmentLimit | None, dict[TopicPartition, int]]:
        """Return the limit, and the bound of each partition; the position without a limit."""
        # A partition that cannot be sampled is not held back. If a record is corrupt, the task reports it.
        earliest = min((head for _, head in self._heads.values()), default=0)
        heads = {p: self._heads[p][1] if p in self._heads else earliest for p in unread}
        limit = self._times.find_limit({p: heads.get(p) for p in positions}, closed=closed)
        if limit is None:
            return None, dict(positions)
        held = {
            partition: position for partition, position in unread.items() if heads[partition] > limit.max_event_time_ms
        }
        bounds = {**ends, **held}
        readable = {p: position for p, position in unread.items() if bounds[p] > position}
        bounds.update(self._find_bounds_after(bounds, readable, limit))
        return limit, bounds

    # ---- times of the next records ----

    def _raise_heads(self, unread: Mapping[TopicPartition, int]) -> None:
        """Raise the times of partitions that have been read up to a limit: their next records are after it."""
        for partition, position in unread.items():
            time, offset = self._offsets_after.get(partition, (0, -1))
            if offset == position and partition in self._heads:
                sampled_at, head = self._heads[partition]
                self._heads[partition] = (sampled_at, max(head, time + 1))

    def _stale(self, unread: Mapping[TopicPartition, int]) -> list[TopicPartition]:
        """Return the partitions whose next record was not sampled, in the order of the times of earlier records."""
        stale = (p for p, position in unread.items() if self._heads.get(p, (-1, 0))[0] != position)
        return sorted(stale, key=lambda partition: (self._heads.get(partition, (-1, 0))[1], partition))

    def _sample_heads(self, unread: Mapping[TopicPartition, int], partitions: list[TopicPartition]) -> None:
        """Sample the next records of partitions. If records have no time, disable alignment."""
        for first in range(0, len(partitions), _SAMPLED):
            positions = {p: unread[p] for p in partitions[first : first + _SAMPLED]}
            samples = sample(self._logs, positions)
            self._unreadable.update({p: position for p, position in positions.items() if p not in samples})
            for partition, sampled in samples.items():
                # The first record that has a time counts; records without a time before it are read with it.
                head = next((found for record in sampled.records if (found := self._time(record)) is not None), None)
                if head is None:
                    self._disable(partition, sampled.start)
                    return
                self._heads[partition] = (unread[partition], head)

    def _sample_lowest(self, unread: Mapping[TopicPartition, int]) -> None:
        """Sample partitions until the earliest time is the time of a next record, so that a batch can read it."""
        tried: set[TopicPartition] = set()
        while not self._is_disabled:
            stale = [partition for partition in self._stale(unread) if partition not in tried]
            lowest = min(self._heads.values(), key=lambda head: head[1], default=None)
            if not stale or (lowest is not None and self._heads.get(stale[0], (-1, -math.inf))[1] > lowest[1]):
                return
            tried.update(stale[:_SAMPLED])
            self._sample_heads(unread, stale[:_SAMPLED])

    def _disable(self, partition: TopicPartition, offset: int) -> None:
        self._is_disabled = True
        self._log.warning(
            "alignment_disabled",
            topic=partition.topic,
            partition=partition.partition,
            offset=offset,
            remedy="the records have no timestamp (written before Kafka 0.10); set a decoder that has event_time()",
        )

    def _time(self, record: MessageAndMetadata) -> int | None:
        if self._event_time is not None:
            try:
                return self._event_time(record)
            except Exception as error:  # the task that decodes the record applies corrupt.record.policy
                if not self._has_failed:
                    self._has_failed = True
                    topic, partition, offset = record[:3]
                    self._log.warning(
                        "event_time_failed", error=repr(error), topic=topic, partition=partition, offset=offset
                    )
                return None
        return record.timestamp if record.timestamp_type >= 0 else None

    def _find_bounds_after(
        self, bounds: Mapping[TopicPartition, int], readable: Mapping[TopicPartition, int], limit: AlignmentLimit
    ) -> dict[TopicPartition, int]:
        """Return lower bounds for partitions that have a record after the limit before their present bound."""
        found: dict[TopicPartition, int] = {}
        scanned = dict(readable)
        if self._event_time is None:
            after = self._look_up(readable, limit)
            found = {p: min(bounds[p], offset) for p, offset in after.items() if offset >= readable[p]}
            for partition in self._unreadable.keys() & found.keys():
                if found[partition] == readable[partition]:
                    del found[partition]
            # In a log that is not ordered by time the first record after the limit may have been read already.
            scanned = {p: position for p, position in readable.items() if 0 <= after[p] < position}
        size = max(SAMPLE_BYTES, min(_SCAN_BYTES, _SCAN_TOTAL_BYTES // max(1, len(scanned))))
        for partition, sampled in sample(self._logs, scanned, size).items():
            times = ((record.offset, self._time(record)) for record in sampled.records)
            late = (offset for offset, time in times if time is not None and time > limit.max_event_time_ms)
            offset = next(late, -1)
            found[partition] = min(bounds[partition], sampled.until if offset < 0 else offset)
            if self._event_time is not None:
                self._offsets_after[partition] = (limit.max_event_time_ms, offset)
        return found

    def _look_up(self, partitions: Mapping[TopicPartition, int], limit: AlignmentLimit) -> dict[TopicPartition, int]:
        """Return the first offset after the limit in each partition, -1 if there is none."""
        # A result of -1 is looked up again, because a record after the limit may have been written since.
        wanted = [
            partition
            for partition in partitions
            if (known := self._offsets_after.get(partition)) is None
            or known[0] != limit.max_event_time_ms
            or known[1] < 0
        ]
        for partition, offset in self._logs.offsets(wanted, limit.max_event_time_ms + 1).items():
            self._offsets_after[partition] = (limit.max_event_time_ms, offset)
        return {partition: self._offsets_after[partition][1] for partition in partitions}

    def _record_slowest(self, limit: AlignmentLimit, is_holding: bool) -> None:
        slowest = limit.slowest_partition if is_holding else None
        if slowest is not None and slowest != self._held_by:
            self._log.info(
                "event_time_held_back",
                topic=slowest.topic,
                partition=slowest.partition,
                horizon_ms=limit.max_event_time_ms,
                idle=sorted(str(partition) for partition in self._times.idle),
            )
        self._held_by = slowest
