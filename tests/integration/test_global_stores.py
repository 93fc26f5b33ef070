"""Global stores of topologies on Spark: their contents are those at the end offsets of a tick."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition as Deleted
from confluent_kafka.admin import AdminClient
from helpers.aliases import Cluster, Topics
from helpers.teardown import started

from zkconsumer.devcluster import Admin
from zkconsumer.devcluster.load import batch
from zkconsumer.errors import RetriableError
from zkconsumer.message import TopicPartition
from zkconsumer.spark.streams.cluster import ApplicationCluster
from zkconsumer.spark.streams.dataframe import plan_global_stores
from zkconsumer.spark.streams.global_stores import GlobalStores
from zkconsumer.spark.streams.markers import TopicEnds
from zkconsumer.spark.streams.plan import GlobalPlan
from zkconsumer.spark.streams.ticks import TickReader
from zkconsumer.topology import ApplicationConfig, Processor, ProcessorContext, Record, Topology, serdes, stores

Open = Callable[..., GlobalStores]


class Remember(Processor):
    """Stores values by their first byte."""

    def init(self, context: ProcessorContext) -> None:
        self.store = context.get_state_store("names")

    def process(self, record: Record) -> None:
        self.store.put(record.value[:1], record.value)


class Names:
    """A topic with a global store, and the plan of the store."""

    def __init__(self, cluster: Cluster, admin: Admin, topic: str, group: str) -> None:
        self._admin, self.topic = admin, topic
        names = stores.key_value("names", serdes.BYTES, serdes.BYTES, logging=False)
        topology = Topology().add_global_store(names, "source", topic, "remember", Remember)
        properties = {**cluster.consumer_properties, "group.id": group}
        config = ApplicationConfig(application_id=group)
        state = ApplicationCluster(properties).describe()
        resolved = topology.resolve(state.partition_counts)
        plan = plan_global_stores(resolved.subtopologies.values(), config, properties, state)
        assert plan is not None
        self.plan: GlobalPlan = plan
        self.topic_ids: dict[str, str] = {}

    def add(self, partition: int, *values: bytes) -> None:
        """Produce records."""
        self._admin.produce(TopicPartition(self.topic, partition), batch(list(values), timestamp_ms=1_000))

    def ends(self, *offsets: int) -> TopicEnds:
        """Return end offsets of partitions 0 and 1, with the current topic id."""
        found = {TopicPartition(self.topic, number): offset for number, offset in enumerate(offsets)}
        return TopicEnds(found, self.topic_ids)


@pytest.fixture
def names(zkconsumer_cluster: Cluster, admin: Admin, topic: Topics, group: str) -> Names:
    return Names(zkconsumer_cluster, admin, topic(2), group)


@pytest.fixture
def opened(names: Names, tmp_path: Path) -> Iterator[Open]:
    """Open the stores at some offsets; they are closed after the test."""

    def make(*offsets: int) -> GlobalStores:
        return GlobalStores(names.plan, names.ends(*offsets), tmp_path)

    with started(make, GlobalStores.close) as start:
        yield start


def values_of(found: GlobalStores) -> list[bytes]:
    store: Any = found.by_name["names"]
    return [value for _, value in store.all()]


def test_store_has_the_records_before_the_offsets(names: Names, opened: Open) -> None:
    names.add(0, b"a1", b"b1", b"a2")
    names.add(1, b"c1")

    assert values_of(opened(2, 0)) == [b"a1", b"b1"]
    assert values_of(opened(3, 1)) == [b"a2", b"b1", b"c1"]
    assert values_of(opened(3, 1)) == [b"a2", b"b1", b"c1"]


def test_open_store_does_not_change_when_another_task_continues(names: Names, opened: Open) -> None:
    names.add(0, b"a1", b"a2")

    old = opened(1, 0)
    new = opened(2, 0)
    assert values_of(old) == [b"a1"]
    assert values_of(new) == [b"a2"]


def test_store_that_is_ahead_is_built_again(names: Names, opened: Open) -> None:
    names.add(0, b"a1", b"b1")

    assert values_of(opened(2, 0)) == [b"a1", b"b1"]
    assert values_of(opened(1, 0)) == [b"a1"]
    assert values_of(opened(0, 0)) == []


@pytest.mark.parametrize("count", [1, 3], ids=["fewer records", "more records"])
def test_store_of_recreated_topic_is_rebuilt(names: Names, opened: Open, admin: Admin, count: int) -> None:
    names.add(0, b"a1", b"b1")
    names.topic_ids = {names.topic: "id-1"}
    assert values_of(opened(2, 0)) == [b"a1", b"b1"]
    admin.delete_topic(names.topic)
    admin.create_topic(names.topic, 2)
    names.add(0, *(b"c%d" % number for number in range(count)))
    names.topic_ids = {names.topic: "id-2"}
    assert values_of(opened(count, 0)) == [b"c%d" % (count - 1)]
    names.topic_ids = {}
    assert values_of(opened(count, 0)) == [b"c%d" % (count - 1)], "the id is unknown while no broker responds"


def test_deleted_records_are_skipped(names: Names, opened: Open, zkconsumer_cluster: Cluster) -> None:
    names.add(0, b"a1", b"b1", b"c1")
    client = AdminClient({"bootstrap.servers": zkconsumer_cluster.bootstrap_servers})
    [deleted] = client.delete_records([Deleted(names.topic, 0, 2)]).values()
    deleted.result(20)

    assert values_of(opened(3, 0)) == [b"c1"]


def test_tick_has_the_end_offsets(names: Names, zkconsumer_cluster: Cluster, group: str) -> None:
    names.add(0, b"a1", b"b1")
    brokers = [(host, int(port)) for host, port in _split(zkconsumer_cluster.bootstrap_servers)]
    properties = {**zkconsumer_cluster.consumer_properties, "group.id": group}
    declared = {"properties": properties, "brokers": brokers, "partitions": names.plan.partitions}
    reader = TickReader({"keys": "[7]", "intervalMs": "1", "global": json.dumps(declared)})
    try:
        end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
        [partition] = reader.partitions(reader.initialOffset(), end)
        [(key, *_, ends, _)] = reader.read(partition)

        found = TopicEnds.decode(ends.decode())
        assert key == 7
        assert found.offsets == names.ends(2, 0).offsets
        assert found.topic_ids[names.topic].startswith("id-")
    finally:
        reader.stop()
    declared["brokers"] = [("127.0.0.1", 1)]
    cut_off = TickReader({"keys": "[7]", "intervalMs": "1", "global": json.dumps(declared)})
    assert cut_off.latestOffset(end, cut_off.getDefaultReadLimit())["ends"] == end["ends"]
    with pytest.raises(RetriableError):
        cut_off.latestOffset(cut_off.initialOffset(), cut_off.getDefaultReadLimit())
    cut_off.stop()


def _split(servers: str) -> list[list[str]]:
    return [server.rsplit(":", 1) for server in servers.split(",")]


def test_tasks_update_a_store_at_the_same_time(names: Names, tmp_path: Path) -> None:
    names.add(0, *(b"%c%d" % (97 + number % 20, number) for number in range(200)))
    found: list[list[bytes]] = []
    failures: list[BaseException] = []

    def run(end: int) -> None:
        try:
            one = GlobalStores(names.plan, names.ends(end, 0), tmp_path)
            try:
                found.append(values_of(one))
            finally:
                one.close()
        except BaseException as error:
            failures.append(error)

    for end in (50, 120, 200):
        threads = [threading.Thread(target=run, args=(end,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert not failures
        expected = [b"%c%d" % (97 + letter, end - 20 + (letter - end) % 20) for letter in range(20)]
        assert found == [expected] * 4
        found.clear()
