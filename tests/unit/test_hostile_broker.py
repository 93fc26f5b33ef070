"""Tests of fetchers with a broker that returns impossible, oversized or foreign data over a real socket."""

from __future__ import annotations

import re
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from helpers import batches
from helpers.batches import Record
from helpers.configurations import fetch_settings, plaintext
from helpers.fake_broker import FETCH, LIST_OFFSETS, PARTITION, FakeBroker
from helpers.teardown import started
from helpers.waiting import wait_for

from zkconsumer.broker.log_offsets import LogOffsets
from zkconsumer.errors import CorruptRecordError, MessageSizeTooLargeError, NotLeaderError, ZkConsumerError
from zkconsumer.fetcher.batch_headers import make_chunk
from zkconsumer.fetcher.chunk import NO_LIMIT, Chunk, PositionChanged
from zkconsumer.fetcher.damage import Damage, DamageKind
from zkconsumer.fetcher.decode import read_messages
from zkconsumer.fetcher.manager import ConsumerFetcherManager
from zkconsumer.fetcher.partition import PartitionTopicInfo
from zkconsumer.fetcher.queues import ByteBudget, PartitionQueue, StreamQueue
from zkconsumer.message import TopicPartition


def entry(first: int, end: int, **options: Any) -> bytes:
    """Return a batch of format 2 with the offsets ``[first, end)``."""
    return batches.batch([Record(offset, value=b"%d" % offset) for offset in range(first, end)], **options)


def rebased(data: bytes, offset: int) -> bytes:
    """Return an entry with another base offset, which its CRC does not cover."""
    return struct.pack(">q", offset) + data[8:]


#: A log of three batches of ten records, from offset 100 on.
#: Properties for short timeouts.
FAST = {"socket_timeout_ms": 5000, "refresh_leader_backoff_ms": 50, "fetch_wait_max_ms": 5}
LOG = [(entry(first, first + 10), first + 10) for first in (100, 110, 120)]


class Reader:
    """Reads a partition of a broker with the fetchers of a consumer, as a stream and a Spark task do."""

    def __init__(self, broker: FakeBroker, offset: int, *, until: int = NO_LIMIT, reset: str | None = None) -> None:
        self.stream = StreamQueue(ByteBudget(1 << 30))
        self.failures: list[ZkConsumerError] = []
        self.manager = ConsumerFetcherManager(
            "test",
            fetch_settings(**FAST),
            lambda: [broker.endpoint],
            on_failure=self._on_failure,
        )
        self.manager.start_connections()
        queue = PartitionQueue(self.stream, 2)
        self.info = PartitionTopicInfo(PARTITION, queue, offset, until, reset)
        self.manager.add_partitions([self.info])

    def _on_failure(self, _info: PartitionTopicInfo, error: ZkConsumerError) -> None:
        self.failures.append(error)
        self.stream.fail(error)

    def chunk(self, timeout: float = 10.0) -> Chunk:
        taken = self.stream.take(timeout)
        assert taken is not None, "no chunk was fetched"
        assert isinstance(taken[1], Chunk)
        return taken[1]

    def read(self, until: int) -> list[int]:
        """Return the offsets of the records up to ``until``."""
        offsets: list[int] = []
        while not offsets or offsets[-1] + 1 < until:
            offsets += offsets_of(self.chunk())
        return offsets


def offsets_of(chunk: Chunk) -> list[int]:
    return [message.offset for messages, _ in read_messages(chunk, max_rows=100) for message in messages]


def read_to_error(chunk: Chunk) -> tuple[list[int], CorruptRecordError]:
    """Return the offsets of the records before a corrupt batch, and the error."""
    offsets: list[int] = []
    try:
        for messages, _ in read_messages(chunk, max_rows=100):
            offsets += [message.offset for message in messages]
    except CorruptRecordError as error:
        return offsets, error
    raise AssertionError(f"no batch is corrupt; read {offsets}")


@pytest.fixture
def reader() -> Iterator[Callable[..., Reader]]:
    def stop(one: Reader) -> None:
        one.stream.close()
        one.manager.stop_connections()

    with started(Reader, stop) as start:
        yield start


