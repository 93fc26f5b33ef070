"""Tests of race conditions that are enforced: each partition has one reader, and all partitions are read."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from helpers.aliases import Cluster, Consumers, Topics
from helpers.configurations import fetch_settings
from helpers.producing import numbers, produce
from helpers.reading import by_partition, take
from helpers.threads import in_thread
from helpers.waiting import wait_for, wait_until_equal
from helpers.znodes import owners
from kazoo.client import KazooClient

from zkconsumer import TopicPartition, ZkConsumerError
from zkconsumer.errors import CorruptRecordError
from zkconsumer.fetcher import decode
from zkconsumer.fetcher.chunk import Chunk, PositionChanged
from zkconsumer.fetcher.partition import PartitionTopicInfo
from zkconsumer.fetcher.queues import ByteBudget, PartitionQueue, StreamQueue
from zkconsumer.fetcher.requests import FetchRequests
from zkconsumer.fetcher.thread import ConsumerFetcherThread
from zkconsumer.metrics import Metrics
from zkconsumer.rebalance.committer import OffsetCommitter
from zkconsumer.zookeeper.znodes import Znodes


def once(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, instead: Callable[..., Any]) -> None:
    """Replace a method for one call; ``instead`` receives the replaced method as its first argument."""
    original = getattr(owner, name)
    lock = threading.Lock()
    used = False

    def replacement(*args: Any, **options: Any) -> Any:
        nonlocal used
        with lock:
            first, used = not used, True
        return instead(original, *args, **options) if first else original(*args, **options)

    monkeypatch.setattr(owner, name, replacement)


def test_revoked_partition_is_not_refetched(
    admin: Any,
    topic: Topics,
    group: str,
    consumer: Consumers,
    zk: KazooClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The application's thread refetches after a corrupt record while the member's thread releases the partition."""
    name = topic(2)
    for partition in (0, 1):
        produce(admin, name, partition, numbers(0, 3))
    one = consumer(consumer_id="one")
    [stream] = one.create_message_streams({name: 1})[name]
    assert by_partition(take(stream, 6)).keys() == {0, 1}
    begun, given_away = threading.Event(), threading.Event()

    def in_the_middle(original: Callable[..., Any], queue: PartitionQueue) -> Any:
        begun.set()
        given_away.wait(3)  # ends by the timeout if the code under test holds a lock here
        return original(queue)

    def corrupt(original: Callable[..., Any], *args: Any, **options: Any) -> Any:
        raise CorruptRecordError("raised by the test", 3)

    once(monkeypatch, PartitionQueue, "replacement", in_the_middle)
    once(monkeypatch, decode.ChunkReader, "read_blocks", corrupt)
    produce(admin, name, 1, [b"read as corrupt"])
    reading = in_thread(lambda: next(stream))
    assert begun.wait(10)

    [other] = consumer(consumer_id="two").create_message_streams({name: 1})[name]
    given_away.set()
    with pytest.raises(CorruptRecordError):
        reading.result()

    assert owners(zk, group, name) == {0: f"{group}_one-0", 1: f"{group}_two-0"}
    produce(admin, name, 1, [b"for two"])
    assert take(other, 1)[0].partition == 1
    produce(admin, name, 0, [b"for one"])
    assert [(m.partition, m.value) for m in take(stream, 1)] == [(0, b"for one")]
    assert {partition.partition for partition in one.lag} == {0}


