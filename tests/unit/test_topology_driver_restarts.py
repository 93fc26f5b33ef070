"""A driver that is restarted from its state file continues as if it had not been restarted."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from zkconsumer.errors import StreamsError
from zkconsumer.topology import (
    ApplicationConfig,
    Processor,
    ProcessorContext,
    Record,
    Topology,
    TopologyTestDriver,
    serdes,
    stores,
)
from zkconsumer.topology.dsl import StreamsBuilder

TEXT = ApplicationConfig(key_serde=serdes.STRING, value_serde=serdes.STRING)


class Copy(Processor):
    """Forwards records, and fails for a given value."""

    def __init__(self, rejected: str | None) -> None:
        self._rejected = rejected

    def init(self, context: ProcessorContext) -> None:
        """Store the context."""
        self._context = context

    def process(self, record: Record) -> None:
        """Forward the record, or fail."""
        if record.value == self._rejected:
            raise ValueError("rejected")
        self._context.forward(record)


def supply(rejected: str | None) -> Callable[[], Processor]:
    """Return a supplier; the topology's fingerprint does not depend on ``rejected``."""
    return lambda: Copy(rejected)


def chain(rejected: str | None = None) -> Topology:
    """Return three sub-topologies, each of which reads what the one before writes; the last one can fail."""
    topology = Topology()
    for number in range(3):
        topology.add_source(f"s{number}", f"t{number}")
        topology.add_processor(f"p{number}", supply(rejected if number == 2 else None), f"s{number}")
        topology.add_sink(f"k{number}", f"t{number + 1}", f"p{number}")
    return topology


@pytest.mark.parametrize("key", ["k", "", None])
@pytest.mark.parametrize("headers", [(), (("a", b"\xff"), ("b", None), ("c", b""))])
@pytest.mark.parametrize("continues", ["with a record", "with time"])
def test_records_between_subtopologies_survive_error(tmp_path: Path, key: Any, headers: Any, continues: str) -> None:
    path = tmp_path / "state"
    with TopologyTestDriver(chain("bad"), TEXT, state_file=path) as driver, pytest.raises(StreamsError):
        driver.create_input_topic("t0").pipe_input(key, "bad", 7, headers)

    with TopologyTestDriver(chain(), TEXT, state_file=path) as driver:
        if continues == "with time":
            driver.advance_wall_clock_time(0)
        else:
            driver.create_input_topic("t0").pipe_input("next", "next", 8)
        first, *more = driver.create_output_topic("t3").read_records()

    assert (first.key, first.value, first.timestamp, first.headers) == (key, "bad", 7, headers)
    assert [one.key for one in more] == (["next"] if continues == "with a record" else [])


def test_rejected_record_stays_until_it_is_processed(tmp_path: Path) -> None:
    path = tmp_path / "state"
    with TopologyTestDriver(chain("bad"), TEXT, state_file=path) as driver, pytest.raises(StreamsError):
        driver.create_input_topic("t0").pipe_input("k", "bad")
    for _ in range(2):
        with TopologyTestDriver(chain("bad"), TEXT, state_file=path) as driver, pytest.raises(StreamsError):
            driver.create_input_topic("t0").pipe_input("k", "good")
    with TopologyTestDriver(chain(), TEXT, state_file=path) as driver:
        driver.advance_wall_clock_time(0)

        assert driver.create_output_topic("t3").read_values() == ["bad"]


class FlushOnClose(Processor):
    """Puts a value into its cached store when it is closed. The cache forwards it during the last commit."""

    def init(self, context: ProcessorContext) -> None:
        """Open the store."""
        self._store = context.get_state_store("s")
        self._store.set_flush_listener(
            lambda change: context.forward(Record(change.key, change.value.new, change.timestamp))
        )

    def process(self, record: Record) -> None:
        """Put the record into the store."""
        self._store.put(record.key, record.value)

    def close(self) -> None:
        """Put another value."""
        self._store.put("closed", "by close")


