"""Limits on the number of log events."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import pytest
from helpers import batches
from helpers.batches import Record
from helpers.clocks import Clock
from unit.test_streams_output import output_of, settings

from zkconsumer import event_limits
from zkconsumer.event_limits import EventLimiter, log_unlogged
from zkconsumer.fetcher.arrow import ArrowReader
from zkconsumer.fetcher.chunk import Chunk
from zkconsumer.message import TopicPartition
from zkconsumer.spark.streams.delivery import OutputDelivery
from zkconsumer.topology.dropped_records import DroppedRecords


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(time, "monotonic", found)
    return found


@pytest.mark.parametrize("max_events", [1, 3])
def test_each_occurrence_is_in_one_event(clock: Clock, max_events: int) -> None:
    limiter, logged = EventLimiter(), list[int]()
    for amount in range(1, 11):
        limiter.add("cause", logged.append, amount, max_events=max_events)
        clock.now += 59.9 / 10
    clock.now += 0.2
    limiter.add("cause", logged.append, 100, max_events=max_events)

    first = list(range(1, max_events + 1))
    assert logged == [*first, sum(range(1, 11)) - sum(first) + 100]


@pytest.mark.parametrize("is_deferred", [False, True])
def test_last_occurrences_are_logged_after_a_batch(clock: Clock, is_deferred: bool) -> None:
    limiter, logged = EventLimiter(), list[int]()
    for _ in range(5):  # batches
        for _ in range(1_000):
            limiter.add("cause", logged.append, is_deferred=is_deferred)
        limiter.log_unlogged()
    first = 1_000 if is_deferred else 1
    assert logged == [first]

    clock.now += 59.9
    limiter.log_unlogged()
    assert logged == [first]
    clock.now += 0.1
    for _ in range(2):
        limiter.log_unlogged()
    assert logged == [first, 5_000 - first]

    limiter.add("cause", logged.append)
    limiter.log_unlogged()
    assert len(logged) == 2  # the last event started a new interval


def test_first_unlogged_occurrence_is_logged(clock: Clock) -> None:
    limiter, logged = EventLimiter(), list[str]()
    for name in "abc":
        limiter.add("cause", lambda count, name=name: logged.append(f"{name}{count}"))  # type: ignore[misc]
    clock.now += 60
    limiter.log_unlogged()

    assert logged == ["a1", "b2"]


def test_causes_are_limited_separately(clock: Clock) -> None:
    limiter, logged = EventLimiter(), list[int]()
    for cause in ("a", ("a", 1), "a", ("a", 1), ("a", 2)):
        limiter.add(cause, logged.append)
    assert logged == [1, 1, 1]
    clock.now += 60
    for cause in ("a", ("a", 2)):
        limiter.add(cause, logged.append)
    assert logged == [1, 1, 1, 2, 1]


def test_oldest_causes_are_forgotten(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_limits, "_MAX_CAUSES", 3)
    limiter = EventLimiter()
    for cause in range(100):
        limiter.add(cause, int)
        limiter.add(cause, int)

    assert list(limiter._causes) == list(limiter._unlogged) == [97, 98, 99]


def drop() -> None:
    DroppedRecords("0_0", {}, "app").add(None, reason="null_key", node="n")
    log_unlogged()


def read_clamped() -> None:
    data = batches.batch([Record(0, value=b"v", timestamp=(1 << 63) - 1)], base_offset=0)
    list(ArrowReader().read(Chunk(TopicPartition("t", 0), 0, 1, data)))


def write_timestamp_zero() -> None:
    list(OutputDelivery(settings(), output_of([{"timestamp": 0}]), "query").read_all(lambda *_: None))


@pytest.mark.parametrize("log_one", [drop, read_clamped, write_timestamp_zero])
def test_events_of_new_objects_are_limited(
    log_one: Callable[[], None], clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark creates readers, tasks and writers again for each batch."""
    caplog.set_level(logging.WARNING, "zkconsumer")
    for _ in range(3):
        log_one()
    clock.now += 60
    log_one()

    assert [one.getMessage().partition(" records=")[2][:1] for one in caplog.records] == ["1", "3"]