def test_failed_fetcher_is_reported_and_replaced(
    admin: Any, topic: Topics, consumer: Consumers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KAFKA-4384: the partitions of a terminated thread are assigned to a new one."""
    name = topic()
    produce(admin, name, 0, numbers(0, 1))
    [stream] = consumer(consumer_timeout_ms=5000).create_message_streams({name: 1})[name]
    take(stream, 1)

    def fail(original: Callable[..., Any], *args: Any) -> Any:
        raise RuntimeError("unexpected error")

    once(monkeypatch, PartitionQueue, "put", fail)
    produce(admin, name, 0, numbers(1, 4))

    with pytest.raises(ZkConsumerError, match="unexpected error"):
        next(stream)
    assert [message.offset for message in take(stream, 3)] == [1, 2, 3]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("cause", ["member's thread", "kazoo's thread"])
def test_failed_member_fails_every_later_call(
    cause: str, admin: Any, topic: Topics, consumer: Consumers, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic(2)
    produce(admin, name, 0, numbers(0, 100))
    connector = consumer(consumer_timeout_ms=-1, auto_commit_interval_ms=100)
    streams = connector.create_message_streams({name: 2})[name]
    take(streams[0], 1)

    def fail(*args: Any) -> Any:
        raise RuntimeError("unexpected error")

    if cause == "kazoo's thread":
        session = connector._active_runtime().member.session
        monkeypatch.setattr(session._client._connection, "_connect_attempt", fail)
        session._connection.drop()
        match = "the connection thread for ZooKeeper"
    else:
        once(monkeypatch, OffsetCommitter, "commit_if_due", fail)
        match = "unexpected error"

    for stream in (*streams, *streams):
        with pytest.raises(ZkConsumerError, match=match):
            deque(stream, maxlen=0)
    for _ in range(2):
        with pytest.raises(ZkConsumerError, match=match):
            connector.commit_offsets()
    connector.shutdown()
    assert connector.assignment == {}


def test_group_deletion_during_claim_is_survived(
    admin: Any,
    topic: Topics,
    group: str,
    consumer: Consumers,
    zk: KazooClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = topic()
    produce(admin, name, 0, numbers(0, 1))

    def made_and_deleted(original: Callable[..., Any], znodes: Znodes, path: str) -> None:
        original(znodes, path)
        zk.delete(f"/consumers/{group}/owners", recursive=True)

    connector = consumer(consumer_id="c")
    zk.ensure_path(f"/consumers/{group}/ids")  # exists already, so the first ``ensure`` call is for the owner znodes
    once(monkeypatch, Znodes, "ensure", made_and_deleted)

    [stream] = connector.create_message_streams({name: 1})[name]

    assert [message.offset for message in take(stream, 1)] == [0]
    assert owners(zk, group, name) == {0: f"{group}_c-0"}


def test_deleted_topic_is_released_and_read_when_recreated(
    zkconsumer_cluster: Cluster, admin: Any, topic: Topics, group: str, consumer: Consumers, zk: KazooClient
) -> None:
    name = topic(2)
    produce(admin, name, 0, numbers(0, 5))
    connector = consumer(consumer_id="c")
    [stream] = connector.create_message_streams({name: 1})[name]
    take(stream, 5)

    admin.delete_topic(name)
    wait_for(lambda: not connector.assignment, what="the partitions are released")
    wait_until_equal(lambda: owners(zk, group, name), {})  # after commits in progress have ended
    assert connector.lag == {}

    wait_for(lambda: not zk.exists(f"/brokers/topics/{name}"), what="the topic is deleted")
    zkconsumer_cluster.create_topic(name, 1)
    produce(admin, name, 0, [b"the first of the new topic"])
    assert [(m.offset, m.value) for m in take(stream, 1)] == [(0, b"the first of the new topic")]


def test_unknown_start_offset_blocks_no_other_partition(admin: Any, topic: Topics) -> None:
    name = topic(1)
    produce(admin, name, 0, numbers(0, 3))
    stream = StreamQueue(budget := ByteBudget(1 << 30))
    handed_back: list[PartitionTopicInfo] = []
    good, missing = (
        PartitionTopicInfo(TopicPartition(name, number), PartitionQueue(stream, 2), -1, auto_offset_reset="smallest")
        for number in (0, 99)
    )
    leader = admin._leader_of(good.partition)
    settings = fetch_settings()
    fetcher = ConsumerFetcherThread(
        "test-fetcher",
        FetchRequests(leader, settings, budget, Metrics()),
        settings,
        budget,
        handed_back.extend,
        lambda info, error: stream.fail(error),
    )
    fetcher.start()
    try:
        fetcher.add_partitions([missing, good])
        taken = [stream.take(20), stream.take(20)]
    finally:
        fetcher.close()

    changed, chunk = [item for _, item in filter(None, taken)]
    assert changed == PositionChanged(good.partition, 0)
    assert isinstance(chunk, Chunk)
    assert (chunk.partition, chunk.fetch_offset, chunk.next_offset) == (good.partition, 0, 3)
    assert handed_back == [missing]