def test_records_written_while_closing_are_delivered_later(tmp_path: Path) -> None:
    def build() -> Topology:
        store = stores.key_value("s", serdes.STRING, serdes.STRING, caching=True)
        topology = Topology().add_source("a", "in").add_processor("p", FlushOnClose, "a", stores=[store])
        topology.add_sink("k", "between", "p").add_source("b", "between").add_sink("l", "out", "b")
        return topology

    path = tmp_path / "state"
    with TopologyTestDriver(build(), TEXT, state_file=path):
        pass
    with TopologyTestDriver(build(), TEXT, state_file=path) as driver:
        driver.advance_wall_clock_time(0)

        assert driver.create_output_topic("out").read_key_values() == [("closed", "by close")]


@pytest.mark.parametrize("seed", range(10))
def test_restarts_and_errors_do_not_change_results(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    events = [(rng.choice("abc"), rng.choice(("x", "y", "bad")), number) for number in range(30)]
    expected = run(None, events, rng=None)

    assert run(tmp_path / "state", events, rng) == expected


def run(path: Path | None, events: list[tuple[str, str, int]], rng: random.Random | None) -> dict[str, dict[Any, Any]]:
    """Count values through two repartition topics; with ``rng``, restart at random, and fail at "bad" once."""
    failing = {"is_failing": rng is not None}

    def reject(value: str) -> str:
        if value.startswith("bad") and failing["is_failing"]:
            failing["is_failing"] = False
            raise ValueError("rejected")
        return value

    def build() -> Topology:
        builder = StreamsBuilder()
        first = builder.stream("in").group_by(lambda _key, value: value).count(store="first")
        second = first.to_stream().map_values(str).map(lambda key, value: (value, key)).repartition(name="second")
        second.map_values(reject).group_by(lambda _key, value: value).count(store="last")
        return builder.build()

    driver = TopologyTestDriver(build(), TEXT, state_file=path)
    for key, value, timestamp in events:
        if rng is not None and rng.random() < 0.3:
            driver.close()
            driver = TopologyTestDriver(build(), TEXT, state_file=path)
            failing["is_failing"] = rng.random() < 0.5
        try:
            driver.create_input_topic("in").pipe_input(key, value, timestamp)
        except StreamsError:
            driver.close()
            driver = TopologyTestDriver(build(), TEXT, state_file=path)
            driver.advance_wall_clock_time(0)
    found = {name: dict(driver.get_state_store(name).all()) for name in ("first", "last")}
    driver.close()
    return found


def test_global_stores_keep_counters_and_remembered_values(tmp_path: Path) -> None:
    class Keep(Processor):
        def init(self, context: ProcessorContext) -> None:
            self.context, self.store = context, context.get_state_store("g")
            self.seen = context.remember("seen", 0)

        def process(self, record: Record) -> None:
            self.seen.value += 1
            self.context.count("updates")
            if record.key is None:
                self.context.drop("null_key")
            else:
                self.store.put(record.key, f"{record.value}{self.seen.value}")

    def build() -> Topology:
        store = stores.key_value("g", serdes.STRING, serdes.STRING, logging=False)
        return Topology().add_global_store(store, "gs", "global", "gp", Keep).add_source("s", "in")

    path = tmp_path / "state"
    for number in range(1, 4):
        with TopologyTestDriver(build(), TEXT, state_file=path) as driver:
            topic = driver.create_input_topic("global")
            topic.pipe_input("k", "v")
            topic.pipe_input(None, "v")

            found = {name: driver.metrics[name] for name in ("processed", "dropped", "dropped/null_key", "gp/updates")}
            assert found == {"processed": 2 * number, "dropped": number, "dropped/null_key": number,
                             "gp/updates": 2 * number}  # fmt: skip
            assert driver.get_state_store("g").get("k") == f"v{2 * number - 1}"
