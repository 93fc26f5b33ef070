"""Topologies: errors that the comparison with the JVM does not cover, patterns, partition counts, upstream's texts."""

from __future__ import annotations

import json
import pickle
from collections.abc import Set
from functools import partial
from typing import Any

import pytest

from zkconsumer.errors import TopologyError
from zkconsumer.message import TopicPartition
from zkconsumer.topology import (
    ApplicationConfig,
    Processor,
    Record,
    RecordMetadata,
    Subtopology,
    TaskRuntime,
    TopicGroup,
    Topology,
    TopologyTestDriver,
    stores,
)

RUNTIME = TaskRuntime(clock=lambda: 0, pages=lambda _: None, commit=int, rollback=int)


class Nothing(Processor):
    def process(self, record: Record) -> None:
        pass


def with_global() -> Topology:
    store = stores.key_value("g", logging=False)
    return Topology().add_global_store(store, "g-source", "g-topic", "g-processor", Nothing)


def test_child_of_global_processor_is_rejected() -> None:
    # The JVM accepts it, and describes only one of the nodes.
    with pytest.raises(TopologyError, match="'g-processor' updates a global store and cannot have children"):
        with_global().add_processor("child", Nothing, "g-processor")


def test_rejected_call_changes_nothing() -> None:
    topology = Topology().add_source("a", "t")
    before = topology.describe()

    with pytest.raises(TopologyError, match="source 'b' lists topic 'x' twice"):
        topology.add_source("b", ["x", "y", "x"])
    with pytest.raises(TopologyError):
        topology.add_processor("p", Nothing, "a", stores=[stores.key_value("s"), stores.key_value("s")])
    topology.add_source("c", "x")

    assert list(topology.nodes) == ["a", "c"]
    assert not topology.stores
    assert topology.describe() == before + "  Sub-topology: 1\n    Source: c (topics: [x])\n      --> none\n\n"


@pytest.mark.parametrize("pattern", ["a,b", "a b", "'a'", "("])
def test_pattern_that_cannot_be_registered_is_rejected(pattern: str) -> None:
    with pytest.raises(TopologyError, match="source 'a'"):
        Topology().add_source("a", pattern=pattern)


def test_patterns_match_existing_topics() -> None:
    topology = with_global().add_source("a", pattern="a.*").add_source("b", pattern=".*b").add_source("c", "c")

    existing = dict.fromkeys(["a1", "a2", "xb", "c", "g-topic"], 1)
    nothing, resolved = topology.resolve(), topology.resolve(existing)

    assert {number: group.sources for number, group in nothing.topic_groups.items()} == {0: {"g-topic"}, 3: {"c"}}
    groups = {number: group.sources for number, group in resolved.topic_groups.items()}
    assert groups == {0: {"g-topic"}, 1: {"a1", "a2"}, 2: {"xb"}, 3: {"c"}}
    assert resolved.subtopologies[1].topics_of == {"a": ("a1", "a2")}
    assert resolved.source_topics == {"g-topic", "a1", "a2", "xb", "c"}
    with pytest.raises(
        TopologyError, match="topic 'ab' matches the patterns 'a.\\*' of source 'a' and '.\\*b' of source 'b'"
    ):
        topology.resolve({"ab": 1})


def test_resolving_does_not_change_topology() -> None:
    topology = with_global().add_source("a", pattern="a.*").add_source("c", "c")
    topology.add_processor("p", Nothing, "a", "c")
    before = pickle.dumps(topology)

    first = topology.resolve({"a1": 1})
    assert topology.resolve({"a2": 1}).subtopologies[1].topics_of["a"] == ("a2",)

    assert first.subtopologies[1].topics_of["a"] == ("a1",)
    assert pickle.dumps(topology) == before


def test_partition_counts_of_copartitioned_topics_must_be_equal() -> None:
    topology = Topology().add_source("a", "left").add_source("b", "right").add_source("c", "alone")
    topology.add_processor("join", Nothing, "a", "b", "c").copartition("a", "b")
    resolved = topology.resolve()

    resolved.check_partition_counts({"left": 4, "right": 4, "alone": 1})

    with pytest.raises(TopologyError, match="the topology must have at least one source topic"):
        Topology().resolve().check_partition_counts({})
    with pytest.raises(TopologyError, match="co-partitioned topics .* left: 4, right: 8"):
        resolved.check_partition_counts({"left": 4, "right": 8, "alone": 1})
    with pytest.raises(TopologyError, match="source topics do not exist: right"):
        resolved.check_partition_counts({"left": 4, "alone": 1})


