"""Event-time alignment: limits how far a partition may be ahead of the others in event time (``maxAlignmentLag``).

Spark's watermark follows the partition that is furthest ahead, so unread records of slower partitions become late and
are dropped. With alignment, faster partitions wait: a batch reads each partition only up to the alignment limit. The
limit is the earliest event time among the next records of all active partitions, plus ``maxAlignmentLag``; if a
partition has no next record, the event time of its last record is used. If the ``withWatermark`` delay is at least
``maxAlignmentLag`` plus the disorder within a partition, rows are never dropped merely because another partition is
ahead.

A partition that has had no records to read for longer than ``idleTimeout`` is idle. Until it receives a record, it does
not hold back other partitions.

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

#: Maximum number of partitions to sample at once. Per batch, more are sampled only if they have never been sampled, or
#: if the batch would otherwise be empty.
_SAMPLED = 64

#: Maximum number of bytes to scan, per partition and in total, if brokers cannot look up the first offset after the
#: alignment limit. At least ``SAMPLE_BYTES`` are fetched from each partition.
_SCAN_BYTES = 1 << 20
_SCAN_TOTAL_BYTES = 64 << 20

#: Function that returns the event time of a record in milliseconds since the epoch, or None if it has no event time.
EventTime = Callable[[MessageAndMetadata], int | None]


class AlignmentLimit(NamedTuple):
    """Latest event time of the records that the next batch may read, and the partition that determines it.

    Attributes:
        max_event_time_ms: latest event time, inclusive, in milliseconds since the epoch.
        slowest_partition: partition whose event time determines the limit.
    """

    max_event_time_ms: int
    slowest_partition: TopicPartition


class EventTimes:
    """Tracks the event time of each partition's next record, and the idle partitions. Does no I/O.

    Args:
        lag_ms: ``maxAlignmentLag`` in milliseconds.
        idle_after_s: ``idleTimeout`` in seconds.
        clock: function that returns the current time in seconds.
        idle: partitions that were idle before a restart; each stays idle until it receives a record.

    Attributes:
        idle: partitions that were idle at the last ``find_limit`` call.
    """

    def __init__(
        self, lag_ms: int, idle_after_s: float, clock: Callable[[], float], idle: Iterable[TopicPartition] = ()
    ) -> None:
        self._lag_ms, self._idle_after_s, self._clock = lag_ms, idle_after_s, clock
        #: Event time of each partition's next record, or of its last record if there is no next one.
        self._times: dict[TopicPartition, int] = {}
        self._empty_since: dict[TopicPartition, float] = dict.fromkeys(idle, -math.inf)
        self.idle: set[TopicPartition] = set()

    def find_limit(self, heads: Mapping[TopicPartition, int | None], *, closed: bool = False) -> AlignmentLimit | None:
        """Return the alignment limit; None if all partitions are idle, or an active partition has never had a record.

        Args:
            heads: event time of each partition's next record; None if there is no next record.
            closed: whether no further records will be read, so that empty partitions are idle immediately.
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
    """Limits what the next batch reads from each partition. Used by Spark's thread.

    Args:
        logs: client for offset lookups by timestamp, and for record samples.
        event_time: the decoder's ``event_time`` method; None to use record timestamps, which brokers can look up.
    """

    def __init__(self, times: EventTimes, logs: LogOffsets, event_time: EventTime | None) -> None:
        self._times = times
        self._logs = logs
        self._event_time = event_time
        #: Position and event time of each partition's last sampled record. Until the next sample, this time is used as
        #: a lower bound for the records that follow.
        self._heads: dict[TopicPartition, tuple[int, int]] = {}
        #: Positions at which no record could be sampled, for example because the record is corrupt.
        self._unreadable: dict[TopicPartition, int] = {}
        #: By partition: an event-time limit, and the offset of the first later record (-1 if there was none).
        self._offsets_after: dict[TopicPartition, tuple[int, int]] = {}
        self._held_by: TopicPartition | None = None
        self._is_disabled = self._has_failed = False
        self._log = get_logger("zkconsumer.spark")

    @classmethod
    def from_options(cls, options: SourceOptions, logs: LogOffsets, idle: Iterable[TopicPartition]) -> Alignment | None:
        """Create the alignment of a query; None if ``maxAlignmentLag`` is not set.

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
        """Return the progress report entries: whether alignment is on, the slowest partition, and idle partitions."""
        return {
            "eventTimeAlignment": "off" if self._is_disabled else "on",
            "eventTimeHeldBackBy": str(self._held_by) if self._held_by is not None else None,
            "idlePartitions": sorted(str(partition) for partition in self._times.idle),
        }

    def limit_ends(
        self, positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], *, closed: bool
    ) -> Mapping[TopicPartition, int]:
        """Return the offset up to which each partition may be read: its end offset, unless it is held back.

        Args:
            closed: whether the query reads no records after ``ends``.

        Raises:
            RetriableError: a partition has no leader, or a leader did not respond.
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
        """Return the alignment limit, and the offset up to which each partition may be read.

        Without a limit, no partition may be read beyond its position.
        """
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

    # ---- event times of the next records ----

    def _raise_heads(self, unread: Mapping[TopicPartition, int]) -> None:
        """For partitions read up to an alignment limit, raise the event time of the next record above the limit."""
        for partition, position in unread.items():
            time, offset = self._offsets_after.get(partition, (0, -1))
            if offset == position and partition in self._heads:
                sampled_at, head = self._heads[partition]
                self._heads[partition] = (sampled_at, max(head, time + 1))

    def _stale(self, unread: Mapping[TopicPartition, int]) -> list[TopicPartition]:
        """Return the partitions whose next record was not sampled, sorted by their last known event time."""
        stale = (p for p, position in unread.items() if self._heads.get(p, (-1, 0))[0] != position)
        return sorted(stale, key=lambda partition: (self._heads.get(partition, (-1, 0))[1], partition))

    def _sample_heads(self, unread: Mapping[TopicPartition, int], partitions: list[TopicPartition]) -> None:
        """Sample the next records of ``partitions``. If a sample contains no event time, disable alignment."""
        for first in range(0, len(partitions), _SAMPLED):
            positions = {p: unread[p] for p in partitions[first : first + _SAMPLED]}
            samples = sample(self._logs, positions)
            self._unreadable.update({p: position for p, position in positions.items() if p not in samples})
            for partition, sampled in samples.items():
                # Use the first record with an event time; earlier records without one are read together with it.
                head = next((found for record in sampled.records if (found := self._time(record)) is not None), None)
                if head is None:
                    self._disable(partition, sampled.start)
                    return
                self._heads[partition] = (unread[partition], head)

    def _sample_lowest(self, unread: Mapping[TopicPartition, int]) -> None:
        """Sample partitions until the earliest event time belongs to a sampled record, so that a batch can read it."""
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
            remedy="set a decoder whose event_time() returns the record's event time; without event_time(), the record "
            "needs a timestamp, which the pre-0.10 format does not have",
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
        """Return new bounds, none above the current one; partitions without a new bound are omitted.

        A new bound is the offset of the first record after the limit, or the end of the scanned records.
        """
        found: dict[TopicPartition, int] = {}
        scanned = dict(readable)
        if self._event_time is None:
            after = self._look_up(readable, limit)
            found = {p: min(bounds[p], offset) for p, offset in after.items() if offset >= readable[p]}
            for partition in self._unreadable.keys() & found.keys():
                if found[partition] == readable[partition]:
                    del found[partition]
            # If a log is not ordered by timestamp, the first record after the limit may have been read already.
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
        """Return the offset of the first record after the limit in each partition, or -1 if there is none."""
        # A result of -1 is looked up again, because a record after the limit may have been written in the meantime.
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
                "partitions_held_back",
                slowest_partition=str(slowest),
                max_event_time_ms=limit.max_event_time_ms,
                idle=sorted(str(partition) for partition in self._times.idle),
            )
        self._held_by = slowest
