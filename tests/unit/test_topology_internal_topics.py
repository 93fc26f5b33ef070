"""A join behind an internal topic: its names, its tasks, and the partitions of co-partitioned topics."""

from __future__ import annotations

import pytest

from zkconsumer.errors import TopologyError
from zkconsumer.message import TopicPartition
from zkconsumer.topology import (
    ApplicationConfig,
    Processor,
    ProcessorContext,
    Record,
    SourceRecord,
    TaskRuntime,
    TestRecord,
    Topology,
    TopologyTestDriver,
    serdes,
    stores,
)

CONFIG = ApplicationConfig(application_id="shop", key_serde=serdes.STRING, value_serde=serdes.STRING)
RUNTIME = TaskRuntime(clock=lambda: 0, pages=lambda _: None, commit=int, rollback=int)


class KeyByCustomer(Processor):
    """Makes the value the key."""

    def init(self, context: ProcessorContext) -> None:
        self._context = context

    def process(self, record: Record) -> None:
        self._context.forward(record.with_key(record.value).with_value(record.key))


class Join(Processor):
    """Adds the customer to each order; forwards everything else with the name of its topic."""

    def init(self, context: ProcessorContext) -> None:
        self._context, self._names = context, context.get_state_store("names")

    def process(self, record: Record) -> None:
        metadata = self._context.record_metadata
        assert metadata is not None
        if metadata.topic == "customers":
            self._names.put(record.key, record.value)
        elif metadata.topic == "shop-by-customer":
            self._context.forward(record.with_value(f"{record.value} of {self._names.get(record.key)}"))
        else:
            self._context.forward(record.with_value(f"{record.value} from {metadata.topic}"))


NAMES = stores.key_value("names", serdes.STRING, serdes.STRING)


def joining() -> Topology:
    """Orders are written to ``by-customer``, which is joined with ``customers``; ``rates`` is not co-partitioned."""
    return (
        Topology()
        .add_source("orders", "orders")
        .add_processor("key", KeyByCustomer, "orders")
        .add_sink("repartition", "by-customer", "key")
        .add_internal_topic("by-customer")
        .add_source("repartitioned", "by-customer")
        .add_source("customers", "customers")
        .add_source("rates", "rates")
        .add_processor("join", Join, "repartitioned", "customers", "rates", stores=[NAMES])
        .add_sink("out", "out", "join")
        .copartition("repartitioned", "customers")
    )


def test_internal_topic_has_application_id_only_at_run_time() -> None:
    topology = joining()
    with TopologyTestDriver(topology, CONFIG) as driver:
        driver.create_input_topic("customers").pipe_input("c1", "Ada", 1)
        driver.create_input_topic("orders").pipe_input("o1", "c1", 2)
        driver.create_input_topic("rates").pipe_input("r1", "2 %", 3)

        assert driver.produced_topics() == {"shop-by-customer", "out"}
        assert driver.create_output_topic("shop-by-customer").read_records() == [TestRecord("c1", "o1", 2)]
        expected = [TestRecord("c1", "o1 of Ada", 2), TestRecord("r1", "2 % from rates", 3)]
        assert driver.create_output_topic("out").read_records() == expected
        with pytest.raises(ValueError, match="no source reads topic 'by-customer'"):
            driver.create_input_topic("by-customer").pipe_input("c1", "o1")

    assert "topics: [by-customer]" in topology.describe()
    assert "topic: by-customer" in topology.describe()
    assert "shop" not in topology.describe()


@pytest.mark.parametrize(("rates", "tasks"), [(1, 4), (6, 6)])
def test_tasks_read_their_partition_of_each_topic_that_has_it(rates: int, tasks: int) -> None:
    resolved = joining().resolve({"orders": 4, "customers": 4, "rates": rates})
    first, second = resolved.subtopologies.values()

    assert resolved.internal_topics == {"by-customer": 4}
    assert (first.task_count, second.task_count) == (4, tasks)
    for number in range(tasks):
        topics = [("shop-by-customer", 4), ("customers", 4), ("rates", rates)]
        expected = {TopicPartition(topic, number) for topic, count in topics if number < count}
        assert second.task(number, CONFIG, RUNTIME).partitions == expected