def test_fetchers_share_small_budget_without_starving() -> None:
    """Two fetchers fill one stream, whose budget is smaller than one batch."""
    with FakeBroker(LOG, start=100) as one, FakeBroker(LOG, start=100) as two:
        for broker in (one, two):
            broker.peers, broker.partition_counts = [one.endpoint, two.endpoint], {"t": 2}
        settings = fetch_settings(**FAST, queued_max_bytes=10)
        manager = ConsumerFetcherManager(
            "test", settings, lambda: [one.endpoint, two.endpoint], on_failure=lambda *_: None
        )
        stream = StreamQueue(manager.budget)
        partitions = [TopicPartition("t", number) for number in range(2)]
        manager.start_connections()
        infos = [PartitionTopicInfo(partition, PartitionQueue(stream, 2), 100, 130) for partition in partitions]
        try:
            manager.add_partitions(infos[:1])
            wait_for(lambda: manager.budget.is_spent)
            manager.add_partitions(infos[1:])  # its fetcher has to wait for bytes that the other one uses
            wait_for(lambda: not manager.no_leader_partitions)
            read: dict[TopicPartition, list[int]] = {partition: [] for partition in partitions}
            while sum(map(len, read.values())) < 60:
                taken = stream.take(10)
                assert taken is not None, f"starved after {read}"
                assert isinstance(taken[1], Chunk)
                read[taken[1].partition] += offsets_of(taken[1])
            assert read == {partition: list(range(100, 130)) for partition in partitions}
        finally:
            stream.close()
            manager.stop_connections()


# ---- offsets ----------------------------------------------------------------------------------------


def test_valid_log_is_read(reader: Callable[..., Reader]) -> None:
    with FakeBroker(LOG, start=100) as broker:
        assert reader(broker, 100).read(130) == list(range(100, 130))
        assert reader(broker, 115).read(130) == list(range(115, 130))


@pytest.mark.parametrize(
    ("position", "offset", "start", "read", "reason"),
    [
        (0, -(1 << 63) + 100, 100, 100, "offset goes backward"),
        (0, 4, 100, 100, "offset goes backward"),
        (0, 100 + (1 << 20), 100, 100, "offset exceeds"),
        (0, 105, 100, 100, "offset exceeds the next batch's offset"),
        (1, 100, 100, 100, "offset exceeds the next batch's offset"),
        (1, 95, 100, 100, "offset exceeds the next batch's offset"),
        (1, 90, 100, 110, "offset goes backward"),
        (1, 118, 100, 110, "offset exceeds the next batch's offset"),
        (1, 110 + (1 << 40), 100, 110, "offset exceeds"),
        (2, 121, 100, 120, "offset exceeds the end of the log"),
        (2, 116, 100, 120, "offset goes backward"),
        (2, 105, 100, 120, "offset goes backward"),
        (2, (1 << 63) - 5, 100, 120, "offset goes backward"),
    ],
)
def test_impossible_base_offset_is_corrupt(
    reader: Callable[..., Reader], position: int, offset: int, start: int, read: int, reason: str
) -> None:
    """Records before the damaged batch are read; none of a batch whose offset may be wrong."""
    entries = [(rebased(data, offset) if at == position else data, after) for at, (data, after) in enumerate(LOG)]
    with FakeBroker(entries, start=100) as broker:
        found, error = read_to_error(reader(broker, start).chunk())
    assert found == list(range(start, read))
    assert error.offset == read
    assert str(error).startswith(f"topic 't' partition 0 offset {read}: {reason}")
    assert f"base offset {offset if read == 10 * position + 100 else read}" in str(error)
    assert "commit an offset after the corrupt batch" in str(error)


def test_first_batch_after_another_starts_at_its_end(reader: Callable[..., Reader]) -> None:
    """A batch that starts below the requested offset is damaged if this offset is the end of a batch."""
    with FakeBroker(LOG[:2], start=100) as broker:
        one = reader(broker, 100)
        assert one.read(120) == list(range(100, 120))
        broker.end = broker.high_watermark = 130
        broker.entries = [(rebased(LOG[2][0], 115), 130)]
        with pytest.raises(CorruptRecordError, match="offset 120: offset goes backward .base offset 115"):
            offsets_of(one.chunk())


def test_offset_damage_behind_range_of_task_is_found(reader: Callable[..., Reader]) -> None:
    """Without the check, a task would take the damaged batch for one after its range."""
    damaged = [LOG[0], (rebased(LOG[1][0], 10_000), 120), LOG[2]]
    with FakeBroker(damaged, start=100) as broker:
        broker.end = broker.high_watermark = 1 << 20
        with pytest.raises(CorruptRecordError, match="offset 110: offset exceeds the next batch's offset"):
            reader(broker, 100, until=125).read(125)


