"""Event-time alignment: no partition of a query runs further ahead in event time than ``maxAlignmentLag``.

Spark has one watermark for all, which follows the partition that is furthest; what a slower one still has is late then,
and dropped. So here the faster ones wait for it: a batch takes of each partition what is no later than the horizon, the
earliest time of a next record among the partitions that are active, and the lag on top. With ``withWatermark`` of at
least the lag and the disorder inside a partition no row is dropped because another partition ran ahead.

A partition that has nothing to read for longer than ``idleTimeout`` is idle: nobody waits for it until it has a record.

Source: Flink 1.15 WatermarkOutputMultiplexer, WatermarksWithIdleness for minimum and idleness.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from zkconsumer.broker.log_offsets import LogOffsets
from zkconsumer.log import get_logger
from zkconsumer.message import MessageAndMetadata, TopicPartition
from zkconsumer.spark.driver.sampling import sample

#: Bytes of a partition that are looked at where its broker cannot tell where a time begins.
_SCAN = 1 << 20


class Horizon(NamedTuple):
    """Up to which event time batches may go, in milliseconds, and whose next record decides it."""

    time: int
    holder: TopicPartition


class EventTimes:
    """Event times of partitions, and which of them are idle; decides, and asks nobody.

    Args:
        lag: milliseconds.
        idle_after: seconds without anything to read.
        clock: seconds.
    """

    def __init__(self, lag: int, idle_after: float, clock: Callable[[], float]) -> None:
        self._lag, self._idle_after, self._clock = lag, idle_after, clock
        self._reached: dict[TopicPartition, int] = {}  # the time of the last record that was next
        self._empty_since: dict[TopicPartition, float] = {}
        self.idle: set[TopicPartition] = set()

    def horizon(self, heads: Mapping[TopicPartition, int | None], *, closed: bool = False) -> Horizon | None:
        """Return how far batches may go; None while an active partition has not told any time yet, or all are idle.

        Args:
            heads: the time of the next record of each partition, None where it has none.
            closed: nothing more comes, so that an empty partition is idle at once.
        """
        now = self._clock()
        self._reached = {partition: time for partition, time in self._reached.items() if partition in heads}
        self._empty_since = {partition: since for partition, since in self._empty_since.items() if partition in heads}
        self.idle = set()
        for partition, time in heads.items():
            if time is not None:
                self._empty_since.pop(partition, None)
                self._reached[partition] = time
                continue
            since = self._empty_since.setdefault(partition, now)
            if closed or now - since > self._idle_after:
                self.idle.add(partition)
        active = heads.keys() - self.idle
        if not active or active - self._reached.keys():
            return None
        holder = min(active, key=lambda partition: (self._reached[partition], partition))
        return Horizon(self._reached[holder] + self._lag, holder)


class Alignment:
    """Bounds what the next batch takes of each partition; used by the thread that plans.

    Args:
        logs: where times and records are asked for.
        event_time: of a record in milliseconds, by a user's decoder; None for the records' own timestamps, which the
            brokers can look up.
    """

    def __init__(
        self,
        times: EventTimes,
        logs: LogOffsets,
        event_time: Callable[[MessageAndMetadata], int | None] | None,
    ) -> None:
        self._times = times
        self._logs = logs
        self._event_time = event_time
        self._heads: dict[TopicPartition, tuple[int, int]] = {}  # position and time of the record there
        self._found: dict[TopicPartition, tuple[int, int]] = {}  # horizon, and the first offset behind it
        self._held_by: TopicPartition | None = None
        self._is_off = self._has_failed = False
        self._log = get_logger("zkconsumer.spark")

    def state(self) -> dict[str, Any]:
        """Return what progress reports tell: who holds the others back, and whom nobody waits for."""
        return {
            "eventTimeAlignment": "off" if self._is_off else "on",
            "eventTimeHeldBackBy": str(self._held_by) if self._held_by is not None else None,
            "idlePartitions": sorted(str(partition) for partition in self._times.idle),
        }

    def bound(
        self, positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], *, closed: bool
    ) -> Mapping[TopicPartition, int]:
        """Return up to which offset each partition may be read; its end where nothing holds it back.

        Args:
            closed: nothing is read behind the ends.

        Raises:
            RetriableError: a leader is missing or does not answer.
        """
        for known in (self._heads, self._found):
            for partition in known.keys() - positions.keys():
                del known[partition]
        waiting = {p: position for p, position in positions.items() if position < ends.get(p, position)}
        if self._is_off or not (heads := self._next(waiting)).keys() >= waiting.keys():
            return ends
        horizon = self._times.horizon({p: heads.get(p) for p in positions}, closed=closed)
        if horizon is None:
            return dict(positions)
        held = {partition: position for partition, position in waiting.items() if heads[partition] > horizon.time}
        bounds = {**ends, **held}
        self._cut(bounds, {p: position for p, position in waiting.items() if bounds[p] > position}, horizon)
        self._tell(horizon, any(bounds[p] < ends[p] for p in waiting))
        return bounds

    def _next(self, waiting: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the times of the next records; fewer where alignment is given up, since one has none."""
        new = {p: position for p, position in waiting.items() if self._heads.get(p, (-1, 0))[0] != position}
        for partition, sampled in sample(self._logs, new).items():
            # Records without a time flow with those after them.
            time = next((time for record in sampled.records if (time := self._time(record)) is not None), None)
            if time is None:
                self._is_off = True
                self._log.warning(
                    "alignment_off",
                    topic=partition.topic,
                    partition=partition.partition,
                    offset=sampled.start,
                    reason="records have no time; before Kafka 0.10 none have: give a decoder with event_time",
                )
                return {}
            self._heads[partition] = (waiting[partition], time)
        # What cannot be looked at, such as a damaged record, is left to the tasks.
        behind = min((time for _, time in self._heads.values()), default=0)
        return {p: self._heads[p][1] if self._heads.get(p, (-1, 0))[0] == at else behind for p, at in waiting.items()}

    def _time(self, record: MessageAndMetadata) -> int | None:
        if self._event_time is not None:
            try:
                return self._event_time(record)
            except Exception as error:  # the task that decodes the record does what is to be done
                if not self._has_failed:
                    self._has_failed = True
                    topic, partition, offset = record[:3]
                    place = {"topic": topic, "partition": partition, "offset": offset}
                    self._log.warning("event_time_failed", error=repr(error), **place)
                return None
        return record.timestamp if record.timestamp_type >= 0 else None

    def _cut(self, bounds: dict[TopicPartition, int], readable: Mapping[TopicPartition, int], horizon: Horizon) -> None:
        """Lower the bounds to the first record behind the horizon."""
        scanned = dict(readable)
        if self._event_time is None:
            # Where no record was that late, one may have come since.
            wanted = [
                p for p in readable if (found := self._found.get(p)) is None or found[0] != horizon.time or found[1] < 0
            ]
            for partition, offset in self._logs.offsets(wanted, horizon.time + 1).items():
                self._found[partition] = (horizon.time, offset)
            # Of a log in disorder the first such record may be one that was read before.
            behind = {p: self._found[p][1] for p in readable}
            scanned = {p: position for p, position in readable.items() if 0 <= behind[p] <= position}
            for partition, offset in behind.items():
                if offset > readable[partition]:
                    bounds[partition] = min(bounds[partition], offset)
        for partition, sampled in sample(self._logs, scanned, _SCAN).items():
            late = (record.offset for record in sampled.records if (self._time(record) or 0) > horizon.time)
            bounds[partition] = min(bounds[partition], next(late, sampled.until))

    def _tell(self, horizon: Horizon, holds: bool) -> None:
        holder = horizon.holder if holds else None
        if holder is not None and holder != self._held_by:
            self._log.info(
                "event_time_held_back",
                topic=holder.topic,
                partition=holder.partition,
                horizon_ms=horizon.time,
                idle=sorted(str(partition) for partition in self._times.idle),
            )
        self._held_by = holder
