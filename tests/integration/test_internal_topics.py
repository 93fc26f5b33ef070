"""Internal topics of applications: missing ACLs, and brokers without DeleteRecords."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import batches
import pytest
from aliases import Cluster
from kafka.admin import ACL, ACLFilter, ACLOperation, ACLPermissionType, KafkaAdminClient, ResourcePattern, ResourceType
from rights import authorizing_cluster
from waiting import wait_for

from zkconsumer.broker import protocol
from zkconsumer.devcluster import DevCluster
from zkconsumer.devcluster.load import batch
from zkconsumer.errors import StreamsError
from zkconsumer.message import TopicPartition
from zkconsumer.spark.streams.cluster import ApplicationCluster
from zkconsumer.spark.streams.internal_topics import InternalTopics

CLUSTER = ResourcePattern(ResourceType.CLUSTER, "kafka-cluster")


@pytest.fixture(scope="module")
def authorizing() -> Iterator[DevCluster]:
    with authorizing_cluster(kraft=True) as cluster:
        yield cluster


def open_topics(cluster: DevCluster, *names: str) -> InternalTopics:
    return InternalTopics(lambda: {"bootstrap.servers": cluster.bootstrap_servers}, "app", names, 0)


def allow_only(cluster: DevCluster, resource: ResourcePattern, operations: Iterable[ACLOperation]) -> None:
    """Grant all principals only these operations on a resource."""
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    try:
        rules = [ACL("User:*", "*", one, ACLPermissionType.ALLOW, resource) for one in operations]
        admin.create_acls(rules)
        any_rule = ACLFilter(None, None, ACLOperation.ANY, ACLPermissionType.ANY, resource)
        wait_for(lambda: len(admin.describe_acls(any_rule)[0]) >= len(rules), what="the broker applies the ACLs")
    finally:
        admin.close()


def test_missing_create_acl_names_topic_command(authorizing: DevCluster, unique: Callable[[str], str]) -> None:
    name = unique("app-counts-repartition")
    allow_only(authorizing, CLUSTER, [ACLOperation.ALTER, ACLOperation.CLUSTER_ACTION, ACLOperation.DESCRIBE])
    allow_only(authorizing, ResourcePattern(ResourceType.TOPIC, name), [ACLOperation.READ])

    with pytest.raises(StreamsError) as raised:
        open_topics(authorizing, name).create({name: 3})

    assert f"creation of internal topic '{name}' failed: TOPIC_AUTHORIZATION_FAILED (29)" in str(raised.value)
    assert f"kafka-topics.sh --bootstrap-server HOST:PORT --create --topic {name} --partitions 3" in str(raised.value)


def test_records_remain_without_delete_acl(
    authorizing: DevCluster, unique: Callable[[str], str], caplog: pytest.LogCaptureFixture
) -> None:
    name = authorizing.create_topic(unique("app-counts-repartition"), 1)
    authorizing.admin.produce(TopicPartition(name, 0), batch([b"a", b"b"]))
    allow_only(authorizing, ResourcePattern(ResourceType.TOPIC, name), [ACLOperation.READ, ACLOperation.DESCRIBE])

    purge_until_reported(open_topics(authorizing, name), name, caplog)

    assert "TOPIC_AUTHORIZATION_FAILED (29)" in caplog.text
    assert authorizing.admin.offsets(name, 1, protocol.EARLIEST) == {0: 0}


def test_topics_can_be_created_again_at_once(zkconsumer_cluster: Cluster, unique: Callable[[str], str]) -> None:
    names = [unique(f"app-{number}") for number in range(2)]
    properties = {"bootstrap.servers": zkconsumer_cluster.bootstrap_servers, "group.id": "app"}
    application = ApplicationCluster(properties)
    application.describe()
    topics = InternalTopics(application.client_settings, "app", names, 0)
    for _ in range(3):
        while missing := {name: 2 for name in names if name not in application.describe().partition_counts}:
            topics.create(missing)
        assert sorted(topics.delete(application.find_topics)) == sorted(names)
        assert not {*names} & application.describe().partition_counts.keys()
    assert topics.delete(application.find_topics) == []


@pytest.mark.slow
def test_records_remain_on_brokers_without_delete_records(
    unique: Callable[[str], str], caplog: pytest.LogCaptureFixture
) -> None:
    with DevCluster(kafka="0.10.2.2") as cluster:
        name = cluster.create_topic(unique("app-counts-repartition"), 1)
        records = [batches.Record(number, 1_000, None, b"a") for number in range(2)]
        cluster.admin.produce(TopicPartition(name, 0), batches.entry(1, records))

        purge_until_reported(open_topics(cluster, name), name, caplog)

        assert cluster.admin.offsets(name, 1, protocol.EARLIEST) == {0: 0}


def purge_until_reported(topics: InternalTopics, name: str, caplog: pytest.LogCaptureFixture) -> None:
    """Delete records until the failure is logged, and check that it is logged once."""

    def is_reported() -> bool:
        topics.purge({TopicPartition(name, 0): 2})
        return "internal_records_not_deleted" in caplog.text

    wait_for(is_reported, 40, what="the failure is logged")
    wait_for(lambda: all(one.done() for one in topics._pending.values()), 40, what="the last deletion ends")
    topics.purge({})
    assert caplog.text.count("internal_records_not_deleted") == 1
