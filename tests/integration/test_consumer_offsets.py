"""Tests of start offsets and commits of a member, with the offset znodes."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from helpers.aliases import Consumers, Topics
from helpers.producing import numbers, produce
from helpers.reading import Reader, take, values
from helpers.waiting import wait_for, wait_until_equal
from helpers.znodes import stored
from kazoo.client import KazooClient

from zkconsumer import TopicPartition, Whitelist
from zkconsumer.errors import ClosedError, ConsumerTimeoutError, OwnershipLostError


def store(zk: KazooClient, group: str, topic: str, partition: int, text: bytes) -> None:
    """Write an offset znode, as a tool or another member does."""
    path = f"/consumers/{group}/offsets/{topic}/{partition}"
    if zk.exists(path):
        zk.set(path, text)
    else:
        zk.create(path, text, makepath=True)


# ---- where to start: kafka.consumer.AutoOffsetResetTest -------------------------------------------------


@pytest.mark.parametrize("offset", [b"10000", b"-1", None], ids=["beyond the end", "minus one", "none"])
def test_smallest_starts_at_log_start(
    offset: bytes | None, admin: Any, topic: Topics, group: str, consumer: Consumers, zk: KazooClient
) -> None:
    name = topic()
    produce(admin, name, 0, numbers(0, 10))
    if offset is not None:
        store(zk, group, name, 0, offset)
    connector = consumer(auto_offset_reset="smallest")

    [stream] = connector.create_message_streams({name: 1})[name]

    assert values(take(stream, 10)) == numbers(0, 10)
    assert connector.commit_offsets() == {TopicPartition(name, 0): 10}
    assert stored(zk, group, name) == {0: "10"}


@pytest.mark.parametrize("offset", [b"10000", b"-1", None], ids=["beyond the end", "minus one", "none"])
def test_largest_starts_at_log_end(
    offset: bytes | None, admin: Any, topic: Topics, group: str, consumer: Consumers, zk: KazooClient
) -> None:
    name = topic()
    produce(admin, name, 0, numbers(0, 10))
    if offset is not None:
        store(zk, group, name, 0, offset)
    connector = consumer(auto_offset_reset="largest")
    [stream] = connector.create_message_streams({name: 1})[name]
    wait_until_equal(lambda: connector.lag, {TopicPartition(name, 0): 0})

    produce(admin, name, 0, [b"the first to be seen"])

    assert values(take(stream, 1)) == [b"the first to be seen"]
    assert connector.commit_offsets() == {TopicPartition(name, 0): 11}


@pytest.mark.parametrize("leave", ["shutdown", "auto commit"])
def test_unread_partition_keeps_start_after_rebalance(
    leave: str, admin: Any, topic: Topics, group: str, consumer: Consumers, zk: KazooClient
) -> None:
    """Without this offset, the next owner would start at the end offset and skip the records produced meanwhile."""
    name = topic()
    produce(admin, name, 0, numbers(0, 10))
    interval = 50 if leave == "auto commit" else 60_000
    busy = consumer(auto_offset_reset="largest", auto_commit_interval_ms=interval)
    busy.create_message_streams({name: 1})
    wait_until_equal(lambda: busy.lag, {TopicPartition(name, 0): 0})
    produce(admin, name, 0, numbers(10, 20))

    if leave == "auto commit":
        wait_until_equal(lambda: stored(zk, group, name), {0: "10"})
    busy.shutdown()

    [stream] = consumer(auto_offset_reset="largest").create_message_streams({name: 1})[name]
    assert values(take(stream, 10)) == numbers(10, 20)


@pytest.mark.parametrize("reset", ["smallest", "largest"])
def test_committed_offset_overrides_reset(
    reset: str, admin: Any, topic: Topics, group: str, consumer: Consumers, zk: KazooClient
) -> None:
    name = topic()
    produce(admin, name, 0, numbers(0, 10))
    store(zk, group, name, 0, b"7")

    [stream] = consumer(auto_offset_reset=reset).create_message_streams({name: 1})[name]

    assert [message.offset for message in take(stream, 3)] == [7, 8, 9]


def test_log_end_is_a_valid_start(admin: Any, topic: Topics, group: str, consumer: Consumers, zk: KazooClient) -> None:
    name = topic()
    produce(admin, name, 0, numbers(0, 10))
    store(zk, group, name, 0, b"10")
    connector = consumer()
    [stream] = connector.create_message_streams({name: 1})[name]
    wait_until_equal(lambda: connector.lag, {TopicPartition(name, 0): 0})

    produce(admin, name, 0, [b"next"])

    assert [(m.offset, m.value) for m in take(stream, 1)] == [(10, b"next")]


def test_reset_of_offset_beyond_log_lowers_commit(
    admin: Any, topic: Topics, group: str, consumer: Consumers, zk: KazooClient
) -> None:
    """The offset is beyond the end of the log after a topic was re-created under the same name."""
    name = topic()
    produce(admin, name, 0, numbers(0, 5))
    store(zk, group, name, 0, b"6")
    connector = consumer(auto_offset_reset="smallest", consumer_timeout_ms=-1)
    reader = Reader(connector.create_message_streams({name: 1})[name][0])

    wait_for(lambda: len(reader.seen) == 5)
    connector.shutdown()

    reader.finish()
    assert stored(zk, group, name) == {0: "5"}


# ---- stored by itself -------------------------------------------------------------------------------------


def test_auto_commit_excludes_current_message(
    admin: Any, topic: Topics, group: str, consumer: Consumers, zk: KazooClient
) -> None:
    name = topic()
    produce(admin, name, 0, numbers(0, 10))
    [stream] = consumer(auto_commit_interval_ms=50).create_message_streams({name: 1})[name]

    for read in (5, 1, 4):
        before = int(stored(zk, group, name).get(0, "0"))
        message = take(stream, read)[-1]
        wait_until_equal(lambda: stored(zk, group, name), {0: str(message.offset)})
        assert before <= message.offset


def test_shutdown_commits_consumed_messages(
    admin: Any, topic: Topics, group: str, consumer: Consumers, zk: KazooClient
) -> None:
    name = topic()
    produce(admin, name, 0, numbers(0, 10))
    connector = consumer()
    take(connector.create_message_streams({name: 1})[name][0], 4)

    connector.shutdown()

    assert stored(zk, group, name) == {0: "3"}


def test_with_block_commits_all_delivered_messages(
    admin: Any, topic: Topics, group: str, consumer: Consumers, zk: KazooClient
) -> None:
    name = topic(2)
    for partition in (0, 1):
        produce(admin, name, partition, numbers(0, 4))

    with consumer() as connector:
        take(connector.create_message_streams({name: 1})[name][0], 8)

    assert stored(zk, group, name) == {0: "4", 1: "4"}


def test_exception_in_with_block_excludes_current_message(
    admin: Any, topic: Topics, group: str, consumer: Consumers, zk: KazooClient
) -> None:
    name = topic()
    produce(admin, name, 0, numbers(0, 10))

    def fails_at_the_third_message() -> None:
        with consumer() as connector:
            for message in connector.create_message_streams({name: 1})[name][0]:
                if message.offset == 2:
                    raise RuntimeError("processing failed")

    with pytest.raises(RuntimeError, match="processing failed"):
        fails_at_the_third_message()

    assert stored(zk, group, name) == {0: "2"}


def test_no_commit_without_auto_commit(
    admin: Any, topic: Topics, group: str, consumer: Consumers, zk: KazooClient
) -> None:
    name = topic()
    produce(admin, name, 0, numbers(0, 10))

    with consumer(auto_commit_enable=False, auto_commit_interval_ms=10) as connector:
        take(connector.create_message_streams({name: 1})[name][0], 5)
    assert stored(zk, group, name) == {}

    with consumer(auto_commit_enable=False) as connector:
        take(connector.create_message_streams({name: 1})[name][0], 5)
        connector.commit_offsets()
    assert stored(zk, group, name) == {0: "5"}


def test_rebalance_commits_before_release(
    admin: Any, topic: Topics, group: str, consumer: Consumers, zk: KazooClient
) -> None:
    name = topic(2)
    for partition in (0, 1):
        produce(admin, name, partition, numbers(0, 10))
    one = consumer(consumer_id="one", consumer_timeout_ms=-1)
    reader = Reader(one.create_message_streams({name: 1})[name][0])
    wait_for(lambda: len(reader.seen) == 20)

    [stream] = consumer(consumer_id="two").create_message_streams({name: 1})[name]
    produce(admin, name, 1, [b"new"])

    assert [(m.partition, m.offset) for m in take(stream, 1)] == [(1, 10)]
    assert stored(zk, group, name)[1] == "10"


# ---- stored by the application ---------------------------------------------------------------------------


def test_commit_offsets_includes_current_message(
    admin: Any, topic: Topics, group: str, consumer: Consumers, zk: KazooClient
) -> None:
    name = topic(2)
    produce(admin, name, 0, numbers(0, 10))
    connector = consumer()
    [stream] = connector.create_message_streams({name: 1})[name]
    take(stream, 4)

    assert connector.commit_offsets()[TopicPartition(name, 0)] == 4
    assert stored(zk, group, name)[0] == "4"


def test_auto_commit_does_not_lower_commit_offsets(
    admin: Any,
    topic: Topics,
    group: str,
    consumer: Consumers,
    zk: KazooClient,
    caplog: pytest.LogCaptureFixture,
) -> None:
    name = topic()
    produce(admin, name, 0, numbers(0, 10))
    connector = consumer(auto_commit_interval_ms=20)
    [stream] = connector.create_message_streams({name: 1})[name]
    take(stream, 4)
    connector.commit_offsets()
    version = zk.get(f"/consumers/{group}/offsets/{name}/0")[1].version

    connector.shutdown()

    data, stat = zk.get(f"/consumers/{group}/offsets/{name}/0")
    assert (data, stat.version) == (b"4", version)
    assert "offset_commit_skipped" not in caplog.text, "no commit was skipped"


def test_application_offsets_may_be_lower(
    admin: Any, topic: Topics, group: str, consumer: Consumers, zk: KazooClient
) -> None:
    name = topic(2)
    for partition in (0, 1):
        produce(admin, name, partition, numbers(0, 10))
    connector = consumer(auto_commit_enable=False)
    take(connector.create_message_streams({name: 1})[name][0], 20)
    connector.commit_offsets()

    own = {TopicPartition(name, 0): 3, TopicPartition(name, 1): 9}
    assert connector.commit_offsets(own) == own
    assert stored(zk, group, name) == {0: "3", 1: "9"}

    connector.shutdown()
    [stream] = consumer().create_message_streams({name: 1})[name]
    assert sorted((m.partition, m.offset) for m in take(stream, 8)) == [*((0, o) for o in range(3, 10)), (1, 9)]


def test_empty_offset_map_commits_nothing(
    admin: Any, topic: Topics, group: str, consumer: Consumers, zk: KazooClient
) -> None:
    name = topic()
    produce(admin, name, 0, numbers(0, 3))
    connector = consumer(auto_commit_enable=False)
    take(connector.create_message_streams({name: 1})[name][0], 3)

    assert connector.commit_offsets({}) == {}
    assert stored(zk, group, name) == {}


def test_offsets_of_other_members_are_rejected(topic: Topics, group: str, consumer: Consumers, zk: KazooClient) -> None:
    name = topic()
    connector = consumer(consumer_id="c")
    connector.create_message_streams({name: 1})

    with pytest.raises(OwnershipLostError, match=f"partition {name}-7 is not owned by consumer {group}_c"):
        connector.commit_offsets({TopicPartition(name, 0): 1, TopicPartition(name, 7): 1})

    assert stored(zk, group, name) == {}


def test_commit_outside_lifetime_does_nothing(topic: Topics, consumer: Consumers) -> None:
    connector = consumer()
    with pytest.raises(ClosedError):
        connector.commit_offsets()
    connector.create_message_streams({topic(): 1})
    connector.shutdown()

    with pytest.raises(ClosedError):
        connector.commit_offsets()


# ---- never back ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["auto commit", "commit_offsets"])
def test_offset_raised_by_operator_is_kept(
    by: str, admin: Any, topic: Topics, group: str, consumer: Consumers, zk: KazooClient
) -> None:
    name = topic()
    produce(admin, name, 0, numbers(0, 10))
    connector = consumer(auto_commit_interval_ms=20 if by == "auto commit" else 60_000)
    [stream] = connector.create_message_streams({name: 1})[name]
    take(stream, 2)
    connector.commit_offsets()
    store(zk, group, name, 0, b"9")

    take(stream, 2)
    if by == "commit_offsets":
        assert connector.commit_offsets() == {TopicPartition(name, 0): 9}
    connector.shutdown()

    assert stored(zk, group, name) == {0: "9"}


def test_commit_above_operators_offset_succeeds(
    admin: Any, topic: Topics, group: str, consumer: Consumers, zk: KazooClient
) -> None:
    name = topic()
    produce(admin, name, 0, numbers(0, 10))
    connector = consumer()
    [stream] = connector.create_message_streams({name: 1})[name]
    take(stream, 2)
    connector.commit_offsets()
    store(zk, group, name, 0, b"5")

    take(stream, 6)

    assert connector.commit_offsets() == {TopicPartition(name, 0): 8}
    assert stored(zk, group, name) == {0: "8"}


def test_deleted_offset_znode_is_re_created(
    admin: Any, topic: Topics, group: str, consumer: Consumers, zk: KazooClient, caplog: pytest.LogCaptureFixture
) -> None:
    name = topic()
    produce(admin, name, 0, numbers(0, 10))
    connector = consumer()
    [stream] = connector.create_message_streams({name: 1})[name]
    take(stream, 2)
    connector.commit_offsets()
    zk.delete(f"/consumers/{group}/offsets", recursive=True)

    take(stream, 2)
    connector.commit_offsets()

    assert stored(zk, group, name) == {0: "4"}
    assert "committed_offset_missing" in caplog.text


def test_unchanged_offset_is_not_written(
    admin: Any, topic: Topics, group: str, consumer: Consumers, zk: KazooClient
) -> None:
    """KAFKA-987: idle members do not write to ZooKeeper."""
    name = topic()
    produce(admin, name, 0, numbers(0, 3))
    connector = consumer()
    take(connector.create_message_streams({name: 1})[name][0], 3)

    for _ in range(3):
        connector.commit_offsets()

    assert zk.get(f"/consumers/{group}/offsets/{name}/0")[1].version == 0


def test_invalid_offset_znode_is_reported(topic: Topics, group: str, consumer: Consumers, zk: KazooClient) -> None:
    name = topic()
    store(zk, group, name, 0, b"ten")
    connector = consumer(rebalance_max_retries=1, zookeeper_session_timeout_ms=1500)

    with pytest.raises(Exception, match="ten") as raised:
        connector.create_message_streams({name: 1})

    assert f"/consumers/{group}/offsets/{name}/0" in str(raised.value), "the message contains the path"


@pytest.mark.parametrize(("setting", "expected"), [("inherit", 0), ("smallest", 20)])
def test_partitions_added_to_topic_are_read_from_beginning_on_request(
    setting: str, expected: int, admin: Any, topic: Topics, consumer: Consumers
) -> None:
    name = topic(1)
    produce(admin, name, 0, numbers(0, 10))
    settings = {"auto_offset_reset": "largest", "auto_offset_reset_new_partitions": setting}
    first = consumer(consumer_id="a", **settings)
    [stream] = first.create_message_streams({name: 1})[name]
    wait_for(lambda: first.lag.get(TopicPartition(name, 0)) == 0, what="the start offset is known")
    produce(admin, name, 0, numbers(10, 11))
    assert [message.offset for message in take(stream, 1)] == [10]  # earlier records are skipped for a new group
    first.shutdown()
    admin.create_partitions(name, 3)
    admin.wait_for_leaders(name, 3)
    for partition in (1, 2):
        produce(admin, name, partition, numbers(0, 10))

    second = consumer(consumer_id="b", **settings | {"consumer_timeout_ms": 3000 if expected == 0 else 20_000})
    [stream] = second.create_message_streams({name: 1})[name]
    if not expected:
        with pytest.raises(ConsumerTimeoutError):
            next(message for message in stream if message.partition)
        return
    read = itertools.islice((message for message in stream if message.partition), expected)
    assert sorted((message.partition, message.offset) for message in read) == [
        (p, o) for p in (1, 2) for o in range(10)
    ]


def test_partitions_created_under_running_consumer_are_read_completely(
    admin: Any, topic: Topics, consumer: Consumers, unique: Callable[[str], str]
) -> None:
    """The records are written before the consumer can look at the new partitions, and the group has no offsets yet."""
    prefix = unique("t")
    widened = topic(1, name=f"{prefix}-a")
    one = consumer(auto_offset_reset="largest", auto_offset_reset_new_partitions="smallest")
    [stream] = one.create_message_streams_by_filter(Whitelist(f"{prefix}-.*"))
    wait_for(lambda: one.lag.get(TopicPartition(widened, 0)) == 0, what="the start offset is known")
    admin.create_partitions(widened, 3)
    created = topic(1, name=f"{prefix}-b")
    new = [TopicPartition(widened, 1), TopicPartition(widened, 2), TopicPartition(created, 0)]
    for name, partition in new:
        produce(admin, name, partition, numbers(0, 10))
    read = sorted((message.topic, message.partition, message.offset) for message in take(stream, 30))
    assert read == [(*partition, offset) for partition in new for offset in range(10)]
