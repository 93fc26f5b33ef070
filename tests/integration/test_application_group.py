"""The group that an application id names: what is checked before an application starts or is cleaned up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer
from helpers.aliases import Cluster, Topics
from helpers.operator_input import GivenRecords
from helpers.waiting import wait_for
from kazoo.client import KazooClient

from zkconsumer import ZookeeperConsumerConnector
from zkconsumer.devcluster import Admin
from zkconsumer.devcluster.load import batch
from zkconsumer.errors import StreamsError
from zkconsumer.message import TopicPartition
from zkconsumer.offsets.access import Access
from zkconsumer.offsets.metadata import FIRST_MARKER
from zkconsumer.spark.streams.admin_requests import delete_group
from zkconsumer.spark.streams.checkpoint_directory import QueryProgress
from zkconsumer.spark.streams.cluster import ApplicationCluster
from zkconsumer.spark.streams.group import ApplicationGroup
from zkconsumer.spark.streams.markers import Marker
from zkconsumer.spark.streams.plan import ApplicationPlan, list_tasks, select_subtopologies
from zkconsumer.topology import ApplicationConfig, Topology

PLACE = "checkpoint /c"
QUERY = "11111111-1111-1111-1111-111111111111"


class Group(ApplicationGroup):
    """The group of the test, with the connections that it needs."""

    def __init__(self, cluster: ApplicationCluster, access: Access, *, commits_to_kafka: bool) -> None:
        super().__init__(cluster, access, commits_to_kafka=commits_to_kafka)
        self.access, self.cluster = access, cluster

    def commit(self, partition: TopicPartition, offset: int, metadata: str = "") -> None:
        """Commit an offset to Kafka."""
        assert not self.access.coordinator().commit_offsets({partition: offset}, {partition: metadata})

    def delete(self) -> None:
        """Delete the group from Kafka."""
        delete_group(self.cluster.client_settings(), self._name)

    def read(self) -> dict[TopicPartition, tuple[int, str]]:
        """Return the offsets in Kafka with their metadata."""
        return {one: (found.offset, found.metadata) for one, found in self._read_committed().items()}


@pytest.fixture(params=[True, False], ids=["zookeeper", "kafka"])
def application_group(zkconsumer_cluster: Cluster, group: str, request: pytest.FixtureRequest) -> Iterator[Group]:
    properties = {"bootstrap.servers": zkconsumer_cluster.bootstrap_servers}
    if request.param:
        properties = zkconsumer_cluster.consumer_properties
    cluster = ApplicationCluster({**properties, "group.id": group})
    cluster.describe()
    with cluster.open() as access:
        yield Group(cluster, access, commits_to_kafka=not request.param)


def plan_of(topics: dict[str, int], **resets: Any) -> ApplicationPlan:
    topology = Topology()
    for number, topic in enumerate(topics):
        topology.add_source(f"source-{number}", topic, **resets).add_sink(f"sink-{number}", "out", f"source-{number}")
    config = ApplicationConfig(application_id="app")
    subtopologies = select_subtopologies(topology.resolve(topics), config, topics)
    return ApplicationPlan.create(subtopologies, config, topics, list_tasks(subtopologies), 1, GivenRecords())


# ---- members -----------------------------------------------------------------------------------------------


def test_group_without_members_is_accepted(application_group: Group) -> None:
    application_group.check_members()


def test_member_in_zookeeper_is_named(
    application_group: Group, consumer: Callable[..., ZookeeperConsumerConnector], topic: Topics
) -> None:
    consumer(consumer_id="one").create_message_streams({topic(1): 1})
    if application_group.cluster.has_zookeeper:
        with pytest.raises(StreamsError, match="is used by consumers in ZooKeeper: .*_one, owner of .*-0; stop them"):
            application_group.check_members()
    else:
        application_group.check_members()


def test_owner_without_registration_is_named(
    application_group: Group, zk: KazooClient, group: str, topic: Topics
) -> None:
    zk.ensure_path(f"/consumers/{group}/owners/{topic(1)}/0")
    if application_group.cluster.has_zookeeper:
        with pytest.raises(StreamsError, match="is used by consumers in ZooKeeper: owner of .*-0; stop them"):
            application_group.check_members()


def test_member_in_kafka_is_named(
    application_group: Group, zkconsumer_cluster: Cluster, group: str, topic: Topics
) -> None:
    settings = {"bootstrap.servers": zkconsumer_cluster.bootstrap_servers, "group.id": group, "client.id": "modern"}
    member = Consumer(settings)
    try:
        member.subscribe([topic(1)])
        wait_for(lambda: member.poll(0.1) is None and bool(member.assignment()), 60, what="the member has joined")
        with pytest.raises(StreamsError, match="is used by consumers in Kafka: modern-.* on .*; stop them first"):
            application_group.check_members()
        with pytest.raises(StreamsError, match="is used by consumers in Kafka; stop them first"):
            delete_group({"bootstrap.servers": zkconsumer_cluster.bootstrap_servers}, group)
    finally:
        member.close()
    application_group.check_members()


# ---- first start -------------------------------------------------------------------------------------------


def test_offsets_without_checkpoint_are_named(
    application_group: Group, topic: Topics, zk: KazooClient, group: str
) -> None:
    partition = TopicPartition(topic(1), 0)
    application_group.check_unused(PLACE)
    application_group.commit(partition, 0, FIRST_MARKER)
    application_group.check_unused(PLACE)
    if application_group.cluster.has_zookeeper:
        path = f"/consumers/{group}/offsets/{partition.topic}/0"
        zk.create(path, b"7", makepath=True)
        with pytest.raises(StreamsError, match=rf"c has no batches, but .* offset 7 .* {partition} in ZooKeeper; rest"):
            application_group.check_unused(PLACE)
        zk.set(path, b"seven")
        with pytest.raises(StreamsError, match=f"has no batches, but .* an offset: {path} must contain"):
            application_group.check_unused(PLACE)
        zk.set(path, b"-1")
    application_group.commit(partition, 5, Marker(QUERY, 3).to_metadata())
    with pytest.raises(StreamsError, match=rf"offset 5 for partition {partition} \(query {QUERY}, batch 3\); restore"):
        application_group.check_unused(PLACE)


def test_records_in_internal_topics_are_named(application_group: Group, topic: Topics, admin: Admin) -> None:
    empty, full = topic(2), topic(2)
    application_group.check_empty([], PLACE)
    application_group.check_empty([empty, full], PLACE)
    admin.produce(TopicPartition(full, 1), batch([b"a", b"b"]))
    with pytest.raises(StreamsError, match=f"c has no batches, but partition {full}-1 .* records at offsets 0 to 1;"):
        application_group.check_empty([empty, full], PLACE)


# ---- restart -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "batch_number", "error"),
    [(QUERY, 3, None), ("other", 3, "in query other, so query"), (QUERY, 4, "but this query is in batch 3: another")],
)
def test_offsets_of_another_query_are_named(
    application_group: Group, topic: Topics, query: str, batch_number: int, error: str | None
) -> None:
    application_group.commit(TopicPartition(topic(1), 0), 5, Marker(query, batch_number).to_metadata())
    progress = QueryProgress(QUERY, 3, 2)
    if error is None:
        application_group.check_query(progress)
    else:
        with pytest.raises(StreamsError, match=error):
            application_group.check_query(progress)


def test_each_task_has_marked_offset_after_start(application_group: Group, topic: Topics, admin: Admin) -> None:
    first, second = topic(2), topic(1)
    admin.produce(TopicPartition(first, 1), batch([b"a", b"b"]))
    for reset, end in (("earliest", 0), ("latest", 2)):
        plan = plan_of({first: 2, second: 1}, offset_reset=reset)
        application_group.check_markers(PLACE, QueryProgress(), plan, 0, allows_lost=False)
        assert application_group.read() == {
            TopicPartition(first, 0): (0, FIRST_MARKER),
            TopicPartition(first, 1): (end, FIRST_MARKER),
            TopicPartition(second, 0): (0, FIRST_MARKER),
        }
        if reset == "earliest":
            application_group.delete()


@pytest.mark.parametrize("progress", [QueryProgress(QUERY, 0, -1), QueryProgress(QUERY, 4, 3)], ids=["first", "later"])
@pytest.mark.parametrize("kept", [0, 1], ids=["all", "one"])
def test_lost_markers_are_named_if_batch_is_repeated(
    application_group: Group, topic: Topics, progress: QueryProgress, kept: int
) -> None:
    name = topic(2)
    plan = plan_of({name: 2})
    for number in range(kept):
        application_group.commit(TopicPartition(name, number), 1, Marker(QUERY, progress.planned).to_metadata())
    tasks = ", ".join(f"0_{number}" for number in range(kept, 2))
    with pytest.raises(StreamsError, match=rf"no committed offsets in Kafka for tasks {tasks}: .*\[.*MARKERS_LOST\]"):
        application_group.check_markers(PLACE, progress, plan, 2, allows_lost=False)
    application_group.check_markers(PLACE, progress, plan, 2, allows_lost=True)
    application_group.check_markers(PLACE, progress, plan, 2, allows_lost=False)


def test_lost_markers_are_replaced_if_no_batch_is_repeated(
    application_group: Group, topic: Topics, caplog: pytest.LogCaptureFixture
) -> None:
    partition = TopicPartition(topic(1), 0)
    progress = QueryProgress(QUERY, 3, 3, {partition: 7})
    application_group.check_markers(PLACE, progress, plan_of({partition.topic: 1}), 1, allows_lost=False)
    assert application_group.read() == {partition: (7, FIRST_MARKER)}
    assert "markers_lost" in caplog.text


def test_added_task_needs_no_marker(application_group: Group, topic: Topics) -> None:
    name = topic(2)
    application_group.commit(TopicPartition(name, 0), 1, Marker(QUERY, 4).to_metadata())
    application_group.check_markers(PLACE, QueryProgress(QUERY, 4, 3), plan_of({name: 2}), 1, allows_lost=False)
    assert application_group.read()[TopicPartition(name, 1)] == (0, FIRST_MARKER)