def test_records_above_high_watermark_of_response_are_read(reader: Callable[..., Reader]) -> None:
    """Brokers determine the high watermark of a response before they read its records."""
    with FakeBroker(LOG, start=100) as broker:
        broker.high_watermark = 110
        assert reader(broker, 100).read(130) == list(range(100, 130))


@pytest.mark.parametrize("size", [8, 16, 17, 60])
def test_truncated_last_batch_is_evidence_against_the_one_before(size: int) -> None:
    data = rebased(LOG[0][0], 103) + LOG[1][0][:size]
    chunk = make_chunk(PARTITION, 100, data, end_offset=1000)
    assert chunk.damage == Damage(DamageKind.OFFSET_ABOVE_NEXT, 0)
    # Kafka's LazyDownConversionRecordsSend fills a response with an incomplete message of offset -1.
    chunk = make_chunk(PARTITION, 100, LOG[0][0] + struct.pack(">qi", -1, 1000) + bytes(5), end_offset=1000)
    assert (chunk.next_offset, chunk.damage) == (110, None)


def test_gaps_of_compaction_are_no_damage() -> None:
    entries = [entry(100, 103, last_offset=109), entry(115, 118, base_offset=112), entry(200, 201)]
    chunk = make_chunk(PARTITION, 105, b"".join(entries), end_offset=201)
    assert (chunk.next_offset, chunk.damage) == (201, None)
    assert offsets_of(chunk) == [115, 116, 117, 200]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [batches.NONE, batches.GZIP])
def test_offsets_of_old_formats_are_checked(magic: int, codec: int) -> None:
    def old(first: int) -> bytes:
        return batches.entry(magic, [Record(offset, value=b"v") for offset in range(first, first + 2)], codec)

    def chunk(*entries: bytes, start: int = 10) -> Chunk:
        return make_chunk(PARTITION, start, b"".join(entries), end_offset=14)

    assert (chunk(old(10), old(12)).next_offset, chunk(old(10), old(12)).damage) == (14, None)
    own = 8 if codec == batches.NONE else 9
    for offset in (own - 4, -5, 1 << 40):
        damaged = chunk(old(10), rebased(old(12), offset))
        assert damaged.damage is not None
        assert damaged.damage.kind.is_offset
        assert damaged.next_offset == 12


# ---- where reading continues after a corrupt batch -----------------------------------------------------


def flipped(data: bytes, position: int, mask: int = 0x10) -> bytes:
    """Return an entry with a changed byte."""
    return data[:position] + bytes([data[position] ^ mask]) + data[position + 1 :]


def error_of(*entries: bytes, start: int = 100, end: int = 130) -> CorruptRecordError:
    return read_to_error(make_chunk(PARTITION, start, b"".join(entries), end_offset=end))[1]


FIRST, SECOND, THIRD = (data for data, _ in LOG)
SIZE, RECORDS = 8, 70


def test_reading_continues_at_intact_batch() -> None:
    error = error_of(FIRST, flipped(SECOND, RECORDS), THIRD)
    assert (error.offset, error.after, error.entry) == (110, 120, flipped(SECOND, RECORDS))
    error = error_of(FIRST, rebased(SECOND, 118), entry(125, 130))
    assert (error.offset, error.after) == (110, 125)
    error = error_of(FIRST, rebased(SECOND, 118), entry(125, 130)[:-1])
    assert (error.offset, error.after) == (110, -1), "the following batch is not complete"
    error = error_of(FIRST, rebased(SECOND, 118), entry(125, 129))
    assert (error.offset, error.after) == (110, -1), "the offset of the following batch is not confirmed either"


def test_batch_with_high_offset_is_dropped_before_requested_one() -> None:
    """The broker returns it for all offsets below its wrong one; the remedy is to fetch behind it."""
    data = rebased(SECOND, 228) + THIRD
    assert error_of(data, start=110).after == 120
    chunk = make_chunk(PARTITION, 120, data, end_offset=130)
    assert (offsets_of(chunk), chunk.next_offset, chunk.damage) == (list(range(120, 130)), 130, None)


