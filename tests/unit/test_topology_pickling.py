"""Topologies and settings that are sent to other processes."""

from __future__ import annotations

import importlib
import pickle
import random
import secrets
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from oracle import declarations, generator, programs, topology_generator
from pyspark import cloudpickle

from zkconsumer.topology import ApplicationConfig, Topology, TopologyTestDriver, handlers, serdes, stores, timestamps
from zkconsumer.topology.serdes import Serde
from zkconsumer.topology.stores import StoreBuilder

ROOT = Path(__file__).parents[2]

COPIES: dict[str, Callable[[Any], Any]] = {
    "pickle": lambda item: pickle.loads(pickle.dumps(item)),
    "cloudpickle": lambda item: pickle.loads(cloudpickle.dumps(item)),
}
SERDES = {
    "BYTES": (serdes.BYTES, b"\0x"),
    "STRING": (serdes.STRING, "ä"),
    "INTEGER": (serdes.INTEGER, -5),
    "LONG": (serdes.LONG, 1 << 60),
    "DOUBLE": (serdes.DOUBLE, 0.5),
    "JSON": (serdes.JSON, {"a": [1]}),
}
BUILDERS = [
    stores.key_value("s", serdes.STRING, serdes.LONG, persistent=False),
    stores.timestamped_key_value("s", serdes.STRING, serdes.DOUBLE),
    stores.versioned_key_value("s", serdes.STRING, serdes.INTEGER, history_ms=60_000),
    stores.window("s", serdes.LONG, serdes.JSON, retention_ms=10, window_size_ms=5, retain_duplicates=True),
    stores.timestamped_window("s", retention_ms=10, window_size_ms=5, logging=False),
    stores.session("s", serdes.STRING, serdes.LONG, retention_ms=10),
]

LOCAL = """
import sys
from pyspark import cloudpickle
from zkconsumer.topology import Processor, Topology, serdes, stores

text, number = serdes.STRING, serdes.LONG

class Count(Processor):
    def init(self, context):
        self.context, self.counts = context, context.get_state_store("counts")

    def process(self, record):
        self.counts.put(record.key, (self.counts.get(record.key) or 0) + 1)
        self.context.forward(record.with_value(self.counts.get(record.key)))

topology = Topology().add_source("in", "in", key_deserializer=text.deserialize)
topology.add_processor("count", lambda: Count(), "in", stores=[stores.key_value("counts", text, number)])
topology.add_sink("out", lambda *_: "out", "count", value_serializer=number.serialize, key_serializer=text.serialize)
sys.stdout.buffer.write(cloudpickle.dumps(topology))
"""


@pytest.mark.parametrize("copy", COPIES.values(), ids=COPIES)
def test_scenarios_of_copied_topology_have_equal_results(copy: Callable[[Any], Any]) -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    for request in [generator.scenario(rng) for _ in range(30)]:
        assert programs.run(request, copy) == programs.run(request, lambda topology: topology)


@pytest.mark.parametrize("copy", COPIES.values(), ids=COPIES)
def test_random_topology_is_equal_after_copy(copy: Callable[[Any], Any]) -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    for _ in range(100):
        topology = declarations.Declarations(topology_generator.topology(rng)).topology
        copied = copy(topology)
        assert copied.describe() == topology.describe()
        assert copied.resolve().topic_groups == topology.resolve().topic_groups


@pytest.mark.parametrize("copy", COPIES.values(), ids=COPIES)
@pytest.mark.parametrize("example", ["click_sessions", "idle_alarm"])
def test_topology_of_example_runs_after_copy(
    example: str, copy: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT / "examples")
    topology: Topology = importlib.import_module(example).topology()
    [source] = topology.resolve().topic_groups[0].sources
    outputs = []
    for each in (topology, copy(topology)):
        with TopologyTestDriver(each) as driver:
            topic = driver.create_input_topic(source)
            for time in (0, 1_000, 3_600_000, 7_200_000):
                topic.pipe_input(b"a", b"1", time)
            driver.advance_wall_clock_time(600_000)
            outputs.append([driver.create_output_topic(name).read_records() for name in driver.produced_topics()])

    assert outputs[0] == outputs[1] != []


def test_topology_of_script_runs_in_other_process() -> None:
    data = subprocess.run([sys.executable, "-c", LOCAL], capture_output=True, check=True, timeout=60).stdout
    with TopologyTestDriver(pickle.loads(data)) as driver:
        driver.create_input_topic("in").pipe_key_values([(b"a", b""), (b"a", b"")])

        out = driver.create_output_topic("out", value_deserializer=serdes.LONG.deserialize)
        assert out.read_values() == [1, 2]


@pytest.mark.parametrize("copy", COPIES.values(), ids=COPIES)
@pytest.mark.parametrize(("serde", "value"), SERDES.values(), ids=SERDES)
def test_serde_is_equal_after_copy(serde: Serde, value: Any, copy: Callable[[Any], Any]) -> None:
    copied = copy(serde)

    assert copied == serde
    assert copied.deserialize("t", serde.serialize("t", value)) == value
    assert serde.deserialize("t", copied.serialize("t", value)) == value
    assert copied.serialize("t", None) is copied.deserialize("t", None) is None


@pytest.mark.parametrize("copy", COPIES.values(), ids=COPIES)
@pytest.mark.parametrize("builder", BUILDERS)
def test_store_builder_is_data(builder: StoreBuilder, copy: Callable[[Any], Any]) -> None:
    copied = copy(builder)

    assert (copied.name, copied.kind, copied.parameters, copied.logging) == (
        builder.name,
        builder.kind,
        builder.parameters,
        builder.logging,
    )
    assert vars(copied.create()).keys() == vars(builder.create()).keys()
    assert copied.create().layout == builder.create().layout


def test_store_builder_shows_kind_and_parameters() -> None:
    assert repr(BUILDERS[3]) == (
        "StoreBuilder('s', WindowStore, serdes=(Serde(long_to_bytes, bytes_to_long), Serde(json_to_bytes, "
        "bytes_to_json)), is_persistent=True, retention_ms=10, window_size_ms=5, retain_duplicates=True, logging=True, "
        "caching=False)"
    )
    assert repr(StoreBuilder("s", lambda name: None)) == "StoreBuilder('s', " + (  # type: ignore[arg-type,return-value]
        "test_store_builder_shows_kind_and_parameters.<locals>.<lambda>, logging=True, caching=False)"
    )


@pytest.mark.parametrize("copy", COPIES.values(), ids=COPIES)
def test_settings_are_equal_after_copy(copy: Callable[[Any], Any]) -> None:
    config = ApplicationConfig(
        key_serde=serdes.STRING,
        value_serde=serdes.LONG,
        timestamp_extractor=timestamps.wall_clock,
        processing_handler=handlers.quarantine,
        quarantine_topic="errors",
    )

    assert copy(config) == config
    assert copy(config).timestamp_extractor is timestamps.wall_clock


def test_parameters_of_store_builder_cannot_be_changed() -> None:
    parameters = {"is_persistent": True}
    builder = stores.StoreBuilder("s", stores.KeyValueStore, parameters)
    parameters["is_persistent"] = False

    assert builder.parameters == {"is_persistent": True}
    with pytest.raises(TypeError, match="does not support item assignment"):
        builder.parameters["is_persistent"] = False  # type: ignore[index]
    assert pickle.loads(pickle.dumps(builder)).parameters == builder.parameters