def test_largest_topic_decides_number_of_tasks() -> None:
    # Source: Kafka 3.9 PartitionGrouper.partitionGroups
    topology = Topology().add_source("a", "left").add_source("b", "right").add_processor("merge", Nothing, "a", "b")

    subtopology = topology.subtopology(0, {"left": 2, "right": 3})

    assert subtopology.task_count == 3
    assert partitions_of(subtopology, 1) == {TopicPartition("left", 1), TopicPartition("right", 1)}
    assert partitions_of(subtopology, 2) == {TopicPartition("right", 2)}
    assert topology.subtopology(0, {"left": 2}).task_count == 2
    assert topology.resolve({}).subtopologies[0].task_count == 0
    assert Topology().add_source("all", pattern="x-.*").resolve({}).subtopologies[0].task_count == 0


def partitions_of(subtopology: Subtopology, number: int) -> Set[TopicPartition]:
    return subtopology.task(number, ApplicationConfig(), RUNTIME).partitions


def test_missing_subtopology_is_rejected() -> None:
    with pytest.raises(TopologyError, match=r"sub-topology 1 does not exist \(number of sub-topologies: 1\)"):
        Topology().add_source("a", "t").subtopology(1)


@pytest.mark.parametrize("sources", [(), ("a",), ("a", "a"), ("a", "p"), ("a", "x")])
def test_copartition_of_other_nodes_is_rejected(sources: tuple[str, ...]) -> None:
    topology = Topology().add_source("a", "t").add_processor("p", Nothing, "a")

    with pytest.raises(TopologyError, match="needs at least two different sources|is not a source"):
        topology.copartition(*sources)


def test_internal_topics_have_names_with_application_id() -> None:
    topology = Topology().add_source("a", "in").add_internal_topic("by-name").add_sink("out", "by-name", "a")
    topology.add_source("b", "by-name").add_processor("p", Nothing, "b")
    resolved = topology.resolve({"in": 6})

    assert resolved.internal_topics == {"by-name": 6}
    assert resolved.subtopologies[1].task_count == 6
    assert "topic: by-name" in topology.describe()
    config = ApplicationConfig(application_id="app")
    assert resolved.subtopologies[1].task(5, config, RUNTIME).partitions == {TopicPartition("app-by-name", 5)}
    with TopologyTestDriver(topology, config) as driver:
        driver.create_input_topic("in").pipe_input(b"k", b"v")
        assert driver.produced_topics() == {"app-by-name"}


def test_partitions_of_chained_internal_topics_are_counted() -> None:
    topology = Topology()
    for name, source, sink in (("c", "second", "out"), ("b", "first", "second"), ("a", "in", "first")):
        topology.add_source(name, source).add_sink(f"{name}-out", sink, name)
    topology.add_internal_topic("first").add_internal_topic("second").add_internal_topic("other", 2)

    assert topology.resolve({"in": 4}).internal_topics == {"first": 4, "second": 4, "other": 2}
    assert topology.resolve().internal_topics == {"first": None, "second": None, "other": 2}


@pytest.mark.parametrize("partitions", [0, -1, "2"])
def test_invalid_internal_topics_are_rejected(partitions: Any) -> None:
    topology = Topology().add_internal_topic("a")

    with pytest.raises(TopologyError, match="partitions must be a positive integer"):
        topology.add_internal_topic("b", partitions)
    with pytest.raises(TopologyError, match="internal topic 'a' already exists"):
        topology.add_internal_topic("a")


def test_subtopology_does_not_change_with_topology() -> None:
    topology = Topology().add_source("a", "t").add_processor("p", Nothing, "a")
    before = topology.subtopology(0)
    fingerprint = before.fingerprint

    topology.add_state_store(stores.key_value("s"), "p").add_sink("out", "u", "p")

    assert before.fingerprint == fingerprint
    assert [node.name for node in before.nodes] == ["a", "p"]
    assert before.stores == ()
    assert topology.subtopology(0).fingerprint != fingerprint


def test_fingerprint_shows_what_is_declared() -> None:
    topology = Topology().add_source("a", "t", offset_reset="latest").add_processor("p", Nothing, "a")
    topology.add_state_store(stores.window("w", retention_ms=10, window_size_ms=5), "p")
    copied = pickle.loads(pickle.dumps(topology.subtopology(0)))

    data = json.loads(copied.fingerprint)

    assert copied.fingerprint == topology.subtopology(0, {"t": 3}).fingerprint
    assert data["nodes"][0]["offset_reset"] == "latest"
    assert data["nodes"][1]["supplier"].endswith("test_topology_builder.Nothing")
    assert data["nodes"][1]["stores"] == ["w"]
    assert data["stores"][0]["kind"] == "zkconsumer.topology.stores.window_store.WindowStore"
    assert data["stores"][0]["parameters"]["retention_ms"] == 10
    assert copied.offset_resets == {"t": "latest"}