def test_batch_that_is_missing_after_damage_is_reported(reader: Callable[..., Reader]) -> None:
    """A broker skips a batch whose offset in its log is too low."""
    entries = [LOG[0], (rebased(SECOND, -110), 120), LOG[2]]
    with FakeBroker(entries, start=100) as broker:
        one = reader(broker, 100)
        found, error = read_to_error(one.chunk())
        assert (found, error.offset, error.after) == (list(range(100, 110)), 110, 120)
        broker.entries = [LOG[2]]
        for _ in range(2):
            one.manager.refetch(one.manager.infos[0].queue, PARTITION, 110)
            found, error = read_to_error(one.chunk())
            assert (found, error.offset, error.after) == ([], 110, 120)
            assert "had an impossible offset before and is now missing (base offset 120" in str(error)
        one.manager.refetch(one.manager.infos[0].queue, PARTITION, 120)
        assert one.read(130) == list(range(120, 130))


def test_damage_that_does_not_persist_is_read_again(reader: Callable[..., Reader]) -> None:
    """The same batch with its right offset is no missing one, even after a gap."""
    with FakeBroker([LOG[0], (rebased(THIRD, -1), 130)], start=100) as broker:
        one = reader(broker, 100)
        assert read_to_error(one.chunk())[1].offset == 110
        broker.entries = [LOG[0], LOG[2]]
        one.manager.refetch(one.manager.infos[0].queue, PARTITION, 110)
        assert one.read(130) == list(range(120, 130))


@pytest.mark.parametrize("byte", range(SIZE, SIZE + 4))
@pytest.mark.parametrize("bit", range(8))
def test_damaged_size_is_never_believed(byte: int, bit: int) -> None:
    """The bytes at a wrong position are no batch, whatever offset they seem to have."""
    error = error_of(flipped(SECOND, byte, 1 << bit), THIRD, start=110, end=NO_LIMIT)
    assert (error.offset, error.after) == (110, -1)


@pytest.mark.parametrize(
    "following",
    [
        b"",
        THIRD[:-1],
        flipped(THIRD, RECORDS),
        rebased(THIRD, 110),
        rebased(THIRD, 1297036744239511091),
        rebased(THIRD, -1),
    ],
    ids=["none", "truncated", "corrupt", "not above", "above the end of the log", "negative"],
)
def test_reading_does_not_continue_without_intact_batch(following: bytes) -> None:
    error = error_of(FIRST, flipped(SECOND, RECORDS), following)
    assert (error.offset, error.after) == (110, -1)


@pytest.mark.parametrize("following", [b"", THIRD])
def test_malformed_batch_with_valid_crc_is_skipped(following: bytes) -> None:
    malformed = entry(110, 120, payload=b"\x02\x00" * 40)
    error = error_of(FIRST, malformed, following)
    assert "corrupt record" in str(error)
    assert (error.offset, error.after) == (110, 120)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [batches.NONE, batches.GZIP])
def test_damaged_message_of_old_format_is_skipped(magic: int, codec: int) -> None:
    def old(first: int, end: int) -> bytes:
        return batches.entry(magic, [Record(offset, value=b"v" * 9) for offset in range(first, end)], codec)

    damaged = flipped(old(102, 103), 27)
    error = error_of(old(100, 102), damaged, old(103, 104))
    assert (error.offset, error.after) == (102, 103)
    assert error_of(old(100, 102), damaged).after == -1


# ---- sizes, partitions and offsets that a broker cannot mean ------------------------------------------------


@pytest.mark.parametrize("size", [1 << 20, 1 << 28, (1 << 31) - 13])
def test_claimed_batch_size_does_not_enlarge_fetches(reader: Callable[..., Reader], size: int) -> None:
    """Since Fetch version 3, brokers return whole batches, so an incomplete one is damaged."""
    damaged = FIRST[:SIZE] + struct.pack(">i", size) + FIRST[SIZE + 4 :]
    with FakeBroker([(damaged + bytes(2 << 20), 110)], start=100) as broker:
        one = reader(broker, 100)
        with pytest.raises(CorruptRecordError, match="offset 100: no complete batch"):
            offsets_of(one.chunk())
        assert {size for _, size in broker.fetches} == {1 << 20}


def test_fetch_from_old_broker_grows_to_claimed_size(reader: Callable[..., Reader]) -> None:
    large = batches.entry(1, [Record(100, value=bytes(3 << 20))])
    with FakeBroker([(large, 101)], start=100, fetch_version=2) as broker:
        assert reader(broker, 100).read(101) == [100]
        assert [size for _, size in broker.fetches[:2]] == [1 << 20, len(large)]


