"""Tests of streams of all topics that a filter selects, while topics are created and deleted."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from helpers.aliases import Consumers, Topics
from helpers.producing import numbers, produce
from helpers.reading import Reader, take, values
from helpers.waiting import wait_for, wait_until_equal
from helpers.znodes import owners
from kazoo.client import KazooClient

from zkconsumer import Blacklist, TopicPartition, Whitelist
from zkconsumer.errors import ConfigurationError, MessageStreamsExistError


def test_whitelist_reads_matching_topics_created_later(
    admin: Any, topic: Topics, consumer: Consumers, unique: Callable[[str], str]
) -> None:
    prefix = unique("w")
    first, other = topic(2, name=f"{prefix}-a"), topic(1)
    for name in (first, other):
        produce(admin, name, 0, [b"%s 0" % name.encode()])
    connector = consumer(auto_commit_enable=False)
    [stream] = connector.create_message_streams_by_filter(Whitelist(f"{prefix}-.+"))

    assert values(take(stream, 1)) == [b"%s 0" % first.encode()]
    assert set(connector.assignment) == {TopicPartition(first, 0), TopicPartition(first, 1)}

    later = topic(3, name=f"{prefix}-b")
    produce(admin, later, 2, [b"later"])

    [message] = take(stream, 1)
    assert (message.topic, message.partition, message.value) == (later, 2, b"later")
    assert len(connector.assignment) == 5


@pytest.mark.parametrize("storage", ["zookeeper", "kafka"])
def test_deleted_topic_is_released(
    storage: str,
    admin: Any,
    topic: Topics,
    consumer: Consumers,
    unique: Callable[[str], str],
    zk: KazooClient,
    group: str,
) -> None:
    prefix = unique("w")
    kept, gone = topic(name=f"{prefix}-kept"), topic(name=f"{prefix}-gone")
    connector = consumer(offsets_storage=storage, rebalance_backoff_ms=200)
    connector.create_message_streams_by_filter(Whitelist(f"{prefix}-.+"))
    assert set(connector.assignment) == {TopicPartition(kept, 0), TopicPartition(gone, 0)}

    admin.delete_topic(gone)

    wait_until_equal(lambda: set(connector.assignment), {TopicPartition(kept, 0)})
    wait_until_equal(lambda: owners(zk, group, gone), {})  # after commits in progress have ended
    wait_until_equal(lambda: [p.topic for p in connector.lag], [kept])


def test_filter_and_static_members_share_topic(
    topic: Topics, consumer: Consumers, unique: Callable[[str], str], zk: KazooClient, group: str
) -> None:
    prefix = unique("w")
    a, b = topic(4, name=f"{prefix}-a"), topic(2, name=f"{prefix}-b")
    by_filter = consumer(consumer_id="f")
    streams = by_filter.create_message_streams_by_filter(Whitelist(f"{prefix}-.*"), 2)
    assert len(streams) == 2
    f0, f1 = f"{group}_f-0", f"{group}_f-1"
    assert owners(zk, group, a) == {0: f0, 1: f0, 2: f1, 3: f1}
    assert owners(zk, group, b) == {0: f0, 1: f1}

    static = consumer(consumer_id="s")
    static.create_message_streams({a: 1})

    s0 = f"{group}_s-0"
    wait_until_equal(lambda: owners(zk, group, a), {0: f0, 1: f0, 2: f1, 3: s0})
    assert owners(zk, group, b) == {0: f0, 1: f1}


def test_filter_stream_reads_several_topics(
    admin: Any, topic: Topics, consumer: Consumers, unique: Callable[[str], str]
) -> None:
    prefix = unique("w")
    names = [topic(2, name=f"{prefix}-{letter}") for letter in "abc"]
    for name in names:
        for partition in range(2):
            produce(admin, name, partition, numbers(0, 5))
    connector = consumer()
    readers = [Reader(s) for s in connector.create_message_streams_by_filter(Whitelist(f"{prefix}-.*"), 2)]

    wait_for(lambda: sum(len(reader.seen) for reader in readers) == 30)

    seen = {(m.topic, m.partition, m.offset) for reader in readers for m in reader.seen}
    assert seen == {(name, partition, offset) for name in names for partition in range(2) for offset in range(5)}
    for index, reader in enumerate(readers):
        assert {m.partition for m in reader.seen} == {index}
    connector.shutdown()
    for reader in readers:
        reader.finish()


@pytest.mark.parametrize("count", [1, 2])
def test_stream_reads_exactly_its_topics(
    admin: Any, topic: Topics, consumer: Consumers, unique: Callable[[str], str], count: int
) -> None:
    prefix = unique("w")
    names = [topic(name=f"{prefix}.a"), topic(name=f"{prefix}-b")][:count]
    other = topic(name=f"{prefix}xa")
    for name in (*names, other):
        produce(admin, name, 0, numbers(0, 5))
    connector = consumer()
    stream = connector.stream(names[0] if count == 1 else names, value_decoder=int)

    read = [(message.topic, message.value) for message in itertools.islice(stream, 5 * count)]
    assert sorted(read) == sorted((name, value) for name in names for value in range(5))
    assert set(connector.assignment) == {TopicPartition(name, 0) for name in names}


def test_blacklist_excludes_matching_and_internal_topics(topic: Topics, consumer: Consumers) -> None:
    wanted = topic()
    with consumer(consumer_id="first", offsets_storage="kafka") as creator:  # creates the topic __consumer_offsets
        creator.create_message_streams({wanted: 1})
        creator.commit_offsets()
    connector = consumer()

    connector.create_message_streams_by_filter(Blacklist(f"(?!{wanted}$|__consumer_offsets$).*"))

    assert set(connector.assignment) == {TopicPartition(wanted, 0)}


def test_registration_equals_that_of_jvm(topic: Topics, consumer: Consumers, zk: KazooClient, group: str) -> None:
    name = topic()
    consumer(consumer_id="w").create_message_streams_by_filter(Whitelist(f" {name} , none"), 3)

    data = zk.get(f"/consumers/{group}/ids/{group}_w")[0]

    head, _, timestamp = data.rpartition(b'"timestamp":')
    assert head == b'{"version":1,"subscription":{"%s|none":3},"pattern":"white_list",' % name.encode()
    assert timestamp.strip(b'"}').isdigit()


def test_own_exponential_filter_is_rejected(topic: Topics, consumer: Consumers) -> None:
    topic(1)
    with pytest.raises(ConfigurationError, match="takes more than 1 s of CPU time"):  # without a second attempt
        consumer(rebalance_backoff_ms=3_600_000).create_message_streams_by_filter(
            Whitelist(r"([\w-]|[\w-]{2})+[.]x|never")
        )


def test_wrong_use_of_filters_is_rejected(topic: Topics, consumer: Consumers) -> None:
    with pytest.raises(ConfigurationError, match="between 1 and 1000, got 0"):
        consumer().create_message_streams_by_filter(Whitelist("a"), 0)
    connector = consumer()
    connector.create_message_streams_by_filter(Whitelist("none-such"))
    assert connector.assignment == {}
    with pytest.raises(MessageStreamsExistError):
        connector.create_message_streams({topic(): 1})