def test_tasks_pass_records_through_internal_topic() -> None:
    first, second = joining().resolve({"orders": 4, "customers": 4, "rates": 6}).subtopologies.values()
    writer, reader = first.task(1, CONFIG, RUNTIME), second.task(3, CONFIG, RUNTIME)
    for task in (writer, reader):
        task.initialize()
    reader.add_records(TopicPartition("customers", 3), [SourceRecord("customers", 3, 0, 1, b"c1", b"Ada")])
    writer.add_records(TopicPartition("orders", 1), [SourceRecord("orders", 1, 0, 2, b"o1", b"c1")])
    writer.run()

    [written] = writer.take_output().records()
    assert (written.topic, written.key, written.value) == ("shop-by-customer", b"c1", b"o1")
    records = [SourceRecord(written.topic, 3, 0, written.timestamp, written.key, written.value)]
    reader.add_records(TopicPartition("shop-by-customer", 3), records)
    reader.update_lags()  # so that it does not wait for rates
    reader.run()

    assert [(record.topic, record.value) for record in reader.take_output().records()] == [("out", b"o1 of Ada")]


@pytest.mark.parametrize(("customers", "expected"), [(6, 6), (2, 2)])
def test_internal_topic_has_as_many_partitions_as_copartitioned_topic(customers: int, expected: int) -> None:
    counts = {"orders": 4, "customers": customers, "rates": 1}
    resolved = joining().resolve(counts)

    assert resolved.internal_topics == {"by-customer": expected}
    resolved.check_partition_counts(counts)


def test_copartitioned_internal_topics_have_as_many_partitions_as_largest() -> None:
    topology = Topology()
    for name in ("a", "b"):
        topology.add_source(name, name).add_sink(f"{name}-sink", f"{name}-again", name).add_internal_topic(
            f"{name}-again"
        )
        topology.add_source(f"{name}-again", f"{name}-again")
    topology.add_processor("join", Join, "a-again", "b-again", stores=[NAMES]).copartition("a-again", "b-again")

    assert topology.resolve({"a": 2, "b": 5}).internal_topics == {"a-again": 5, "b-again": 5}


def test_separate_joins_have_their_own_number_of_partitions() -> None:
    topology = Topology()
    for left, right in ("ab", "cd", "ef"):
        topology.add_source(left, left).add_sink(f"{left}-sink", f"{left}-again", left)
        topology.add_internal_topic(f"{left}-again").add_source(f"{left}-again", f"{left}-again")
        topology.add_source(right, right).add_processor(f"join-{left}", KeyByCustomer, f"{left}-again", right)
        topology.copartition(f"{left}-again", right)

    counts = {"a": 1, "b": 2, "c": 1, "d": 3, "e": 1, "f": 4}
    assert topology.resolve(counts).internal_topics == {"a-again": 2, "c-again": 3, "e-again": 4}


def test_copartitioned_topics_that_disagree_are_rejected() -> None:
    counts = {"orders": 4, "customers": 4, "rates": 6}
    resolved = joining().resolve(counts)
    resolved.check_partition_counts({**counts, "by-customer": 4})

    with pytest.raises(
        TopologyError,
        match="co-partitioned topics must have the same number of partitions.*; got by-customer: 4, customers: 3",
    ):
        resolved.check_partition_counts({**counts, "by-customer": 4, "customers": 3})
    with pytest.raises(TopologyError, match="source topics do not exist: rates"):
        resolved.check_partition_counts({"orders": 4, "customers": 4})


def test_internal_topic_has_partitions_of_largest_topic() -> None:
    topology = Topology().add_source("a", ["small", "large"]).add_source("b", "other").add_internal_topic("all")
    topology.add_processor("key", KeyByCustomer, "a", "b").add_sink("out", "all", "key")

    assert topology.resolve({"small": 1, "large": 5, "other": 3}).internal_topics == {"all": 5}
    assert topology.resolve({"small": 1, "other": 3}).internal_topics == {"all": None}
