"""Tests of event-time alignment: the horizon of partitions with and without records."""

from __future__ import annotations

from zkconsumer.message import TopicPartition
from zkconsumer.spark.driver.alignment import EventTimes, Horizon

P = [TopicPartition("t", number) for number in range(4)]


class Clock:
    """A clock that the test advances."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_horizon_is_earliest_record_plus_lag() -> None:
    times = EventTimes(100, 10, Clock())
    assert times.horizon({P[0]: 3, P[1]: 12, P[2]: 102}) == Horizon(103, P[0])
    assert times.horizon({P[0]: 30, P[1]: 12, P[2]: 1005}) == Horizon(112, P[1])


def test_partition_without_time_holds_back_until_idle() -> None:
    clock = Clock()
    times = EventTimes(100, 10, clock)
    assert times.horizon({P[0]: 3, P[1]: None}) is None
    clock.now += 10
    assert times.horizon({P[0]: 3, P[1]: None}) is None, "idle only after more than 10 s"
    clock.now += 0.1
    assert times.horizon({P[0]: 3, P[1]: None}) == Horizon(103, P[0])
    assert times.idle == {P[1]}


def test_exhausted_partition_holds_at_last_time() -> None:
    clock = Clock()
    times = EventTimes(100, 10, clock)
    assert times.horizon({P[0]: 500, P[1]: 50}) == Horizon(150, P[1])
    assert times.horizon({P[0]: 500, P[1]: None}) == Horizon(150, P[1])
    clock.now += 11
    assert times.horizon({P[0]: 500, P[1]: None}) == Horizon(600, P[0])


def test_idle_partition_becomes_active_with_new_record() -> None:
    clock = Clock()
    times = EventTimes(100, 10, clock)
    times.horizon({P[0]: 500, P[1]: None})
    clock.now += 11
    assert times.horizon({P[0]: 500, P[1]: None}) == Horizon(600, P[0])
    assert times.horizon({P[0]: 700, P[1]: 400}) == Horizon(500, P[1])
    assert times.idle == set()
    assert times.horizon({P[0]: 700, P[1]: None}) == Horizon(500, P[1]), "the idle timeout starts again"


def test_no_horizon_if_all_are_idle() -> None:
    times = EventTimes(100, 10, Clock())
    assert times.horizon({P[0]: None, P[1]: None}, closed=True) is None
    assert times.horizon({}) is None


def test_bounded_query_ignores_empty_partitions() -> None:
    assert EventTimes(100, 10, Clock()).horizon({P[0]: 3, P[1]: None}, closed=True) == Horizon(103, P[0])


def test_partition_idle_before_restart_holds_back_nothing() -> None:
    times = EventTimes(100, 10.0, lambda: 0.0, [P[1]])
    assert times.horizon({P[0]: 3, P[1]: None}) == Horizon(103, P[0])
    assert times.idle == {P[1]}
    assert times.horizon({P[0]: 3, P[1]: 1}) == Horizon(101, P[1])
    assert times.horizon({P[0]: 3, P[1]: None}) == Horizon(101, P[1]), "idle only after more than 10 s"