def test_unknown_offset_reset_is_rejected() -> None:
    with pytest.raises(TopologyError, match="must be 'earliest' or 'latest', got 'none'"):
        Topology().add_source("a", "t", offset_reset="none")


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda: stores.window("w", retention_ms=9, window_size_ms=10), "retention_ms must be at least window_size_ms"),
        (
            lambda: stores.window("w", retention_ms=-1, window_size_ms=0),
            "retention_ms must be a non-negative integer",
        ),
        (
            lambda: stores.timestamped_window("w", retention_ms=5, window_size_ms=-1),
            "window_size_ms must be a non-negative integer",
        ),
        (
            lambda: stores.window("w", retention_ms=1.5, window_size_ms=1),  # type: ignore[arg-type]
            "retention_ms must be a non-negative integer or timedelta, got 1.5",
        ),
        (lambda: stores.session("s", retention_ms=-1), "retention_ms must be a non-negative integer"),
        (lambda: stores.versioned_key_value("v", history_ms=-1), "history_ms must be a non-negative integer"),
        (
            lambda: stores.versioned_key_value("v", history_ms=1, segment_interval_ms=0),
            "segment_interval_ms must be a positive integer",
        ),
        (lambda: stores.key_value(""), "name of a store"),
    ],
)
def test_store_arguments_are_checked(declare: object, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        declare()  # type: ignore[operator]


@pytest.mark.parametrize(
    ("supplier", "message"),
    [
        (Processor, "processor 'p': supplier .* failed: Can't instantiate abstract class"),
        (lambda: object(), "processor 'p': supplier .* must return a Processor, got <object"),
        (Nothing(), "processor 'p': supplier must be a class or function, got"),
    ],
)
def test_invalid_supplier_is_rejected_with_reason(supplier: Any, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        Topology().add_source("a", "t").add_processor("p", supplier, "a")


def test_non_list_arguments_are_rejected() -> None:
    with pytest.raises(TopologyError, match="the topics of source 'a' must be a list, got 5"):
        Topology().add_source("a", 5)  # type: ignore[arg-type]
    with pytest.raises(TopologyError, match="the stores of processor 'p' must be a list, got StoreBuilder"):
        Topology().add_source("a", "t").add_processor("p", Nothing, "a", stores=stores.key_value("s"))  # type: ignore[arg-type]


def test_description_of_empty_topology() -> None:
    assert Topology().describe() == "Topologies:\n "


def test_global_store_counts_as_numbered_subtopology() -> None:
    topology = Topology().add_source("a", "t")
    topology.add_global_store(stores.key_value("g", logging=False), "g-source", "g-topic", "g-processor", Nothing)
    topology.add_source("b", "u")

    assert topology.describe() == (
        "Topologies:\n"
        "   Sub-topology: 0\n    Source: a (topics: [t])\n      --> none\n\n"
        "  Sub-topology: 1 for global store (will not generate tasks)\n"
        "    Source: g-source (topics: [g-topic])\n      --> g-processor\n"
        "    Processor: g-processor (stores: [g])\n      --> none\n      <-- g-source\n"
        "  Sub-topology: 2\n    Source: b (topics: [u])\n      --> none\n\n"
    )
    resolved = topology.resolve()
    names = {number: [node.name for node in one.nodes] for number, one in resolved.subtopologies.items()}
    assert names == {0: ["a"], 1: ["g-source", "g-processor"], 2: ["b"]}
    assert resolved.topic_groups == {
        0: TopicGroup(frozenset({"t"}), frozenset()),
        1: TopicGroup(frozenset({"g-topic"}), frozenset(), is_global=True),
        2: TopicGroup(frozenset({"u"}), frozenset()),
    }
    assert resolved.source_topics == {"t", "g-topic", "u"}


def by_name(_record: Record, _metadata: RecordMetadata) -> str:
    return "out"


class ByField:
    """Selects the topic; Python's default text of it contains an address."""

    def __call__(self, _record: Record, _metadata: RecordMetadata) -> str:
        return "out"

    def select(self, _record: Record, _metadata: RecordMetadata) -> str:
        return "out"


class Named(ByField):
    def __repr__(self) -> str:
        return "by country"


@pytest.mark.parametrize(
    ("extractor", "text"),
    [
        (by_name, "by_name"),
        (partial(partial(by_name)), "by_name"),
        (ByField(), "ByField"),
        (partial(ByField()), "ByField"),
        (ByField().select, "ByField.select"),
        (Named(), "by country"),
    ],
)
def test_extractor_is_described_without_address(extractor: Any, text: str) -> None:
    topology = Topology().add_source("a", "t").add_sink("s", extractor, "a")

    assert f"Sink: s (extractor class: {text})\n" in topology.describe()
