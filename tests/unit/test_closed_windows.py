"""Final results of closed windows are forwarded as in Kafka Streams, and those that are lost are counted and logged."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from zkconsumer.topology import ApplicationConfig, TopologyTestDriver, serdes
from zkconsumer.topology.dsl import Emit, Materialized, StreamsBuilder
from zkconsumer.topology.windows import SessionWindows, SlidingWindows, TimeWindows

CONFIG = ApplicationConfig(key_serde=serdes.STRING, value_serde=serdes.JSON)
TUMBLING, HOPPING = TimeWindows(size_ms=100), TimeWindows(size_ms=100, advance_ms=70)
#: Stream time advances by more than the retention period twice.
TIMES = (1, 2, 250, 260, 1_000, 1_000_000)
TUMBLED = [(0, 2), (200, 2), (1_000, 1)]
HOPPED = [(0, 2), (210, 2), (910, 1), (980, 1)]


def run(windows: Any, times: Iterable[int], step: str = "count", **settings: Any) -> tuple[list[Any], int]:
    """Return the starts and results of the forwarded windows, and the number of lost windows."""
    builder = StreamsBuilder()
    windowed = builder.stream("in").group_by_key().windowed_by(windows, emit=Emit.ON_CLOSE)
    store = Materialized("s", value_serde=serdes.JSON, **settings)
    match step:
        case "count":
            table = windowed.count(store=store)
        case "reduce":
            table = windowed.reduce(lambda one, other: one + other, store=store)
        case _:
            table = windowed.aggregate(lambda: 0, lambda _key, value, total: total + value, store=store)
    table.to_stream(lambda key, _value: str(key.start)).to("out")
    with TopologyTestDriver(builder.build(), CONFIG) as driver:
        topic = driver.create_input_topic("in")
        for time_ms in times:
            topic.pipe_input("a", 1, time_ms)
        found = [(int(start), result) for start, result in driver.create_output_topic("out").read_key_values()]
        return found, sum(count for name, count in driver.metrics.items() if name.endswith("/windows_lost"))


@pytest.mark.parametrize("step", ["count", "reduce", "aggregate"])
@pytest.mark.parametrize(("windows", "expected"), [(TUMBLING, TUMBLED), (HOPPING, HOPPED)])
def test_cached_store_loses_no_window(windows: TimeWindows, expected: list[Any], step: str) -> None:
    assert run(windows, TIMES, step) == (expected, 0)


@pytest.mark.parametrize("windows", [TUMBLING, HOPPING])
def test_windows_lost_without_cache_are_reported(windows: TimeWindows, caplog: pytest.LogCaptureFixture) -> None:
    every, _ = run(windows, TIMES)
    caplog.clear()

    found, lost = run(windows, TIMES, caching=False)

    assert set(found) < set(every)
    assert lost == len(every) - len(found)
    [event] = [one.getMessage() for one in caplog.records if "windows_lost" in one.getMessage()]
    assert "node='KSTREAM-AGGREGATE-0000000001'" in event


def test_longer_retention_prevents_loss_without_cache() -> None:
    assert run(TUMBLING, TIMES[:5], caching=False, retention_ms=100_000) == (TUMBLED[:2], 0)


@pytest.mark.parametrize(
    ("windows", "times", "expected"),
    [
        (SlidingWindows(difference_ms=100), (1_000, 1_010, 1_500, 1_900), ([(900, 1)], 3)),
        (SessionWindows(gap_ms=100), (1, 2, 1_500, 150_000), ([(1, 2)], 1)),  # the segment of the second is removed
    ],
)
def test_other_lost_windows_are_counted(windows: Any, times: tuple[int, ...], expected: tuple[Any, int]) -> None:
    assert run(windows, times) == expected


def test_late_records_lose_no_window() -> None:
    assert run(TUMBLING, (1, 150, 260, 150, 400)) == ([(0, 1), (100, 1), (200, 1)], 0)
