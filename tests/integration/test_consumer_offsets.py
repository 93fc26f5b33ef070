"""Where a member starts, and what it stores: the offset znodes and how they move."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kazoo.client import KazooClient
from support import Reader, numbers, produce, stored, take, values, wait_for, wait_until_equal

from zkconsumer import TopicPartition, ZookeeperConsumerConnector
from zkconsumer.devcluster import DevCluster, ExistingCluster
from zkconsumer.errors import ClosedError, OwnershipLostError

Topic = Callable[..., str]
Consumer = Callable[..., ZookeeperConsumerConnector]


@pytest.fixture
def admin(zkconsumer_cluster: DevCluster | ExistingCluster) -> Any:
    return zkconsumer_cluster.admin


def store(zk: KazooClient, group: str, topic: str, partition: int, text: bytes) -> None:
    """Write an offset as a tool or another member does."""
    path = f"/consumers/{group}/offsets/{topic}/{partition}"
    if zk.exists(path):
        zk.set(path, text)
    else:
        zk.create(path, text, makepath=True)


# ---- where to start: kafka.consumer.AutoOffsetResetTest -------------------------------------------------


@pytest.mark.parametrize("offset", [b"10000", b"-1", None], ids=["beyond the end", "minus one", "none"])
def test_smallest_begins_at_the_start_of_the_log(
    offset: bytes | None, admin: Any, topic: Topic, group: str, consumer: Consumer, zk: KazooClient
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
def test_largest_begins_at_the_end_of_the_log(
    offset: bytes | None, admin: Any, topic: Topic, group: str, consumer: Consumer, zk: KazooClient
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
def test_a_partition_that_goes_before_anything_of_it_was_read_goes_on_where_it_began(
    leave: str, admin: Any, topic: Topic, group: str, consumer: Consumer, zk: KazooClient
) -> None:
    """The next owner would go to the end of the log anew, and nobody would get what came meanwhile."""
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
def test_a_stored_offset_wins_over_the_reset(
    reset: str, admin: Any, topic: Topic, group: str, consumer: Consumer, zk: KazooClient
) -> None:
    name = topic()
    produce(admin, name, 0, numbers(0, 10))
    store(zk, group, name, 0, b"7")

    [stream] = consumer(auto_offset_reset=reset).create_message_streams({name: 1})[name]

    assert [message.offset for message in take(stream, 3)] == [7, 8, 9]


def test_the_end_of_the_log_is_a_good_place_to_start(
    admin: Any, topic: Topic, group: str, consumer: Consumer, zk: KazooClient
) -> None:
    name = topic()
    produce(admin, name, 0, numbers(0, 10))
    store(zk, group, name, 0, b"10")
    connector = consumer()
    [stream] = connector.create_message_streams({name: 1})[name]
    wait_until_equal(lambda: connector.lag, {TopicPartition(name, 0): 0})

    produce(admin, name, 0, [b"next"])

    assert [(m.offset, m.value) for m in take(stream, 1)] == [(10, b"next")]


def test_an_offset_beyond_the_log_is_reset_and_what_is_stored_then_is_lower(
    admin: Any, topic: Topic, group: str, consumer: Consumer, zk: KazooClient
) -> None:
    """As after a topic was made anew under its old name."""
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


def test_auto_commit_stores_what_was_asked_beyond_and_not_what_is_in_hand(
    admin: Any, topic: Topic, group: str, consumer: Consumer, zk: KazooClient
) -> None:
    name = topic()
    produce(admin, name, 0, numbers(0, 10))
    [stream] = consumer(auto_commit_interval_ms=50).create_message_streams({name: 1})[name]

    for read in (5, 1, 4):
        before = int(stored(zk, group, name).get(0, "0"))
        message = take(stream, read)[-1]
        wait_until_equal(lambda message=message: stored(zk, group, name), {0: str(message.offset)})
        assert before <= message.offset


def test_shutdown_stores_what_was_asked_beyond(
    admin: Any, topic: Topic, group: str, consumer: Consumer, zk: KazooClient
) -> None:
    name = topic()
    produce(admin, name, 0, numbers(0, 10))
    connector = consumer()
    take(connector.create_message_streams({name: 1})[name][0], 4)

    connector.shutdown()

    assert stored(zk, group, name) == {0: "3"}


def test_leaving_the_with_block_stores_all_that_was_handed_out(
    admin: Any, topic: Topic, group: str, consumer: Consumer, zk: KazooClient
) -> None:
    name = topic(2)
    for partition in (0, 1):
        produce(admin, name, partition, numbers(0, 4))

    with consumer() as connector:
        take(connector.create_message_streams({name: 1})[name][0], 8)

    assert stored(zk, group, name) == {0: "4", 1: "4"}


def test_leaving_the_with_block_by_an_error_does_not_store_what_is_in_hand(
    admin: Any, topic: Topic, group: str, consumer: Consumer, zk: KazooClient
) -> None:
    name = topic()
    produce(admin, name, 0, numbers(0, 10))

    def fails_at_the_third_message() -> None:
        with consumer() as connector:
            for message in connector.create_message_streams({name: 1})[name][0]:
                if message.offset == 2:
                    raise RuntimeError("cannot work on this one")

    with pytest.raises(RuntimeError, match="cannot work on this one"):
        fails_at_the_third_message()

    assert stored(zk, group, name) == {0: "2"}


def test_without_auto_commit_nothing_is_stored_unless_asked(
    admin: Any, topic: Topic, group: str, consumer: Consumer, zk: KazooClient
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


def test_a_rebalance_stores_offsets_before_the_partition_goes(
    admin: Any, topic: Topic, group: str, consumer: Consumer, zk: KazooClient
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


def test_commit_offsets_counts_the_message_in_hand(
    admin: Any, topic: Topic, group: str, consumer: Consumer, zk: KazooClient
) -> None:
    name = topic(2)
    produce(admin, name, 0, numbers(0, 10))
    connector = consumer()
    [stream] = connector.create_message_streams({name: 1})[name]
    take(stream, 4)

    assert connector.commit_offsets()[TopicPartition(name, 0)] == 4
    assert stored(zk, group, name)[0] == "4"


def test_what_commit_offsets_stored_is_not_taken_back_by_what_is_stored_by_itself(
    admin: Any,
    topic: Topic,
    group: str,
    consumer: Consumer,
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
    assert "offset_commit_skipped" not in caplog.text, "nothing has gone wrong here"


def test_the_applications_own_offsets_are_stored_even_if_they_go_back(
    admin: Any, topic: Topic, group: str, consumer: Consumer, zk: KazooClient
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


def test_an_empty_map_of_own_offsets_stores_nothing(
    admin: Any, topic: Topic, group: str, consumer: Consumer, zk: KazooClient
) -> None:
    name = topic()
    produce(admin, name, 0, numbers(0, 3))
    connector = consumer(auto_commit_enable=False)
    take(connector.create_message_streams({name: 1})[name][0], 3)

    assert connector.commit_offsets({}) == {}
    assert stored(zk, group, name) == {}


def test_offsets_of_partitions_of_others_are_refused(
    topic: Topic, group: str, consumer: Consumer, zk: KazooClient
) -> None:
    name = topic()
    connector = consumer(consumer_id="c")
    connector.create_message_streams({name: 1})

    with pytest.raises(OwnershipLostError, match=f"partition {name}-7 is not owned by consumer {group}_c"):
        connector.commit_offsets({TopicPartition(name, 0): 1, TopicPartition(name, 7): 1})

    assert stored(zk, group, name) == {}


def test_there_is_nothing_to_commit_before_there_are_streams_and_after_shutdown(
    topic: Topic, consumer: Consumer
) -> None:
    connector = consumer()
    with pytest.raises(ClosedError):
        connector.commit_offsets()
    connector.create_message_streams({topic(): 1})
    connector.shutdown()

    with pytest.raises(ClosedError):
        connector.commit_offsets()


# ---- never back ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["auto commit", "commit_offsets"])
def test_an_offset_that_an_operator_has_moved_on_is_not_moved_back(
    by: str, admin: Any, topic: Topic, group: str, consumer: Consumer, zk: KazooClient
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


def test_an_offset_beyond_the_stored_one_is_stored_after_it_was_moved_on(
    admin: Any, topic: Topic, group: str, consumer: Consumer, zk: KazooClient
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


def test_a_deleted_offset_znode_is_made_again(
    admin: Any, topic: Topic, group: str, consumer: Consumer, zk: KazooClient
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


def test_an_offset_that_is_stored_already_is_not_written_again(
    admin: Any, topic: Topic, group: str, consumer: Consumer, zk: KazooClient
) -> None:
    """KAFKA-987: many members that have nothing to say do not keep ZooKeeper busy."""
    name = topic()
    produce(admin, name, 0, numbers(0, 3))
    connector = consumer()
    take(connector.create_message_streams({name: 1})[name][0], 3)

    for _ in range(3):
        connector.commit_offsets()

    assert zk.get(f"/consumers/{group}/offsets/{name}/0")[1].version == 0


def test_an_offset_znode_that_holds_no_number_is_told(
    topic: Topic, group: str, consumer: Consumer, zk: KazooClient
) -> None:
    name = topic()
    store(zk, group, name, 0, b"ten")
    connector = consumer(rebalance_max_retries=1, zookeeper_session_timeout_ms=1500)

    with pytest.raises(Exception, match="ten") as raised:
        connector.create_message_streams({name: 1})

    assert f"/consumers/{group}/offsets/{name}/0" in str(raised.value), "it says where"
