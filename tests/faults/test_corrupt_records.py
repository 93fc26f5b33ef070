"""Tests with corrupt and oversized records in the log of a real broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.aliases import Consumers, Topics
from helpers.producing import numbers, produce
from helpers.reading import take, values
from helpers.waiting import wait_for, wait_until_equal
from helpers.znodes import stored
from kazoo.client import KazooClient

from zkconsumer import KafkaStream, TopicPartition
from zkconsumer.devcluster import DevCluster
from zkconsumer.errors import ConsumerTimeoutError, CorruptRecordError

from .faults import Member
from .transaction_log import group_history

#: Records per batch; the tests write three batches and corrupt the second.
BATCH = 100

#: Positions in a batch of format 2: its size field, and a byte in the middle of its records.
SIZE, RECORDS = 8, 500


@pytest.fixture
def damaged(cluster: DevCluster, topic: Topics) -> Iterator[Callable[..., str]]:
    """Create topics whose partition 0 has three batches, the second with a changed byte; other partitions are valid.

    The byte is changed on the disk while the broker runs, as by a disk error. Brokers check data from producers and,
    after a crash, their logs, but not data that they read for consumers.
    """
    repairs: list[tuple[Path, int]] = []

    def make(*, partitions: int = 1, at: int = RECORDS) -> str:
        name = topic(partitions=partitions)
        for number in range(partitions):
            for first in range(0, 3 * BATCH, BATCH):
                produce(cluster.admin, name, number, content(first))
        [segment] = cluster.folder.glob(f"broker-*-data/{name}-0/00000000000000000000.log")
        second = 12 + int.from_bytes(segment.read_bytes()[8:12])
        flip(segment, second + at)
        repairs.append((segment, second + at))
        return name

    yield make
    for segment, position in repairs:  # otherwise the broker might fail to start
        flip(segment, position)


def flip(file: Path, position: int) -> None:
    """Invert the highest bit of one byte of a file."""
    with file.open("r+b") as opened:
        opened.seek(position)
        [byte] = opened.read(1)
        opened.seek(position)
        opened.write(bytes([byte ^ 0x80]))


def content(first: int, end: int | None = None) -> list[bytes]:
    """Return values for a batch that is larger than the 4 kB between two entries of the log's index."""
    return [b"%060d" % number for number in range(first, first + BATCH if end is None else end)]


def read_past_errors(items: Iterator[Any]) -> tuple[list[Any], list[CorruptRecordError]]:
    """Read until no record arrives for ``consumer.timeout.ms``, or until the same error was raised three times."""
    read: list[Any] = []
    errors: list[CorruptRecordError] = []
    while len(errors) < 3:
        try:
            read.append(next(items))
        except CorruptRecordError as error:
            errors.append(error)
        except ConsumerTimeoutError:
            break
    return read, errors


def as_messages(stream: KafkaStream) -> Iterator[Any]:
    return stream


def as_batches(stream: KafkaStream) -> Iterator[Any]:
    return (row for batch in stream.batches() for row in batch.to_pylist())


def test_records_before_corrupt_batch_are_delivered(
    damaged: Callable[..., str], consumer: Consumers, group: str, zk: KazooClient
) -> None:
    name = damaged()
    one = consumer(auto_commit_interval_ms=20)
    [stream] = one.create_message_streams({name: 1})[name]
    read, errors = read_past_errors(stream)
    assert values(read) == content(0)
    assert len(errors) == 3
    for error in errors:
        assert f"topic {name!r} partition 0 offset {BATCH}: CRC does not match" in str(error)
        assert error.offset == BATCH
    assert one.commit_offsets() == {TopicPartition(name, 0): BATCH}
    one.shutdown()
    assert stored(zk, group, name) == {0: str(BATCH)}


@pytest.mark.parametrize("read", [as_messages, as_batches])
def test_corrupt_batch_is_skipped_and_logged_by_policy(
    read: Callable[[KafkaStream], Iterator[Any]],
    damaged: Callable[..., str],
    consumer: Consumers,
    caplog: pytest.LogCaptureFixture,
) -> None:
    name = damaged()
    one = consumer(corrupt_record_policy="skip", consumer_timeout_ms=2000)
    [stream] = one.create_message_streams({name: 1})[name]

    found, errors = read_past_errors(read(stream))

    assert len(found) == 2 * BATCH
    assert errors == []
    assert one.commit_offsets() == {TopicPartition(name, 0): 3 * BATCH}
    skipped = {str(name): values["Count"] for name, values in one.metrics.items() if "Skipped" in name.name}
    assert list(skipped.values()) == [BATCH, BATCH], "the metric of all topics and the one of this topic"
    [record] = [r for r in caplog.records if "corrupt_records_skipped" in r.getMessage()]
    assert f"offset={BATCH}" in record.getMessage()
    assert f"next_offset={2 * BATCH}" in record.getMessage()


def test_batch_of_unknown_size_raises_despite_skip(damaged: Callable[..., str], consumer: Consumers) -> None:
    name = damaged(at=SIZE)
    one = consumer(corrupt_record_policy="skip", consumer_timeout_ms=2000)
    [stream] = one.create_message_streams({name: 1})[name]

    found, errors = read_past_errors(stream)

    assert values(found) == content(0)
    assert errors


@pytest.mark.parametrize("at", [0, 6, 7])
def test_wrong_offset_of_batch_is_reported(at: int, damaged: Callable[..., str], consumer: Consumers) -> None:
    """A negative offset, and one that is too high; the CRC does not cover the offset."""
    name = damaged(at=at)
    one = consumer(consumer_timeout_ms=5000)
    [stream] = one.create_message_streams({name: 1})[name]

    found, errors = read_past_errors(stream)

    assert values(found) == content(0)
    assert [error.offset for error in errors] == [BATCH] * 3
    assert one.commit_offsets() == {TopicPartition(name, 0): BATCH}


