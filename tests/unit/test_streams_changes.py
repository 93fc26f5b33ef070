"""Changes of a topology between two starts of an application on Spark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from helpers.operator_input import GivenRecords, Pages, fetched, give

from zkconsumer.errors import StreamsError
from zkconsumer.message import TopicPartition
from zkconsumer.spark.streams.changes import AllowedChange
from zkconsumer.spark.streams.checkpoint import StoredApplication
from zkconsumer.spark.streams.packing import from_blob
from zkconsumer.spark.streams.plan import ApplicationPlan, TaskNumber, select_subtopologies
from zkconsumer.spark.streams.task_batch import BatchInput, SavedTask, run_batch
from zkconsumer.topology import ApplicationConfig, Processor, ProcessorContext, Record, Topology, serdes, stores

COUNTS = {"a": 1, "b": 1}


class Count(Processor):
    """Counts keys in each of its stores."""

    names: tuple[str, ...] = ("one",)

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        self.stores = [context.get_state_store(name) for name in self.names]

    def process(self, record: Record) -> None:
        for store in self.stores:
            store.put(record.key, (store.get(record.key) or 0) + 1)
        self.context.forward(record.with_value(b"".join(b"%d" % store.get(record.key) for store in self.stores)))


class CountTwice(Count):
    names = ("one", "two")


def topology(
    supplier: type[Processor] = Count, node: str = "count", sink: str = "out", caching: bool = False
) -> Topology:
    names = getattr(supplier, "names", ())
    declared = [stores.key_value(name, serdes.BYTES, serdes.LONG, caching=caching) for name in names]
    return (
        Topology()
        .add_source("source", "a")
        .add_processor(node, supplier, "source", stores=declared)
        .add_sink("sink", sink, node)
    )


def more() -> Topology:
    return topology().add_source("more", "b").add_sink("copy", "out", "more")


CHANGES: list[tuple[AllowedChange, Callable[[], Topology], Callable[[], Topology]]] = [
    (AllowedChange.ADDED_SUBTOPOLOGY, topology, more),
    (AllowedChange.REMOVED_SUBTOPOLOGY, more, topology),
    (AllowedChange.STORE_SETTINGS, topology, lambda: topology(caching=True)),
    (AllowedChange.RENAMED_NODE, topology, lambda: topology(node="number")),
    (AllowedChange.SINKS, topology, lambda: topology(sink="other")),
    (AllowedChange.SINKS, topology, lambda: topology().add_sink("second", "other", "count")),
]


def subtopologies_of(declared: Topology) -> Any:
    config = ApplicationConfig(application_id="app")
    return select_subtopologies(declared.resolve(COUNTS), config, COUNTS)


@pytest.mark.parametrize(("allowed", "before", "now"), CHANGES)
def test_change_must_be_allowed(
    allowed: AllowedChange, before: Callable[[], Topology], now: Callable[[], Topology]
) -> None:
    stored = StoredApplication.create("app", subtopologies_of(before()), 4)
    changed = subtopologies_of(now())

    for others in ((), set(AllowedChange) - {allowed}):
        with pytest.raises(StreamsError, match=r"p was written with a different topology; .*StreamsApp\(allow=...\)"):
            stored.continue_with("app", changed, "p", others)
    after = stored.continue_with("app", changed, "p", [allowed])
    assert StoredApplication.from_json(after.to_json(), "p") == StoredApplication.from_json(after.to_json(), "p")
    assert after.continue_with("app", changed, "p") == after


def test_nodes_cannot_exchange_their_names() -> None:
    def two(first: str, second: str) -> Topology:
        declared = Topology().add_source("source", "a")
        return declared.add_processor(first, Count, "source").add_processor(second, Count, "source")

    stored = StoredApplication.create("app", subtopologies_of(two("x", "y")), 4)
    with pytest.raises(StreamsError, match="different topology"):
        stored.continue_with("app", subtopologies_of(two("y", "x")), "p", [AllowedChange.RENAMED_NODE])


def test_number_of_a_removed_subtopology_is_not_used_for_another() -> None:
    stored = StoredApplication.create("app", subtopologies_of(more()), 4)
    removed = stored.continue_with("app", subtopologies_of(topology()), "p", [AllowedChange.REMOVED_SUBTOPOLOGY])
    other = topology().add_source("more", "b").add_sink("copy", "elsewhere", "more")

    with pytest.raises(StreamsError, match="contains the state of the removed sub-topology 1"):
        removed.continue_with("app", subtopologies_of(other), "p", [AllowedChange.ADDED_SUBTOPOLOGY])
    again = removed.continue_with("app", subtopologies_of(more()), "p", [AllowedChange.ADDED_SUBTOPOLOGY])
    assert again.tasks == stored.tasks
    assert again.removed == {}


def test_store_of_another_kind_does_not_get_the_pages_of_a_removed_one() -> None:
    subtopologies = subtopologies_of(topology(CountTwice))
    stored = StoredApplication.create("app", subtopologies, 4)
    without = subtopologies_of(topology())
    removed = stored.continue_with("app", without, "p", [AllowedChange.REMOVED_STORE, AllowedChange.CODE])
    other = topology(CountTwice)
    two = stores.key_value("two", serdes.STRING, serdes.STRING)
    other = (
        Topology()
        .add_source("source", "a")
        .add_processor("count", CountTwice, "source", stores=[stores.key_value("one", serdes.BYTES, serdes.LONG), two])
        .add_sink("sink", "out", "count")
    )
    changed = subtopologies_of(other)
    after = removed.continue_with("app", changed, "p", [AllowedChange.ADDED_STORE, AllowedChange.CODE])
    assert after.number_stores(changed) == {0: {"one": 0, "two": 2}}
    assert stored.number_stores(subtopologies) == {0: {"one": 0, "two": 1}}


def test_added_subtopology_with_a_store_is_a_change() -> None:
    stored = StoredApplication.create("app", subtopologies_of(topology()), 4)
    added = topology().add_source("more", "b").add_processor("x", Count, "more", stores=[stores.key_value("one-b")])

    with pytest.raises(StreamsError, match="different topology"):
        stored.continue_with("app", subtopologies_of(added), "p", [AllowedChange.ADDED_SUBTOPOLOGY])


class Application:
    """Task 0_0 of an application, whose topology changes."""

    def __init__(self) -> None:
        self._stored: StoredApplication | None = None
        self._saved: SavedTask | None = None
        self._pages = Pages()

    def run(self, declared: Topology, *allowed: AllowedChange) -> list[bytes]:
        """Process a record, and return the values of the output."""
        subtopologies = subtopologies_of(declared)
        if self._stored is None:
            self._stored = StoredApplication.create("app", subtopologies, 4)
        self._stored = stored = self._stored.continue_with("app", subtopologies, "p", allowed)
        config = ApplicationConfig(application_id="app")
        plan = replace(
            ApplicationPlan.create(subtopologies, config, COUNTS, stored.tasks, stored.partitions, GivenRecords()),
            stores=stored.number_stores(subtopologies),
            earlier={int(number): frozenset(hashes) for number, hashes in stored.earlier.items()},
        )
        batch = BatchInput(ranges={TopicPartition("a", 0): give(fetched("a", 0, [0]))}, tick_ms=0)
        result = run_batch(plan, TaskNumber(0, 0), self._pages, self._saved, batch)
        self._saved = result.saved
        return [] if result.output.blob is None else from_blob(result.output.blob).column("value").to_pylist()


def test_stores_keep_their_entries() -> None:
    app = Application()

    assert app.run(topology()) == [b"1"]
    assert app.run(topology(CountTwice), AllowedChange.ADDED_STORE, AllowedChange.CODE) == [b"21"]
    assert app.run(topology(CountTwice)) == [b"32"]
    assert app.run(topology(), AllowedChange.REMOVED_STORE, AllowedChange.CODE) == [b"4"]
    assert app.run(topology()) == [b"5"]
    assert app.run(topology(CountTwice), AllowedChange.ADDED_STORE, AllowedChange.CODE) == [b"63"]
    assert app.run(topology(CountTwice, node="renamed"), AllowedChange.RENAMED_NODE) == [b"74"]