def test_size_above_limit_of_old_broker_is_an_error(reader: Callable[..., Reader]) -> None:
    claimed = 200 << 20
    damaged = FIRST[:SIZE] + struct.pack(">i", claimed - 12) + bytes(2 << 20)
    with FakeBroker([(damaged, 110)], start=100, fetch_version=2) as broker:
        one = reader(broker, 100)
        wait_for(lambda: one.failures)
        assert isinstance(one.failures[0], MessageSizeTooLargeError)
        expected = (
            f"offset 100: the next record is {claimed} bytes according to its size field, but the limit is 104857600"
        )
        assert expected in str(one.failures[0])
        assert max(size for _, size in broker.fetches) == 1 << 20


def surplus(key: int, _request: Any, body: bytes) -> bytes:
    return body + b"surplus" if key == FETCH else body


def foreign_topic(key: int, _request: Any, body: bytes) -> bytes:
    return body.replace(b"\x00\x01t", b"\x00\x01u", 1) if key == FETCH else body


def foreign_partition(key: int, request: Any, body: bytes) -> bytes:
    if key == FETCH:
        [topic] = request.topics
        position = body.index(b"\x00\x01t") + 7
        assert body[position : position + 4] == struct.pack(">i", topic.partitions[0].partition)
        return body[:position] + struct.pack(">i", 7) + body[position + 4 :]
    return body


def no_partition(key: int, _request: Any, body: bytes) -> bytes:
    return body[:10] + struct.pack(">i", 0) if key == FETCH else body  # throttle time, error, session id, topics


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (surplus, "7 bytes follow its last field"),
        (foreign_topic, r"not returned \[t-0\], not requested \[u-0\]"),
        (foreign_partition, r"not returned \[t-0\], not requested \[t-7\]"),
        (no_partition, r"not returned \[t-0\], not requested \[\]"),
    ],
)
def test_malformed_response_is_logged_and_backs_off(
    reader: Callable[..., Reader], caplog: pytest.LogCaptureFixture, change: Any, reason: str
) -> None:
    with FakeBroker(LOG, start=100, change=change) as broker:
        one = reader(broker, 100)
        started = time.monotonic()
        wait_for(lambda: len(broker.fetches) >= 5)
        assert time.monotonic() - started > 4 * 0.05, "each further request waits for refresh.leader.backoff.ms"
        broker.change = lambda _key, _request, body: body
        assert one.read(130) == list(range(100, 130))
        events = [record.getMessage() for record in caplog.records if "fetch_failed" in record.getMessage()]
    assert 4 <= len(events) <= 8
    assert all(re.search(reason, event) for event in events), events[0]


def test_offset_of_foreign_partition_is_not_believed() -> None:
    def foreign(key: int, _request: Any, body: bytes) -> bytes:
        return body.replace(b"\x00\x01t", b"\x00\x01u") if key == LIST_OFFSETS else body

    with FakeBroker(LOG, start=100, change=foreign) as broker:
        logs = LogOffsets(lambda: [broker.endpoint], plaintext(5))
        try:
            with pytest.raises(NotLeaderError, match="could not list offsets of partition t-0 .*: the response"):
                logs.offsets([PARTITION], -1)
            broker.change = lambda _key, _request, body: body
            assert logs.offsets([PARTITION], -1) == {PARTITION: 130}
        finally:
            logs.close()


@pytest.mark.parametrize("reset", ["smallest", "largest"])
def test_repeated_reset_to_missing_offset_backs_off(reader: Callable[..., Reader], reset: str) -> None:
    """The broker rejects the offset that it returned as its log start or end offset."""

    def out_of_range(key: int, request: Any, body: bytes) -> bytes:
        if key != FETCH:
            return body
        offset = request.topics[0].partitions[0].fetch_offset
        position = body.index(b"\x00\x01t") + 3 + 4 + 4  # topic, partitions, partition
        return body[:position] + struct.pack(">h", 1) + body[position + 2 :] if offset else body

    with FakeBroker(LOG, start=100, change=out_of_range) as broker:
        one = reader(broker, 50, reset=reset)
        started = time.monotonic()
        wait_for(lambda: len(broker.fetches) >= 6)
        assert time.monotonic() - started > 3 * 0.05, "each further request waits for refresh.leader.backoff.ms"
        announced = one.stream.take(10)
        assert len(one.stream) == 0, "the same offset is announced once"
        assert announced is not None
        assert announced[1] == PositionChanged(PARTITION, 100 if reset == "smallest" else 130)
