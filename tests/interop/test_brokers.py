"""Run the same tests with brokers of each generation, from 0.8.2 to 4.4."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from helpers.aliases import Consumers
from helpers.batches import CODEC_NAMES, CODECS, ZSTD, Record, entry
from helpers.configurations import consumer_config
from helpers.group_members import consumers
from helpers.reading import Reader, take, values
from helpers.waiting import wait_for, wait_until_equal
from helpers.znodes import owners, stored
from helpers.zookeeper import zookeeper_client

from zkconsumer import TopicPartition
from zkconsumer.devcluster import DevCluster
from zkconsumer.devcluster.servers import is_kraft, numbers

#: The oldest release is tested in every run, the others in ``make interop``. All other tests use the newest release.
GENERATIONS = ["0.8.2.2", "0.9.0.1", "0.10.2.2", "0.11.0.3", "1.1.1", "2.8.2", "3.9.2", "4.4.0"]
IN_EVERY_RUN = ("0.8.2.2",)


@pytest.fixture(
    scope="module",
    params=[pytest.param(v, marks=[] if v in IN_EVERY_RUN else [pytest.mark.slow]) for v in GENERATIONS],
)
def generation(request: pytest.FixtureRequest) -> Iterator[DevCluster]:
    with DevCluster(brokers=2, kafka=request.param) as cluster:
        yield cluster


@pytest.fixture
def consumer(generation: DevCluster) -> Iterator[Consumers]:
    with consumers(lambda **settings: consumer_config(generation, **settings)) as make:
        yield make


def message_format(kafka: str) -> int:
    """Return the newest message format that brokers of a release store."""
    return 0 if numbers(kafka) < (0, 10) else 1 if numbers(kafka) < (0, 11) else 2


def codecs(kafka: str) -> list[int]:
    """Return the codecs that brokers of a release support in that format."""
    known = CODECS[message_format(kafka)]
    return [codec for codec in known if codec != ZSTD or numbers(kafka) >= (2, 1)]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("storage", ["zookeeper", "kafka"])
def test_produce_consume_rebalance_commit(
    storage: str, generation: DevCluster, consumer: Consumers, unique: Callable[[str], str]
) -> None:
    kafka, group = generation.kafka, unique("g")
    name = generation.create_topic(unique("t"), 4)
    expected: list[bytes] = []
    for codec in codecs(kafka):
        for partition in range(4):
            content = [b"%s %d %d" % (CODEC_NAMES[codec].encode(), partition, i) for i in range(5)]
            records = [Record(i, key=b"k", value=value) for i, value in enumerate(content)]
            generation.admin.produce(TopicPartition(name, partition), entry(message_format(kafka), records, codec))
            expected += content
    each = len(expected) // 4
    one = consumer(group_id=group, consumer_id="one", offsets_storage=storage)
    [stream] = one.create_message_streams({name: 1})[name]

    found = take(stream, len(expected))

    assert sorted(values(found)) == sorted(expected)
    assert all((message.timestamp >= 0) == (message_format(kafka) > 0) for message in found)
    assert one.commit_offsets() == {TopicPartition(name, partition): each for partition in range(4)}

    two = consumer(group_id=group, consumer_id="two", offsets_storage=storage)
    [theirs] = two.create_message_streams({name: 1})[name]
    with zookeeper_client(generation.zookeeper_connect) as client:
        shared = {0: "one", 1: "one", 2: "two", 3: "two"}
        wait_until_equal(lambda: owners(client, group, name), {p: f"{group}_{who}-0" for p, who in shared.items()})
        readers = [Reader(stream), Reader(theirs)]
        for partition in range(4):
            record = Record(0, value=b"last of %d" % partition)
            generation.admin.produce(TopicPartition(name, partition), entry(message_format(kafka), [record]))
        wait_for(lambda: sum(len(reader.seen) for reader in readers) == 4, what="each member reads its partitions")
        assert [sorted(reader.values) for reader in readers] == [
            [b"last of 0", b"last of 1"],
            [b"last of 2", b"last of 3"],
        ]
        one.commit_offsets()
        one.shutdown()
        wait_until_equal(lambda: owners(client, group, name), dict.fromkeys(range(4), f"{group}_two-0"))
        assert [stored(client, group, name)[partition] for partition in (0, 1)] == [str(each + 1)] * 2
        two.commit_offsets()
        two.shutdown()
        for reader in readers:
            reader.finish()
        assert stored(client, group, name) == dict.fromkeys(range(4), str(each + 1))
        assert [len(reader.seen) for reader in readers] == [2, 2]  # nothing is read twice


def test_record_larger_than_fetch_is_delivered(
    generation: DevCluster, consumer: Consumers, unique: Callable[[str], str]
) -> None:
    """Brokers before 0.10.1 truncate it, and the JVM consumer would stop with an error."""
    name, kafka = generation.create_topic(unique("t")), generation.kafka
    for value in (b"small", b"x" * 300_000, b"after"):
        generation.admin.produce(TopicPartition(name, 0), entry(message_format(kafka), [Record(0, value=value)]))
    member = consumer(group_id=unique("g"), fetch_message_max_bytes=1000)

    [stream] = member.create_message_streams({name: 1})[name]

    assert [len(message.value or b"") for message in take(stream, 3)] == [5, 300_000, 5]


def test_member_finds_brokers_without_zookeeper(
    generation: DevCluster, consumer: Consumers, unique: Callable[[str], str]
) -> None:
    """Brokers before 0.10 do not support ApiVersions requests, which must be detected with bootstrap servers alone."""
    name = generation.create_topic(unique("t"))
    generation.admin.produce(TopicPartition(name, 0), entry(message_format(generation.kafka), [Record(0, value=b"v")]))
    bootstrap = generation.bootstrap_servers
    settings = {} if is_kraft(generation.kafka) else {"bootstrap_servers": bootstrap}
    member = consumer(group_id=unique("g"), consumer_timeout_ms=60_000, **settings)

    [stream] = member.create_message_streams({name: 1})[name]

    assert values(take(stream, 1)) == [b"v"]
