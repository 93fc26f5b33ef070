"""A topology of the DSL whose steps store data in formats of their own, and its records; see ``README.rst``.

As in ``state_stores``, all names are public, and this module must be imported as ``dsl_stores``.
"""

from __future__ import annotations

import contextlib
import json
from typing import Any

from zkconsumer.errors import StreamsError
from zkconsumer.topology import ApplicationConfig, Topology, TopologyTestDriver, serdes
from zkconsumer.topology.dsl import Emit, KTable, Materialized, StreamsBuilder, UntilTimeLimit, UntilWindowCloses
from zkconsumer.topology.stores import Windowed
from zkconsumer.topology.windows import JoinWindows, SessionWindows, SlidingWindows, TimeWindows

CONFIG = ApplicationConfig(key_serde=serdes.STRING, value_serde=serdes.STRING)

#: Numbers of the records that the application has processed when the file is stored, and of those that follow.
STORED, CONTINUED = range(300), range(300, 400)

INPUTS = ("left", "right", "prices", "places")
OUTPUTS = ("outer", "priced", "closed", "emitted", "sessions", "sliding", "late", "groups", "both")

#: Milliseconds from one record to the next one. Each number that is divisible by 7 is late.
STEP_MS, LATE_MS = 100, 1_500

#: Value of a record that cannot be added to its group while ``failing`` is not empty.
FAILING_VALUE = "failing"

failing: list[str] = []


def build_topology() -> Topology:
    """Return a topology with aggregations, joins and suppressed changes."""
    builder = StreamsBuilder()
    left, right = builder.stream("left"), builder.stream("right")
    prices = builder.table("prices", store=Materialized("prices", history_ms=60_000))
    places = builder.table("places", store="places")
    windows = JoinWindows(before_ms=1_000, after_ms=2_000, grace_ms=500)
    left.outer_join(right, combine, windows=windows, store="joined").to("outer")
    left.join(prices, combine, grace_ms=3_000, name="priced").to("priced")
    grouped, hopping = left.group_by_key(), TimeWindows(size_ms=5_000, advance_ms=2_500, grace_ms=1_000)
    write_windows(grouped.windowed_by(hopping).count(store="counts").suppress(UntilWindowCloses()), "closed")
    on_close = grouped.windowed_by(TimeWindows(size_ms=4_000, grace_ms=500), emit=Emit.ON_CLOSE)
    write_windows(on_close.count(store="emitted"), "emitted")
    write_windows(grouped.windowed_by(SessionWindows(gap_ms=900)).count(store="sessions"), "sessions")
    write_windows(grouped.windowed_by(SlidingWindows(difference_ms=2_000)).count(store="sliding"), "sliding")
    places.suppress(UntilTimeLimit(wait_ms=4_000)).to_stream().to("late")
    regrouped = places.group_by(select_group)
    groups = regrouped.aggregate(create_group, add_to_group, remove_from_group, store="groups")
    groups.to_stream().to("groups")
    places.outer_join(prices_of(builder), combine, store="both").to_stream().to("both")
    return builder.build()


def prices_of(builder: StreamsBuilder) -> KTable:
    """Return a table of the last value of each key in the topic ``right``."""
    return builder.stream("right-values").to_table(store="right-values")


def write_windows(table: KTable, topic: str) -> None:
    """Write a windowed table to a topic, with text as keys and values."""
    table.to_stream(key=describe_window).map_values(str).to(topic)


def describe_window(window: Windowed, _value: object) -> str:
    """Return the text of a windowed key."""
    return f"{window.key} {window.start} {window.end}"


def combine(one: str | None, other: str | None) -> str:
    """Join two values."""
    return f"{one}+{other}"


def select_group(key: str, value: str) -> tuple[str, str]:
    """Return the last digit of a key, which is the group."""
    return key[-1], value


def create_group() -> str:
    """Return the value of an empty group."""
    return ""


def add_to_group(_key: str, value: str, group: str) -> str:
    """Add a value to a group."""
    if value == FAILING_VALUE and failing:
        raise ValueError(value)
    return ",".join(sorted([*filter(None, group.split(",")), value]))


def remove_from_group(_key: str, value: str, group: str) -> str:
    """Remove a value from a group."""
    left = group.split(",")
    left.remove(value)
    return ",".join(left)


def store_records(driver: TopologyTestDriver) -> None:
    """Process the records before the state file is saved.

    The last record is in the repartition topic at this time, because the next task fails.
    """
    _process(driver, STORED)
    failing.append(FAILING_VALUE)
    with contextlib.suppress(StreamsError):
        driver.create_input_topic("places").pipe_input("key-00", FAILING_VALUE, _time_of(STORED.stop))
    failing.clear()


def continue_records(driver: TopologyTestDriver) -> None:
    """Process the records after the state file is loaded."""
    _process(driver, CONTINUED)


def read_stores(driver: TopologyTestDriver) -> Any:
    """Return the contents of the stores that have names, as JSON."""
    found: Any = driver.get_all_state_stores()
    contents: dict[str, Any] = {name: list(found[name].all()) for name in ("places", "groups", "both", "right-values")}
    contents |= {name: list(found[name].all()) for name in ("counts", "emitted", "sliding")}
    contents["sessions"] = list(found["sessions"].fetch_keys())
    contents["prices"] = [found["prices"].get(f"key-{number:02}") for number in range(20)]
    return json.loads(json.dumps(contents))


def read_output(driver: TopologyTestDriver) -> Any:
    """Return key, value, timestamp and headers of the records that were not read before, by topic, as JSON."""
    topics = {topic: driver.create_output_topic(topic).read_records() for topic in OUTPUTS}
    found = {topic: [[one.key, one.value, one.timestamp, one.headers] for one in topics[topic]] for topic in topics}
    return json.loads(json.dumps(found, default=bytes.decode))


def _process(driver: TopologyTestDriver, numbers: range) -> None:
    topics = {name: driver.create_input_topic(name) for name in (*INPUTS, "right-values")}
    for number in numbers:
        key, time = f"key-{number * 7 % 20:02}", _time_of(number)
        headers = [("number", b"%d" % number)]
        topics["left"].pipe_input(key, f"l{number}", time, headers)
        if number % 3 == 0:
            topics["right"].pipe_input(key, f"r{number}", time + 50, headers)
            topics["right-values"].pipe_input(key, f"r{number}", time, headers)
        if number % 5 == 0:
            topics["prices"].pipe_input(key, None if number % 35 == 0 else f"p{number}", time - 20)
        topics["places"].pipe_input(key, None if number % 11 == 0 else f"t{number}", time)


def _time_of(number: int) -> int:
    return 10_000 + STEP_MS * number - (LATE_MS if number % 7 == 0 else 0)
