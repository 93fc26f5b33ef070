"""What a task of a scenario receives in each batch, and the rows of the operator for it."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
from helpers.operator_input import Row, give, range_row

from zkconsumer.message import TopicPartition
from zkconsumer.topology import SourceRecord

Json = Any

#: Markers of values that are dropped, or whose timestamp is not that of the record.
_SPECIAL = (b"!bad", b"!neg", b"!prev")


class Step(NamedTuple):
    """What a task receives in a batch.

    Attributes:
        records: records, of each topic in the order of their offsets.
        tick_ms: time of the tick, in milliseconds; None if there is none.
        chunk_size: maximum number of records in a fetched chunk.
        lags: number of records after the batch, by topic.
        ends: end of the range of the batch, by topic; 0, or the offset after the last record, where it is missing.
    """

    records: list[SourceRecord]
    tick_ms: int | None = None
    chunk_size: int = 1
    lags: Mapping[str, int] = {}
    ends: Mapping[str, int] = {}

    @property
    def is_empty(self) -> bool:
        """Whether the task receives nothing."""
        return not self.records and self.tick_ms is None and not self.ends

    def by_topic(self) -> dict[str, list[SourceRecord]]:
        """Return the records by topic."""
        topics = sorted({record.topic for record in self.records})
        return {topic: [record for record in self.records if record.topic == topic] for topic in topics}

    def chunks(self) -> Iterator[list[SourceRecord]]:
        """Return the fetched chunks, by topic."""
        for of_topic in self.by_topic().values():
            for first in range(0, len(of_topic), self.chunk_size):
                yield of_topic[first : first + self.chunk_size]


# ---- cuts --------------------------------------------------------------------------------------------------


def merge_events(events: Iterable[Json]) -> list[Json]:
    """Return events in the order in which a task processes them that has all those between two ticks."""
    merged: list[Json] = []
    waiting: dict[str, list[Json]] = {}
    for event in [*events, None]:
        if event is not None and "advance" not in event:
            waiting.setdefault(event["topic"], []).append(event)
            continue
        while waiting:
            topic = min(waiting, key=lambda name: waiting[name][0]["ts"])
            merged.append(waiting[topic].pop(0))
            if not waiting[topic]:
                del waiting[topic]
        if event is not None:
            merged.append(event)
    return merged


def cut_in_order(items: Iterable[SourceRecord | int], rng: random.Random, cuts: float, has_clock: bool) -> list[Step]:
    """Return steps in which a task processes records and ticks in the given order.

    Args:
        items: records, and times of ticks.
        rng: selects the cuts.
        cuts: probability of a cut where none is needed.
        has_clock: whether a tick can call schedules, which must happen before records after it are processed.
    """
    steps = [Step([])]
    for item in items:
        last = steps[-1]
        if isinstance(item, int):
            steps.append(Step([], item))
        elif not last.is_empty and (rng.random() < cuts or not _is_next(last, item, has_clock)):
            steps.append(Step([item]))
        else:
            last.records.append(item)
    return cut_chunks(steps, rng)


def _is_next(step: Step, record: SourceRecord, has_clock: bool) -> bool:
    """Return whether a task processes a record after all those of a step. Equal timestamps have no defined order."""
    if step.tick_ms is not None and has_clock:
        return False
    numbers = [number for number, other in enumerate(step.records) if other.topic == record.topic]
    later = step.records[numbers[-1] + 1 if numbers else 0 :]
    if len(numbers) == len(step.records):
        return True
    is_special = any(marker in (one.value or b"") for one in [*step.records, record] for marker in _SPECIAL)
    return not is_special and all(other.timestamp < record.timestamp for other in later)


def cut_anywhere(records: Iterable[SourceRecord], ticks: Iterable[int], rng: random.Random, batches: int) -> list[Step]:
    """Return steps with the records of each topic, and the ticks, cut at independent points.

    Args:
        records: records of one partition number.
        ticks: times of ticks.
        rng: selects the cuts.
        batches: maximum number of steps.
    """
    steps = [Step([]) for _ in range(batches)]
    by_topic: dict[str, list[SourceRecord]] = {}
    for record in records:
        by_topic.setdefault(record.topic, []).append(record)
    for of_topic in by_topic.values():
        for number, record in zip(_choose_batches(len(of_topic), rng, batches), of_topic, strict=True):
            steps[number].records.append(record)
    times = list(ticks)
    for number, time in zip(_choose_batches(len(times), rng, batches), times, strict=True):
        steps[number] = steps[number]._replace(tick_ms=time)
    return cut_chunks([step._replace(lags=_choose_lags(by_topic, step, rng)) for step in steps], rng)


def _choose_lags(topics: Iterable[str], step: Step, rng: random.Random) -> dict[str, int]:
    """Return the lags of the topics of which the batch has a range: all with records, and some without."""
    with_records = step.by_topic()
    return {topic: rng.choice((0, 0, 3)) for topic in topics if topic in with_records or rng.random() < 0.7}


def cut_chunks(steps: Iterable[Step], rng: random.Random) -> list[Step]:
    """Return the steps that are not empty, with random sizes of fetched chunks."""
    return [step._replace(chunk_size=rng.choice((1, 2, 5, 1_000))) for step in steps if not step.is_empty]


def _choose_batches(count: int, rng: random.Random, batches: int) -> list[int]:
    return sorted(rng.randrange(batches) for _ in range(count))


# ---- rows --------------------------------------------------------------------------------------------------


def create_rows(key: int, partition: int, step: Step) -> list[tuple[Any, ...]]:
    """Return the rows of the operator for a step: one for each topic with a lag, and one for the tick.

    Args:
        key: key of the task.
        partition: partition number of the task.
        step: what it receives.
    """
    rows: list[tuple[Any, ...]] = []
    if step.tick_ms is not None:
        rows.append(Row(key, None, None, step.tick_ms))
    chunks: dict[str, list[pa.RecordBatch]] = {}
    for chunk in step.chunks():
        chunks.setdefault(chunk[0].topic, []).append(_fetch(chunk))
    assert chunks.keys() <= step.lags.keys()
    for topic, lag in step.lags.items():
        given = give(*chunks[topic]) if topic in chunks else None
        rows.append(range_row(key, TopicPartition(topic, partition), given, lag=lag))
    return rows


def _fetch(records: list[SourceRecord]) -> pa.RecordBatch:
    """Return a fetched chunk, as a decoder receives it."""
    header = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = [[{"key": name, "value": value} for name, value in one.headers] or None for one in records]
    return pa.record_batch(
        {
            "key": pa.array([one.key for one in records], pa.binary()),
            "value": pa.array([one.value for one in records], pa.binary()),
            "topic": pa.array([one.topic for one in records]),
            "partition": pa.array([one.partition for one in records], pa.int32()),
            "offset": pa.array([one.offset for one in records], pa.int64()),
            "timestamp": pa.array([one.timestamp * 1_000 for one in records], pa.timestamp("us", "UTC")),
            "timestampType": pa.array([0] * len(records), pa.int32()),
            "headers": pa.array(headers, header),
        }
    )
