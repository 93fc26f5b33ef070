"""Topics of applications: missing ACLs, and brokers without DeleteRecords."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer
from confluent_kafka import TopicPartition as Assigned
from helpers import batches
from helpers.aliases import Cluster
from helpers.rights import allow_only, authorizing_cluster, find_committed
from helpers.sinks import sink_settings
from helpers.waiting import wait_for
from kafka.admin import ACLOperation, ResourcePattern, ResourceType

from zkconsumer.devcluster import DevCluster
from zkconsumer.devcluster.load import batch
from zkconsumer.errors import StreamsError, TopicAuthorizationError
from zkconsumer.log_ends import EARLIEST
from zkconsumer.message import TopicPartition
from zkconsumer.spark.streams.cluster import ApplicationCluster
from zkconsumer.spark.streams.internal_topics import InternalTopics
from zkconsumer.spark.streams.markers import Marker, encode_offsets
from zkconsumer.spark.streams.output import ProcessingGuarantee, TaskOutput
from zkconsumer.spark.streams.packing import to_blob
from zkconsumer.spark.streams.task_writer import TaskWriters
from zkconsumer.topology.handlers import log_and_continue

CLUSTER = ResourcePattern(ResourceType.CLUSTER, "kafka-cluster")


@pytest.fixture(scope="module")
def authorizing() -> Iterator[DevCluster]:
    with authorizing_cluster(kraft=True) as cluster:
        yield cluster


def open_topics(cluster: DevCluster, *names: str) -> InternalTopics:
    return InternalTopics(lambda: {"bootstrap.servers": cluster.bootstrap_servers}, "app", names, 0)


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
    assert authorizing.admin.offsets(name, 1, EARLIEST) == {0: 0}


@pytest.mark.parametrize("guarantee", list(ProcessingGuarantee), ids=lambda one: one.value)
def test_output_is_written_after_write_acl_is_granted(
    authorizing: DevCluster, unique: Callable[[str], str], guarantee: ProcessingGuarantee
) -> None:
    """Without the WRITE permission, no record is skipped, even if the handler skips all rejected records."""
    source, allowed, denied = (authorizing.create_topic(unique(name), 1) for name in ("source", "allowed", "denied"))
    group, marker = unique("app"), Marker("query", 0)
    settings = sink_settings(
        authorizing.bootstrap_servers, application_id=group, guarantee=guarantee, handler=log_and_continue
    )
    is_transactional = guarantee is ProcessingGuarantee.EXACTLY_ONCE_V2
    values = [b"%d" % number for number in range(20)]
    batch = pa.record_batch(
        {
            "topic": pa.array([denied if number % 2 else allowed for number in range(20)]).dictionary_encode(),
            "partition": pa.array([0] * 20, pa.int32()),
            "timestamp": pa.array([1_000] * 20, pa.int64()),
            "key": pa.nulls(20, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "headers": pa.nulls(20, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        }
    )
    partition = TopicPartition(source, 0)
    output = TaskOutput("0_0", 0, encode_offsets({partition: 20}), to_blob(batch))
    writers, resource = TaskWriters(), ResourcePattern(ResourceType.TOPIC, denied)
    allow_only(authorizing, resource, [ACLOperation.READ, ACLOperation.DESCRIBE])
    try:
        for _ in range(2):
            with pytest.raises(TopicAuthorizationError, match=f"topic .*'{denied}'.*; grant WRITE on the topic to the"):
                writers.write(settings.encode(), output, marker, None)
        assert not is_transactional or find_committed(authorizing, group, partition) == -1
        allow_only(authorizing, resource, [ACLOperation.WRITE])
        assert writers.write(settings.encode(), output, marker, None) == {}
    finally:
        writers.close()

    assert read_values(authorizing, denied, 10) == values[1::2]
    if is_transactional:
        assert find_committed(authorizing, group, partition) == 20
        assert read_values(authorizing, allowed, 10) == values[::2]


def read_values(cluster: DevCluster, topic: str, count: int) -> list[bytes]:
    """Return the first values of a topic with one partition."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "unused"})
    try:
        consumer.assign([Assigned(topic, 0, OFFSET_BEGINNING)])
        found: list[bytes] = []

        def has_all() -> bool:
            found.extend(message.value() for message in consumer.consume(100, 0.5))
            return len(found) >= count

        wait_for(has_all, what=f"{count} records can be read")
        return found
    finally:
        consumer.close()


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

        assert cluster.admin.offsets(name, 1, EARLIEST) == {0: 0}


def purge_until_reported(topics: InternalTopics, name: str, caplog: pytest.LogCaptureFixture) -> None:
    """Delete records until the failure is logged, and check that it is logged once."""

    def is_reported() -> bool:
        topics.purge({TopicPartition(name, 0): 2})
        return "internal_records_not_deleted" in caplog.text

    wait_for(is_reported, 40, what="the failure is logged")
    wait_for(lambda: all(one.done() for one in topics._pending.values()), 40, what="the last deletion ends")
    topics.purge({})
    assert caplog.text.count("internal_records_not_deleted") == 1
