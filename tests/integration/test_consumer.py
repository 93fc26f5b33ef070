"""Tests of members of a group with real brokers and ZooKeeper: ownership, and the messages of the streams.

The first part is a port of Kafka's ZookeeperConsumerConnectorTest.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from helpers import batches
from helpers.aliases import Cluster, Consumers, Topics
from helpers.producing import numbers, produce
from helpers.reading import Reader, by_partition, take, values
from helpers.threads import in_thread
from helpers.waiting import wait_for, wait_until_equal
from helpers.znodes import members, owners
from kafka import KafkaProducer
from kazoo.client import KazooClient

from zkconsumer import TopicPartition, string_decoder
from zkconsumer.devcluster.load import numbered_batch
from zkconsumer.errors import (
    ConsumerRebalanceFailedError,
    ConsumerTimeoutError,
    MessageStreamsExistError,
)


@pytest.fixture
def producer(zkconsumer_cluster: Cluster) -> Any:
    made = KafkaProducer(bootstrap_servers=zkconsumer_cluster.bootstrap_servers)
    yield made
    made.close(5)


# ---- kafka.consumer.ZookeeperConsumerConnectorTest ------------------------------------------------------


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_basic(codec: str, admin: Any, topic: Topics, group: str, consumer: Consumers, zk: KazooClient) -> None:
    name = topic(2)

    # The stream of an empty topic times out, and can be read again.
    with consumer(consumer_id="consumer0", consumer_timeout_ms=200) as connector0:
        stream0 = connector0.create_message_streams({name: 1})[name][0]
        for _ in range(2):
            with pytest.raises(ConsumerTimeoutError):
                next(stream0)

    # One member owns all partitions.
    produce(admin, name, 0, numbers(0, 100), codec=codec)
    produce(admin, name, 1, numbers(100, 200), codec=codec)
    connector1 = consumer(consumer_id="consumer1")
    stream1 = connector1.create_message_streams({name: 1})[name][0]
    assert sorted(values(take(stream1, 200)), key=int) == numbers(0, 200)
    assert owners(zk, group, name) == {0: f"{group}_consumer1-0", 1: f"{group}_consumer1-0"}
    connector1.commit_offsets()

    # Two members own one partition each.
    connector2 = consumer(consumer_id="consumer2")
    stream2 = connector2.create_message_streams({name: 1})[name][0]
    split = {0: f"{group}_consumer1-0", 1: f"{group}_consumer2-0"}
    assert owners(zk, group, name) == split
    produce(admin, name, 0, numbers(200, 300), codec=codec)
    produce(admin, name, 1, numbers(300, 400), codec=codec)
    assert values(take(stream1, 100)) == numbers(200, 300)
    assert values(take(stream2, 100)) == numbers(300, 400)

    # A third member without topics changes nothing.
    connector3 = consumer(consumer_id="consumer3")
    assert connector3.create_message_streams({}) == {}
    assert members(zk, group) == [f"{group}_consumer{number}" for number in (1, 2, 3)]
    produce(admin, name, 0, numbers(400, 500), codec=codec)
    produce(admin, name, 1, numbers(500, 600), codec=codec)
    assert values(take(stream1, 100)) == numbers(400, 500)
    assert values(take(stream2, 100)) == numbers(500, 600)
    assert owners(zk, group, name) == split

    with pytest.raises(MessageStreamsExistError):
        connector3.create_message_streams({})


def test_compressed_sets_are_consumed_completely(
    admin: Any, topic: Topics, group: str, consumer: Consumers, zk: KazooClient
) -> None:
    name = topic(2)
    for partition in (0, 1):
        produce(admin, name, partition, numbers(0, 200), codec="gzip")

    connector = consumer(consumer_id="consumer1")
    messages = take(connector.create_message_streams({name: 1})[name][0], 400)

    assert by_partition(messages) == {0: list(range(200)), 1: list(range(200))}
    assert owners(zk, group, name) == {0: f"{group}_consumer1-0", 1: f"{group}_consumer1-0"}


def test_string_decoder_returns_text(admin: Any, topic: Topics, consumer: Consumers) -> None:
    name = topic()
    sent = [f"test-é€-{number}" for number in range(50)]
    produce(admin, name, 0, [text.encode() for text in sent])

    [stream] = consumer().create_message_streams({name: 1}, string_decoder, string_decoder)[name]

    assert [(message.key, message.value) for message in take(stream, 50)] == [(None, text) for text in sent]


def test_single_partition_has_one_owner(
    admin: Any, topic: Topics, group: str, consumer: Consumers, zk: KazooClient
) -> None:
    name = topic()
    produce(admin, name, 0, numbers(0, 2))
    connector = consumer(consumer_id="consumer1")

    [stream] = connector.create_message_streams({name: 1})[name]

    assert connector.assignment == {TopicPartition(name, 0): f"{group}_consumer1-0"}
    assert owners(zk, group, name) == {0: f"{group}_consumer1-0"}
    assert values(take(stream, 2)) == numbers(0, 2)


# ---- members that join and leave --------------------------------------------------------------------------


def test_partitions_of_leaving_member_move_and_continue(
    admin: Any, topic: Topics, group: str, consumer: Consumers, zk: KazooClient
) -> None:
    name = topic(2)
    first, second = (consumer(consumer_id=i, consumer_timeout_ms=-1) for i in ("one", "two"))
    readers = [Reader(c.create_message_streams({name: 1})[name][0]) for c in (first, second)]
    wait_until_equal(lambda: owners(zk, group, name), {0: f"{group}_one-0", 1: f"{group}_two-0"})
    for partition in (0, 1):
        produce(admin, name, partition, numbers(0, 100))
    wait_for(lambda: [len(reader.seen) for reader in readers] == [100, 100])

    first.shutdown()
    wait_until_equal(lambda: owners(zk, group, name), {0: f"{group}_two-0", 1: f"{group}_two-0"})
    for partition in (0, 1):
        produce(admin, name, partition, numbers(100, 200))

    # Both members had requested the next message, so all messages count as consumed and none is repeated.
    wait_for(lambda: len(readers[1].seen) == 300)
    assert by_partition(readers[1].seen) == {1: list(range(200)), 0: list(range(100, 200))}
    readers[0].finish()


def test_members_of_other_topics_keep_partitions(
    topic: Topics, group: str, consumer: Consumers, zk: KazooClient
) -> None:
    mine, other = topic(1), topic(1)
    one, two = consumer(consumer_id="one"), consumer(consumer_id="two")
    one.create_message_streams({mine: 1})
    before = zk.get(f"/consumers/{group}/owners/{mine}/0")[1].czxid

    two.create_message_streams({other: 1})

    assert owners(zk, group, other) == {0: f"{group}_two-0"}
    assert zk.get(f"/consumers/{group}/owners/{mine}/0")[1].czxid == before, "the owner znode was not re-created"


def test_surplus_threads_get_no_partition(
    admin: Any, topic: Topics, group: str, consumer: Consumers, zk: KazooClient
) -> None:
    name = topic(1)
    produce(admin, name, 0, numbers(0, 3))

    streams = consumer(consumer_id="c").create_message_streams({name: 3})[name]

    assert owners(zk, group, name) == {0: f"{group}_c-0"}
    assert values(take(streams[0], 3)) == numbers(0, 3)


def test_streams_get_partitions_of_range_assignor(
    admin: Any, topic: Topics, group: str, consumer: Consumers, zk: KazooClient
) -> None:
    orders, payments = topic(5), topic(2)
    for name, partitions in ((orders, 5), (payments, 2)):
        for partition in range(partitions):
            produce(admin, name, partition, numbers(0, 10))
    a, b = (consumer(consumer_id=i, num_consumer_fetchers=2) for i in ("a", "b"))
    streams_a = a.create_message_streams({orders: 2, payments: 1})
    streams_b = b.create_message_streams({orders: 1})

    wait_until_equal(
        lambda: owners(zk, group, orders),
        {0: f"{group}_a-0", 1: f"{group}_a-0", 2: f"{group}_a-1", 3: f"{group}_a-1", 4: f"{group}_b-0"},
    )
    assert owners(zk, group, payments) == {0: f"{group}_a-0", 1: f"{group}_a-0"}
    found = [
        by_partition(take(streams_a[orders][0], 20)).keys(),
        by_partition(take(streams_a[orders][1], 20)).keys(),
        by_partition(take(streams_a[payments][0], 20)).keys(),
        by_partition(take(streams_b[orders][0], 10)).keys(),
    ]
    assert found == [{0, 1}, {2, 3}, {0, 1}, {4}]


def test_added_partitions_are_consumed(
    admin: Any, topic: Topics, group: str, consumer: Consumers, zk: KazooClient
) -> None:
    name = topic(1)
    [stream] = consumer(consumer_id="c").create_message_streams({name: 1})[name]
    produce(admin, name, 0, [b"before"])
    assert values(take(stream, 1)) == [b"before"]

    admin.create_partitions(name, 3)
    produce(admin, name, 2, [b"after"])

    assert [(m.partition, m.value) for m in take(stream, 1)] == [(2, b"after")]
    wait_until_equal(lambda: owners(zk, group, name), dict.fromkeys(range(3), f"{group}_c-0"))


def test_topic_created_later_is_consumed(
    admin: Any, topic: Topics, unique: Callable[[str], str], consumer: Consumers
) -> None:
    name = unique("t")
    connector = consumer()
    [stream] = connector.create_message_streams({name: 1})[name]
    assert connector.assignment == {}

    topic(name=name)
    produce(admin, name, 0, [b"first"])

    assert values(take(stream, 1)) == [b"first"]


def test_member_waits_for_blocking_owner_znode(
    admin: Any, topic: Topics, group: str, consumer: Consumers, zk: KazooClient
) -> None:
    name = topic(1)
    produce(admin, name, 0, numbers(0, 1))
    zk.create(f"/consumers/{group}/owners/{name}/0", b"other_member-0", makepath=True)
    connector = consumer(consumer_id="c")
    joining = in_thread(lambda: connector.create_message_streams({name: 1}))
    wait_until_equal(lambda: members(zk, group), [f"{group}_c"])

    zk.delete(f"/consumers/{group}/owners/{name}/0")

    assert values(take(joining.result()[name][0], 1)) == numbers(0, 1)
    assert owners(zk, group, name) == {0: f"{group}_c-0"}


def test_first_rebalance_fails_after_max_retries(
    topic: Topics, group: str, consumer: Consumers, zk: KazooClient
) -> None:
    name = topic(2)
    zk.create(f"/consumers/{group}/owners/{name}/1", b"other_member-0", makepath=True)
    connector = consumer(
        consumer_id="c", rebalance_max_retries=2, rebalance_backoff_ms=50, zookeeper_session_timeout_ms=1500
    )

    with pytest.raises(ConsumerRebalanceFailedError) as raised:
        connector.create_message_streams({name: 1})

    assert f"consumer {group}_c failed to rebalance after" in str(raised.value)
    assert f"/consumers/{group}/owners/{name}/1" in str(raised.value)
    assert members(zk, group) == []
    assert owners(zk, group, name) == {1: "other_member-0"}


def test_unreadable_registration_stops_only_new_claims(
    admin: Any, topic: Topics, group: str, consumer: Consumers, zk: KazooClient
) -> None:
    name = topic(2)
    one = consumer(consumer_id="one")
    [stream] = one.create_message_streams({name: 1})[name]
    foreign = f"/consumers/{group}/ids/{group}_foreign"
    zk.create(foreign, b"no registration")
    two = consumer(consumer_id="two", rebalance_max_retries=1, zookeeper_session_timeout_ms=1500)

    with pytest.raises(ConsumerRebalanceFailedError) as raised:
        two.create_message_streams({name: 1})
    produce(admin, name, 0, numbers(0, 5))

    assert foreign in str(raised.value)
    assert "no registration" in str(raised.value)
    assert values(take(stream, 5)) == numbers(0, 5)
    assert owners(zk, group, name) == {0: f"{group}_one-0", 1: f"{group}_one-0"}

    zk.delete(foreign)
    three = consumer(consumer_id="three")
    three.create_message_streams({name: 1})
    wait_until_equal(lambda: owners(zk, group, name), {0: f"{group}_one-0", 1: f"{group}_three-0"})


# ---- returned messages ------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", range(5), ids=batches.CODEC_NAMES)
def test_all_codecs_are_read_as_messages_and_batches(
    codec: int, admin: Any, topic: Topics, group: str, consumer: Consumers
) -> None:
    name = topic()
    now = int(time.time() * 1000)
    records = [batches.Record(n, now + n, b"key-%d" % n, b"value-%d " % n * 20) for n in range(250)]
    for _ in range(2):
        admin.produce(TopicPartition(name, 0), batches.batch(records, codec))

    [stream] = consumer().create_message_streams({name: 1})[name]
    [other] = consumer(group_id=f"{group}-batches").create_message_streams({name: 1})[name]
    messages = take(stream, 500)
    rows: list[dict[str, Any]] = []
    for batch in other.batches(100):
        rows.extend(batch.to_pylist())
        if len(rows) >= 500:
            break

    assert [(m.key, m.value, m.timestamp) for m in messages] == [
        (record.key, record.value, record.timestamp) for record in records * 2
    ]
    assert [m.offset for m in messages] == list(range(500))
    assert rows == [
        {
            "key": m.key,
            "value": m.value,
            "topic": m.topic,
            "partition": m.partition,
            "offset": m.offset,
            "timestamp": datetime.fromtimestamp(m.timestamp / 1000, UTC),
            "timestampType": m.timestamp_type,
        }
        for m in messages
    ]


def test_headers_and_nulls_are_delivered_unchanged(producer: Any, topic: Topics, consumer: Consumers) -> None:
    name = topic()
    sent = [
        (b"key", b"value", [("a", b"1"), ("a", b"2"), ("é", b"\xff\x00")]),
        (None, b"no key", []),
        (b"no value", None, [("tombstone", b"")]),
        (b"", b"", []),
    ]
    for key, value, headers in sent:
        producer.send(name, key=key, value=value, headers=headers, timestamp_ms=1_700_000_000_000)
    producer.flush(20)

    [stream] = consumer().create_message_streams({name: 1})[name]
    messages = take(stream, 4)

    assert [(m.key, m.value, list(m.headers)) for m in messages] == sent
    assert {(m.timestamp, m.timestamp_type) for m in messages} == {(1_700_000_000_000, 0)}


def test_log_append_time_is_delivered(admin: Any, topic: Topics, consumer: Consumers) -> None:
    name = topic(config={"message.timestamp.type": "LogAppendTime"})
    before = int(time.time() * 1000)
    produce(admin, name, 0, numbers(0, 3))

    messages = take(consumer().create_message_streams({name: 1})[name][0], 3)

    assert {m.timestamp_type for m in messages} == {1}
    assert all(before - 1000 <= m.timestamp <= time.time() * 1000 + 1000 for m in messages)


def test_record_larger_than_fetch_size_is_read(admin: Any, topic: Topics, consumer: Consumers) -> None:
    name = topic(2)
    large = b"x" * 300_000
    for partition in (0, 1):
        produce(admin, name, partition, [b"small"])
        produce(admin, name, partition, [large])
        produce(admin, name, partition, [b"end"])

    messages = take(consumer(fetch_message_max_bytes=1000).create_message_streams({name: 1})[name][0], 6)

    for partition in (0, 1):
        assert values(m for m in messages if m.partition == partition) == [b"small", large, b"end"]


def transactional(cluster: Cluster, name: str) -> Any:
    made = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, transactional_id=f"{name}-tx")
    made.init_transactions()
    return made


def send_in_transaction(producer: Any, name: str, value: bytes, *, commit: bool | None) -> None:
    """Send one value in a separate transaction, which stays open if ``commit`` is None."""
    producer.begin_transaction()
    producer.send(name, value=value).get(20)
    if commit is not None:
        (producer.commit_transaction if commit else producer.abort_transaction)()


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_isolation_level_controls_uncommitted_records(
    level: str, zkconsumer_cluster: Cluster, admin: Any, topic: Topics, consumer: Consumers
) -> None:
    name = topic()
    writer = transactional(zkconsumer_cluster, name)
    try:
        produce(admin, name, 0, [b"plain"])
        send_in_transaction(writer, name, b"aborted", commit=False)
        send_in_transaction(writer, name, b"committed", commit=True)
        send_in_transaction(writer, name, b"open", commit=None)
        connector = consumer(isolation_level=level)
        stream = connector.create_message_streams({name: 1})[name][0]
        uncommitted = level == "read_uncommitted"

        seen = values(take(stream, 4 if uncommitted else 2))
        assert seen == ([b"plain", b"aborted", b"committed", b"open"] if uncommitted else [b"plain", b"committed"])

        writer.commit_transaction()
        # The log contains: plain, aborted, marker, committed, marker, open, marker.
        wait_until_equal(lambda: admin.offsets(name, 1), {0: 7})
        produce(admin, name, 0, [b"last"])
        assert values(take(stream, 1 if uncommitted else 2)) == ([b"last"] if uncommitted else [b"open", b"last"])
        assert connector.commit_offsets() == {TopicPartition(name, 0): 8}
    finally:
        writer.close(5)


# ---- bounds ------------------------------------------------------------------------------------------------


def test_unread_stream_is_bounded_and_blocks_no_other(admin: Any, topic: Topics, consumer: Consumers) -> None:
    name, count, size = topic(4), 20_000, 100
    for partition in range(4):
        for first in range(0, count, 500):
            admin.produce(TopicPartition(name, partition), numbered_batch(first, 500, size=size))
    chunk = 64 * 1024
    connector = consumer(fetch_message_max_bytes=chunk, queued_max_message_chunks=2)
    unread, *others = connector.create_message_streams({name: 4})[name]

    readers = [in_thread(partial(take, stream, count)) for stream in others]
    for number, reader in enumerate(readers, 1):
        assert [(m.partition, m.offset) for m in reader.result()] == [(number, offset) for offset in range(count)]

    # Two chunks are in the queue, and one may be in flight. All other records have not been fetched.
    assert connector.lag[TopicPartition(name, 0)] >= count - 3 * chunk // size
    assert [m.offset for m in take(unread, count)] == list(range(count))
    wait_until_equal(lambda: connector.lag[TopicPartition(name, 0)], 0)


def test_busy_partition_does_not_starve_others(admin: Any, topic: Topics, consumer: Consumers) -> None:
    name, chunk = topic(2), 64 * 1024
    for first in range(0, 50_000, 500):
        admin.produce(TopicPartition(name, 0), numbered_batch(first, 500))
    produce(admin, name, 1, [b"here too"])
    connector = consumer(fetch_message_max_bytes=chunk)
    [stream] = connector.create_message_streams({name: 1})[name]
    wait_for(lambda: connector.lag[TopicPartition(name, 1)] == 0 and connector.lag[TopicPartition(name, 0)] >= 0)

    read = 0
    for message in stream:
        read += 1
        if message.partition == 1:
            break

    assert read <= 2 * chunk // 100, "at most the first chunk and one more"


def test_lag_is_distance_to_log_end(admin: Any, topic: Topics, consumer: Consumers) -> None:
    name = topic()
    connector = consumer(auto_offset_reset="largest")
    [stream] = connector.create_message_streams({name: 1})[name]
    wait_until_equal(lambda: connector.lag, {TopicPartition(name, 0): 0})

    produce(admin, name, 0, numbers(0, 7))
    take(stream, 7)

    wait_until_equal(lambda: connector.lag, {TopicPartition(name, 0): 0})