@pytest.mark.parametrize("at", [0, 6, 7])
def test_batch_with_wrong_offset_is_skipped_and_logged(
    at: int, damaged: Callable[..., str], consumer: Consumers, caplog: pytest.LogCaptureFixture
) -> None:
    name = damaged(at=at)
    one = consumer(corrupt_record_policy="skip", consumer_timeout_ms=2000)
    [stream] = one.create_message_streams({name: 1})[name]

    found, errors = read_past_errors(stream)

    assert values(found) == [*content(0), *content(2 * BATCH)]
    assert errors == []
    [record] = [r for r in caplog.records if "corrupt_records_skipped" in r.getMessage()]
    assert f"offset={BATCH}" in record.getMessage()
    assert f"next_offset={2 * BATCH}" in record.getMessage()


def test_arrow_batch_ends_before_corrupt_batch(damaged: Callable[..., str], consumer: Consumers) -> None:
    name = damaged()
    one = consumer()
    [stream] = one.create_message_streams({name: 1})[name]
    batches = stream.batches()
    rows = next(batches).column("value").to_pylist()
    assert rows == content(0)
    for _ in range(2):
        with pytest.raises(CorruptRecordError, match=f"partition 0 offset {BATCH}"):
            next(batches)
    assert one.commit_offsets() == {TopicPartition(name, 0): BATCH}


def test_corrupt_partition_does_not_stop_others(damaged: Callable[..., str], consumer: Consumers) -> None:
    name = damaged(partitions=3)
    [stream] = consumer().create_message_streams({name: 1})[name]
    read: list[Any] = []
    while len(read) < (1 + 3 + 3) * BATCH:
        try:
            read.append(next(stream))
        except CorruptRecordError:
            pass
    assert sorted((m.partition, m.offset) for m in read) == [
        (partition, offset) for partition, end in ((0, 1), (1, 3), (2, 3)) for offset in range(end * BATCH)
    ]


def test_rebalances_beside_corrupt_batch_lose_nothing(
    damaged: Callable[..., str], cluster: DevCluster, member: Callable[..., Member], group: str
) -> None:
    # Each error causes a new fetch of the partition, also while the partition is handed over to another member.
    name = damaged(partitions=3)
    stable = member({name: 1}, consumer_id="b", ignored_errors=(CorruptRecordError,), refresh_leader_backoff_ms=0)
    departed = []
    for number in range(15):
        guest = member({name: 1}, consumer_id="ac"[number % 2], ignored_errors=(CorruptRecordError,))
        wait_for(lambda: guest.owned, what="the guest owns a partition")
        guest.leave()
        departed.append(guest)
    for number in (1, 2):
        produce(cluster.admin, name, number, content(3 * BATCH))

    def read() -> dict[int, set[int]]:
        found: dict[int, set[int]] = {}
        for message in [message for one in (stable, *departed) for message in one.seen]:
            found.setdefault(message.partition, set()).add(message.offset)
        return found

    expected = {0: set(range(BATCH)), 1: set(range(4 * BATCH)), 2: set(range(4 * BATCH))}
    wait_until_equal(read, expected)
    assert stable.connector.commit_offsets() == {
        TopicPartition(name, number): max(offsets) + 1 for number, offsets in expected.items()
    }
    assert group_history(cluster.folder, group).violations == []


def test_remedy_in_error_skips_corrupt_batch(damaged: Callable[..., str], consumer: Consumers) -> None:
    name = damaged()
    one = consumer()
    [stream] = one.create_message_streams({name: 1})[name]
    take(stream, BATCH)
    with pytest.raises(CorruptRecordError, match="commit an offset after the corrupt batch"):
        next(stream)
    behind = {TopicPartition(name, 0): 2 * BATCH}
    assert one.commit_offsets(behind) == behind
    one.shutdown()
    [again] = consumer().create_message_streams({name: 1})[name]
    assert values(take(again, BATCH)) == content(2 * BATCH)


def test_corrupt_batch_size_is_reported_at_start_offset(damaged: Callable[..., str], consumer: Consumers) -> None:
    # The broker cannot read beyond this position either, and returns an error instead of records.
    name = damaged(at=SIZE)
    one = consumer(consumer_timeout_ms=5000)
    [stream] = one.create_message_streams({name: 1})[name]
    read, errors = read_past_errors(stream)
    assert values(read) == content(0)
    assert len(errors) == 3
    assert one.commit_offsets() == {TopicPartition(name, 0): BATCH}


def test_records_larger_than_fetch_size_are_delivered(cluster: DevCluster, topic: Topics, consumer: Consumers) -> None:
    name = topic(partitions=2)
    large = b"x" * 3_000_000
    for number in range(2):
        for batch in (numbers(0, 50), [large], numbers(50, 100), [large, b"behind"], numbers(100, 150)):
            produce(cluster.admin, name, number, batch)
    [stream] = consumer(fetch_message_max_bytes=2000).create_message_streams({name: 1})[name]
    read: dict[int, list[bytes | None]] = {0: [], 1: []}
    for message in take(stream, 2 * 153):
        read[message.partition].append(message.value)
    expected = [*numbers(0, 50), large, *numbers(50, 100), large, b"behind", *numbers(100, 150)]
    assert [found == expected for found in read.values()] == [True, True]
