"""Tests of KafkaStream with queues that the tests fill: returned items, and consumed positions."""

from __future__ import annotations

import contextlib
import gc
import inspect
import random
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count, islice, pairwise
from types import FrameType
from typing import Any

import pytest
from helpers import batches
from helpers.batches import GZIP, Record
from helpers.reading import Reader, take
from helpers.threads import in_thread
from helpers.waiting import wait_for
from hypothesis import given
from hypothesis import strategies as st

from zkconsumer import KafkaStream, MessageAndMetadata, TopicPartition
from zkconsumer.consumer import decoded_items
from zkconsumer.consumer import stream as stream_module
from zkconsumer.consumer.stream import StreamSettings
from zkconsumer.errors import ConsumerTimeoutError, CorruptRecordError, ZkConsumerError
from zkconsumer.fetcher.chunk import Chunk, PositionChanged
from zkconsumer.fetcher.decode import read_messages
from zkconsumer.fetcher.queues import ByteBudget, PartitionQueue, StreamQueue
from zkconsumer.message import NO_DECODERS, MessageDecoders, MessageRows, string_decoder

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def entry(offsets: Iterable[int], **options: Any) -> bytes:
    """Return a batch whose values are its offsets."""
    return batches.batch([Record(offset, value=b"%d" % offset) for offset in offsets], **options)


@dataclass
class Fed:
    """A stream with its queues; also its owner, which records the calls."""

    timeout: float | None = 0.0
    decoders: MessageDecoders = NO_DECODERS
    check_crcs: bool = True
    skips_corrupt_batches: bool = False
    refetched: list[tuple[PartitionQueue, TopicPartition, int]] = field(default_factory=list)
    resets: list[TopicPartition] = field(default_factory=list)
    counted: Counter[TopicPartition] = field(default_factory=Counter)
    skipped: Counter[TopicPartition] = field(default_factory=Counter)
    holds_lease: bool = True

    def __post_init__(self) -> None:
        self.queue = StreamQueue(ByteBudget(1 << 30))
        self.queues: dict[TopicPartition, PartitionQueue] = {}
        settings = StreamSettings(
            client_id="client",
            decoders=self.decoders,
            timeout_s=self.timeout,
            check_crcs=self.check_crcs,
            skips_corrupt_batches=self.skips_corrupt_batches,
        )
        self.stream = KafkaStream("t", self.queue, self, settings)

    def refetch(self, queue: PartitionQueue, partition: TopicPartition, offset: int) -> None:
        self.refetched.append((queue, partition, offset))

    def on_position_changed(self, partition: TopicPartition) -> None:
        self.resets.append(partition)

    def on_consumed(self, partition: TopicPartition, rows: int) -> None:
        self.counted[partition] += rows

    def on_skipped(self, partition: TopicPartition, offsets: int) -> None:
        self.skipped[partition] += offsets

    def acquire(self, partition: TopicPartition = P0, offset: int = 0) -> Fed:
        self.stream.positions.acquire(partition, offset)
        self.queues[partition] = PartitionQueue(self.queue, 100)
        return self

    def put(
        self,
        data: bytes,
        next_offset: int,
        fetch_offset: int = 0,
        partition: TopicPartition = P0,
        aborted: Sequence[tuple[int, int]] = (),
    ) -> Fed:
        self.queues[partition].put(Chunk(partition, fetch_offset, next_offset, data, aborted))
        return self

    def move(self, offset: int, partition: TopicPartition = P0) -> Fed:
        """Announce that the next chunk starts at an offset, as a fetcher does that has looked up the offset."""
        self.queues[partition].put(PositionChanged(partition, offset))
        return self

    def release(self, *partitions: TopicPartition) -> dict[TopicPartition, int]:
        """Close the queues and release the partitions, as the connector does."""
        for partition in partitions:
            self.queues.pop(partition).close()
        return self.stream.positions.release(set(partitions))

    @property
    def consumed(self) -> dict[int, int]:
        return {p.partition: offset for p, offset in self.stream.positions.offsets(include_current=False).items()}

    @property
    def delivered(self) -> dict[int, int]:
        return {p.partition: offset for p, offset in self.stream.positions.offsets(include_current=True).items()}


def offsets(messages: Iterable[MessageAndMetadata]) -> list[int]:
    return [message.offset for message in messages]


def read_until_timeout(stream: Iterable[Any]) -> list[Any]:
    """Return all items until ConsumerTimeoutError."""
    found: list[Any] = []
    with pytest.raises(ConsumerTimeoutError):
        found.extend(iter(stream.__iter__().__next__, None))
    return found


# ---- returned items -------------------------------------------------------------------------------------


def test_messages_have_all_their_fields() -> None:
    record = Record(7, 1_600_000_000_123, b"key", b"value", (("h", b"1"), ("n", None)))
    fed = Fed().acquire(offset=7).put(batches.batch([record]), 8, 7)

    assert next(fed.stream) == MessageAndMetadata(
        "t", 0, 7, b"key", b"value", 1_600_000_000_123, 0, (("h", b"1"), ("n", None))
    )


def test_null_and_empty_keys_and_values_differ() -> None:
    records = [Record(0, key=None, value=b""), Record(1, key=b"", value=None)]
    fed = Fed().acquire().put(batches.batch(records), 2)

    assert [(m.key, m.value) for m in take(fed.stream, 2)] == [(None, b""), (b"", None)]


def test_messages_of_several_chunks_stay_in_order() -> None:
    fed = Fed().acquire()
    fed.put(entry(range(3)) + entry(range(3, 5), codec=GZIP), 5)
    fed.put(entry(range(5, 8)), 8, 5)

    assert offsets(take(fed.stream, 8)) == list(range(8))


def test_partitions_alternate_by_chunk() -> None:
    fed = Fed().acquire(P0).acquire(P1)
    fed.put(entry([0]), 1).put(entry([1]), 2, 1)
    fed.put(entry([0]), 1, partition=P1).put(entry([1]), 2, 1, partition=P1)

    assert [(m.partition, m.offset) for m in take(fed.stream, 4)] == [(0, 0), (1, 0), (0, 1), (1, 1)]


def test_messages_below_fetch_offset_are_skipped() -> None:
    """Source: Kafka 1.1 ConsumerIteratorTest, a compressed set 0..9, of which 0..4 are consumed."""
    inner = [Record(offset) for offset in range(10)]
    fed = Fed().acquire(offset=5).put(batches.message_set(1, inner, GZIP), 10, 5)

    assert offsets(take(fed.stream, 5)) == [5, 6, 7, 8, 9]
    with pytest.raises(ConsumerTimeoutError):
        next(fed.stream)
    assert fed.consumed == {0: 10}


def test_decoder_errors_do_not_stop_stream() -> None:
    def always_fails(data: bytes | None) -> Any:
        raise RuntimeError(f"cannot decode {data!r}")

    fed = Fed(decoders=(string_decoder, always_fails)).acquire().put(entry(range(3)), 3)

    messages = take(fed.stream, 3)

    assert offsets(messages) == [0, 1, 2]
    assert [message.key for message in messages] == [None, None, None]
    for message in messages:
        with pytest.raises(RuntimeError, match=f"cannot decode b'{message.offset}'"):
            _ = message.value


@pytest.mark.parametrize("wait", [next, KafkaStream.has_next, KafkaStream.peek])
def test_waiting_stream_keeps_no_records_in_memory(
    wait: Callable[[KafkaStream], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def count_blocks() -> int:
        return sum(type(found) is MessageRows for found in gc.get_objects())

    fed = Fed().acquire().put(entry(range(3)), 3)
    gc.collect()
    others, counts, take_item = count_blocks(), [], fed.queue.take

    def take(timeout_s: float | None) -> Any:
        counts.append(count_blocks() - others)
        return take_item(timeout_s)

    monkeypatch.setattr(fed.queue, "take", take)
    messages = take_messages(fed.stream, wait, 3)
    with pytest.raises(ConsumerTimeoutError):
        wait(fed.stream)

    assert counts == [0] * len(counts)
    assert [message.value for message in messages] == [b"0", b"1", b"2"]


def take_messages(stream: KafkaStream, wait: Callable[[KafkaStream], Any], count: int) -> list[MessageAndMetadata]:
    """Take messages, after each of them was awaited if ``wait`` takes none."""
    found = []
    for _ in range(count):
        if wait is not next:
            wait(stream)
        found.append(next(stream))
    return found


def test_stopped_stream_keeps_no_records_in_memory() -> None:
    fed = Fed().acquire().put(entry(range(3)), 3)
    next(fed.stream)
    fed.stream.stop()
    assert list(fed.stream) == []
    gc.collect()

    assert not [found for found in gc.get_referents(fed.stream, vars(fed.stream)) if type(found) is MessageRows]


def test_records_of_released_partition_are_freed_at_once() -> None:
    """A reference cycle would keep the fetch buffer in memory until Python's cycle collector runs."""
    data: Any = memoryview(entry(range(5000)) + entry(range(5000, 10_000)))  # decoded in two calls
    buffer = weakref.ref(data)
    fed = Fed().acquire().put(data, 10_000)
    del data
    next(fed.stream)
    gc.collect()
    gc.disable()
    try:
        fed.release(P0)
        with pytest.raises(ConsumerTimeoutError):
            next(fed.stream)
        assert buffer() is None
    finally:
        gc.enable()


def test_repr_does_not_read_stream() -> None:
    fed = Fed().acquire().put(entry([0]), 1)

    assert repr(fed.stream) == str(fed.stream) == "<KafkaStream client t>"
    assert offsets([next(fed.stream)]) == [0]


def test_stream_is_its_own_iterator() -> None:
    stream = Fed().stream

    assert iter(stream) is stream
    assert iter(stream) is iter(stream)


# ---- positions --------------------------------------------------------------------------------------------


def test_positions_within_two_chunks() -> None:
    fed = Fed().acquire(offset=10)
    fed.put(entry([10, 11, 13]), 15, 10)  # compaction has removed 12 and 14
    fed.put(entry([15]), 16, 15)
    steps = [(fed.consumed[0], fed.delivered[0])]

    for _ in range(4):
        next(fed.stream)
        steps.append((fed.consumed[0], fed.delivered[0]))
    with pytest.raises(ConsumerTimeoutError):
        next(fed.stream)
    steps.append((fed.consumed[0], fed.delivered[0]))

    assert steps == [
        (10, 10),  # nothing returned
        (10, 11),  # 10 returned
        (11, 13),  # 11 returned, the next one is 13
        (13, 14),  # 13 returned
        (15, 16),  # 15 returned
        (16, 16),  # the next one was requested
    ]


def test_positions_are_kept_per_partition() -> None:
    fed = Fed().acquire(P0, 0).acquire(P1, 100)
    fed.put(entry([0, 1]), 2).put(entry([100, 101]), 102, 100, P1)

    take(fed.stream, 3)

    assert (fed.consumed, fed.delivered) == ({0: 2, 1: 100}, {0: 2, 1: 101})


def test_position_advances_over_skipped_records() -> None:
    fed = Fed().acquire(offset=0)
    fed.put(entry([0]) + batches.batch([], base_offset=1, last_offset=9), 10)
    next(fed.stream)

    with pytest.raises(ConsumerTimeoutError):
        next(fed.stream)

    assert (fed.consumed, fed.delivered) == ({0: 10}, {0: 10})


def test_aborted_transactions_count_as_consumed() -> None:
    data = (
        entry([0, 1], producer_id=7, transactional=True)
        + batches.control_batch(2, 7, commit=False)
        + entry([3], producer_id=7, transactional=True)
        + batches.control_batch(4, 7, commit=True)
    )
    fed = Fed().acquire().put(data, 5, aborted=[(7, 0)])

    assert offsets(read_until_timeout(fed.stream)) == [3]
    assert fed.consumed == {0: 5}


def random_log(rng: random.Random) -> tuple[bytes, int, list[tuple[int, int]], list[int]]:
    """Return batches, the offset after them, the aborted transactions, and the offsets of the visible records."""
    data, offset = b"", 0
    aborted: list[tuple[int, int]] = []
    visible: list[int] = []
    for _ in range(rng.randint(1, 6)):
        kind = rng.choice(["plain", "committed", "aborted", "marker", "empty"])
        if kind == "marker":
            data += batches.control_batch(offset, 9, commit=True)
            offset += 1
            continue
        numbers = range(offset, offset + rng.randint(1, 5))
        offset = numbers.stop
        if kind == "empty":  # all records were removed by log compaction
            data += batches.batch([], base_offset=numbers.start, last_offset=numbers.stop - 1)
            continue
        data += entry(numbers, producer_id=7 if kind != "plain" else -1, transactional=kind != "plain")
        if kind != "plain":
            data += batches.control_batch(offset, 7, commit=kind == "committed")
            offset += 1
        if kind == "aborted":
            aborted.append((7, numbers.start))
        else:
            visible += numbers
    return data, offset, aborted, visible


@pytest.mark.parametrize("as_batches", [False, True], ids=["messages", "Arrow batches"])
def test_hidden_end_of_log_counts_as_consumed(as_batches: bool, record_property: Callable[[str, object], None]) -> None:
    """Once all records are consumed, the committed offset is the end offset, so the lag is 0 (KAFKA-6607)."""
    seed = random.randrange(1 << 32)
    record_property("seed", seed)
    for number in range(200):
        data, end, aborted, visible = random_log(random.Random(seed + number))
        fed = Fed().acquire().put(data, end, aborted=aborted)
        source: Iterator[Any] = fed.stream.batches() if as_batches else iter(fed.stream)
        found: list[int] = []
        while len(found) < len(visible):
            one = next(source)
            found += one.column(4).to_pylist() if as_batches else [one.offset]
        label = f"seed {seed + number}"
        assert found == visible, label
        if visible:
            assert fed.delivered == {0: end}, label
        with pytest.raises(ConsumerTimeoutError):
            next(source)
        assert fed.consumed == {0: end}, label


def test_position_is_unknown_before_start_offset() -> None:
    fed = Fed().acquire(offset=-1)
    before = fed.consumed
    fed.move(40)
    with pytest.raises(ConsumerTimeoutError):
        next(fed.stream)

    assert (before, fed.consumed, fed.delivered) == ({0: -1}, {0: 40}, {0: 40})
    assert fed.resets == [P0]


def test_reset_applies_after_queued_chunks() -> None:
    fed = Fed().acquire(offset=100).put(entry([100]), 101, 100).move(5).put(entry([5]), 6, 5)

    next(fed.stream)
    assert (fed.consumed, fed.resets) == ({0: 100}, [])
    assert next(fed.stream).offset == 5
    assert (fed.consumed, fed.delivered, fed.resets) == ({0: 5}, {0: 6}, [P0])


def test_positions_hold_across_blocks_of_chunk() -> None:
    """The last two batches are decoded together, because a block has at most 8192 messages."""
    ends = [6000, 12_000, 18_000, 18_400, 18_800]
    data = b"".join(entry(range(start, end)) for start, end in pairwise([0, *ends]))
    fed = Fed().acquire().put(data, ends[-1])

    steps = [(message.offset, fed.consumed[0], fed.delivered[0]) for message in islice(fed.stream, ends[-1])]

    assert steps == [(offset, offset, offset + 1) for offset in range(ends[-1])]


# ---- timeout and end ----------------------------------------------------------------------------------------


def test_stream_is_usable_after_timeout() -> None:
    fed = Fed(timeout=0.02).acquire()

    for _ in range(2):
        with pytest.raises(ConsumerTimeoutError) as raised:
            next(fed.stream)
        assert str(raised.value) == "no record was received from 't' within consumer.timeout.ms = 20"
    fed.put(entry([0]), 1)

    assert next(fed.stream).offset == 0


def test_chunks_without_records_do_not_extend_timeout() -> None:
    fed = Fed(timeout=0.3).acquire()
    stop = threading.Event()

    def announce() -> None:
        while not stop.wait(0.01):
            fed.queues[P0].put(PositionChanged(P0, 0))

    announcing = in_thread(announce)
    started = time.monotonic()
    try:
        with pytest.raises(ConsumerTimeoutError):
            next(fed.stream)
    finally:
        stop.set()
    announcing.result()
    assert time.monotonic() - started < 3


def test_stream_without_timeout_waits() -> None:
    fed = Fed(timeout=None).acquire()
    reading = in_thread(lambda: next(fed.stream).offset)

    fed.put(entry([0]), 1)

    assert reading.result() == 0


@pytest.mark.parametrize("arrow", [False, True], ids=["messages", "batches"])
def test_second_thread_in_stream_is_rejected(arrow: bool) -> None:
    fed = Fed(timeout=None).acquire()
    items = fed.stream.batches() if arrow else fed.stream
    reading = in_thread(lambda: next(items))
    wait_for(lambda: fed.stream._guard._thread is not None)

    for read in (lambda: next(items), fed.stream.has_next, fed.stream.peek):
        with pytest.raises(
            ZkConsumerError, match=r"<KafkaStream client t> is being read by thread '.*create_message_str"
        ):
            read()

    fed.put(entry([0]), 1)
    reading.result()
    fed.put(entry([1]), 2, fetch_offset=1)
    next(items)  # one thread after another is fine
    assert fed.consumed == {0: 1}


def test_close_ends_waiting_iteration() -> None:
    fed = Fed(timeout=None).acquire().put(entry([0, 1]), 2)
    reader = Reader(fed.stream)
    wait_for(lambda: len(reader.seen) == 2)

    fed.stream.close()

    reader.finish()
    assert offsets(reader.seen) == [0, 1]
    assert list(fed.stream) == []


def test_close_ends_iteration_within_chunk() -> None:
    fed = Fed().acquire().put(entry(range(10)), 10)
    take(fed.stream, 3)

    fed.stream.close()

    assert list(fed.stream) == []
    assert fed.consumed == {}


def test_error_has_no_chained_exception() -> None:
    """The traceback must not show the internal exception that an empty queue raises."""
    with pytest.raises(ConsumerTimeoutError) as raised:
        next(Fed().stream)

    assert raised.value.__context__ is None


def test_fetcher_failure_is_raised_once() -> None:
    fed = Fed().acquire().put(entry([0, 1]), 2)
    next(fed.stream)
    fed.queue.fail(ZkConsumerError("no broker"))

    assert next(fed.stream).offset == 1
    with pytest.raises(ZkConsumerError, match="no broker"):
        next(fed.stream)
    assert fed.consumed == {0: 2}
    with pytest.raises(ConsumerTimeoutError):
        next(fed.stream)


# ---- corrupt records ------------------------------------------------------------------------------------------


def damaged(data: bytes) -> bytes:
    """Return a batch with one inverted bit in its last byte."""
    return data[:-1] + bytes([data[-1] ^ 1])


def test_corrupt_batch_is_raised_and_refetched() -> None:
    fed = Fed().acquire().put(entry([0, 1]) + damaged(entry([2, 3])) + entry([4]), 5)
    queue = fed.queues[P0]
    take(fed.stream, 2)

    with pytest.raises(CorruptRecordError) as raised:
        next(fed.stream)

    assert raised.value.offset == 2
    assert "topic 't' partition 0 offset 2" in str(raised.value)
    assert fed.refetched == [(queue, P0, 2)]
    assert (fed.consumed, fed.delivered) == ({0: 2}, {0: 2})
    with pytest.raises(ConsumerTimeoutError):
        next(fed.stream)
    assert len(fed.refetched) == 1


def test_nothing_after_corrupt_batch_before_refetch() -> None:
    fed = Fed().acquire().put(damaged(entry([0])), 1).put(entry([1]), 2, 1)

    with pytest.raises(CorruptRecordError):
        next(fed.stream)
    # As the connector does on refetch: close the queue and fill a new one.
    fed.queues[P0].close()
    fed.queues[P0] = fed.queues[P0].replacement()
    fed.put(entry([0]), 1)

    assert offsets(read_until_timeout(fed.stream)) == [0]


def test_corrupt_batch_does_not_stop_other_partition() -> None:
    fed = Fed().acquire(P0).acquire(P1)
    fed.put(damaged(entry([0])), 1).put(entry([0, 1]), 2, partition=P1)

    with pytest.raises(CorruptRecordError):
        next(fed.stream)

    assert [(m.partition, m.offset) for m in take(fed.stream, 2)] == [(1, 0), (1, 1)]
    assert fed.consumed == {0: 0, 1: 1}


def test_batch_corrupt_in_two_fetches_is_skipped(caplog: pytest.LogCaptureFixture) -> None:
    fed = Fed(skips_corrupt_batches=True).acquire()
    data = entry([0, 1]) + damaged(entry([2, 3, 4])) + entry([5])
    fed.put(data, 6)
    assert offsets(read_until_timeout(fed.stream)) == [0, 1]
    assert (fed.refetched[-1][2], fed.skipped) == (2, {}), "it may have been corrupted in transit"

    fed.put(data, 6, 2)
    assert read_until_timeout(fed.stream) == []

    assert (fed.refetched[-1][2], fed.consumed, fed.skipped) == (5, {0: 5}, {P0: 3})
    assert "corrupt_records_skipped" in caplog.text


def test_corrupt_batch_of_unknown_end_is_raised_despite_skip() -> None:
    fed = Fed(skips_corrupt_batches=True).acquire()
    for _ in range(2):
        fed.put(damaged(entry([0])), 1)
        with pytest.raises(CorruptRecordError):
            next(fed.stream)
    assert fed.skipped == {}


def test_corrupt_value_passes_without_crc_check() -> None:
    record = batches.batch([Record(0, value=b"good")])
    bad = record.replace(b"good", b"gold")
    fed = Fed(check_crcs=False).acquire().put(bad, 1)

    assert next(fed.stream).value == b"gold"


def malformed(offset: int) -> bytes:
    """Return a batch with a valid checksum, whose second record has a value size beyond its end."""
    records = [Record(offset), Record(offset + 1)]
    good = batches.encoded_record(records[0], offset, records[0].timestamp)
    return batches.batch(records, payload=good + batches.varint(6) + b"\x00\x00\x02\x01\x50x")


def test_position_is_known_after_malformed_record() -> None:
    fed = Fed().acquire().put(entry([0, 1]) + malformed(2), 4)

    steps = [(message.offset, fed.consumed[0], fed.delivered[0]) for message in islice(fed.stream, 2)]
    with pytest.raises(CorruptRecordError) as raised:
        next(fed.stream)

    assert steps == [(0, 0, 1), (1, 1, 2)]
    assert (raised.value.offset, fed.refetched[0][2]) == (2, 2)
    assert (fed.consumed, fed.delivered) == ({0: 2}, {0: 2})


def test_header_with_invalid_utf8_loses_no_record() -> None:
    """Kafka does not check header keys; a bad one must not affect other records."""
    odd = Record(1, value=b"1", headers=(("\udcff", b"x"),))
    data = batches.batch([Record(0, value=b"0"), odd, Record(2, value=b"2")]) + entry([3])
    fed = Fed().acquire().put(data, 4).put(entry([4]), 5, 4)

    assert offsets(read_until_timeout(fed.stream)) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError()], ids=["Ctrl-C", "no memory"])
def test_any_decoding_error_loses_no_record(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop in a notebook may be interrupted and restarted; the remaining records must not count as consumed."""

    def interrupted(*args: Any, **options: Any) -> Any:
        found = read_messages(*args, **options)
        yield next(found)
        raise error

    monkeypatch.setattr(decoded_items, "read_messages", interrupted)
    fed = (
        Fed()
        .acquire()
        .put(entry(range(5000)) + entry(range(5000, 10_000)), 10_000)
        .put(entry([10_000]), 10_001, 10_000)
    )
    take(fed.stream, 5000)  # the first batch; both have more than the 8192 messages that are decoded in one call
    with pytest.raises(type(error)):
        next(fed.stream)
    monkeypatch.setattr(decoded_items, "read_messages", read_messages)

    for queue, partition, offset in fed.refetched:  # as the connector does
        queue.close()
        fed.queues[partition] = queue.replacement()
        fed.put(entry(range(offset, 10_001)), 10_001, offset, partition)
    assert offsets(read_until_timeout(fed.stream)) == [*range(5000, 10_001)]


@contextlib.contextmanager
def interrupted_at(line: int, *files: str) -> Iterator[None]:
    """Raise KeyboardInterrupt before the given line, counted from 0, that is executed in the files."""
    count = 0

    def trace(frame: FrameType, event: str, _arg: object) -> Any:
        nonlocal count
        if frame.f_code.co_filename not in files:
            return None
        if event == "line":
            count += 1
            if count > line:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


@pytest.mark.parametrize(("call", "returned"), [("next", 1), ("batches", 20), ("has_next", 0), ("clear", 0)])
def test_interrupt_at_any_line_loses_no_record(call: str, returned: int) -> None:
    """No module that acquires a lock is interrupted: Python raises no KeyboardInterrupt before a lock is released.

    The records that the interrupted call was about to return count as delivered.
    """
    for line in count():
        # In another thread, because an exception of a trace function can leave ``sys.exc_info()`` of the thread set.
        found, is_interrupted = in_thread(partial(_read_with_interrupt, line, call)).result(10)
        assert found in ([*range(31)], [*range(10), *range(10 + returned, 31)]), f"line {line}"
        if not is_interrupted:
            assert line > 5
            return


def _read_with_interrupt(line: int, call: str) -> tuple[list[int], bool]:
    fed = Fed().acquire().put(entry(range(10)), 10).put(entry(range(10, 20)) + entry(range(20, 30)), 30, 10)
    arrow = fed.put(entry([30]), 31, 30).stream.batches()

    def read() -> list[int]:
        if call != "batches":
            return offsets(read_until_timeout(fed.stream))
        return [offset for batch in read_until_timeout(arrow) for offset in batch["offset"].to_pylist()]

    found = next(arrow)["offset"].to_pylist() if call == "batches" else offsets(take(fed.stream, 10))
    is_interrupted = False
    try:
        with interrupted_at(line, inspect.getfile(stream_module), inspect.getfile(decoded_items)):
            if call == "batches":
                found += next(arrow)["offset"].to_pylist()
            elif call == "next":
                found.append(next(fed.stream).offset)
            else:
                getattr(fed.stream, call)()
    except KeyboardInterrupt:
        is_interrupted = True
    assert fed.consumed[0] <= len(found)
    for _ in range(2):  # that a chunk was discarded is noticed when the next one is read
        for queue, partition, offset in fed.refetched:  # as the connector does
            if queue is fed.queues[partition]:
                queue.close()
                fed.queues[partition] = queue.replacement()
                fed.put(entry(range(offset, 31)), 31, offset, partition)
        fed.refetched.clear()
        found += read()
    return found, is_interrupted


def test_interrupt_before_corrupt_batch_loses_no_record() -> None:
    """The records before a batch must not be skipped with it."""
    for line in count():
        found, is_interrupted = in_thread(partial(_skip_batch_with_interrupt, line)).result(10)
        assert found in ([*range(10), 11], [*range(1, 10), 11]), f"line {line}"
        if not is_interrupted:
            assert line > 5
            return


def _skip_batch_with_interrupt(line: int) -> tuple[list[int], bool]:
    fed = Fed(skips_corrupt_batches=True).acquire()

    def fetch(offset: int) -> None:
        first = b"" if offset >= 10 else entry(range(10))
        fed.put(first + (b"" if offset > 10 else damaged(entry([10]))) + entry([11]), 12, offset)

    fetch(0)
    found, is_interrupted = [], False
    try:
        with interrupted_at(line, inspect.getfile(stream_module), inspect.getfile(decoded_items)):
            found = [next(fed.stream).offset]
    except KeyboardInterrupt:
        is_interrupted = True
    if not fed.refetched and not len(fed.queue):  # the next chunk reveals that this one was lost
        fed.put(entry([12]), 13, 12)
    for _ in range(6):
        found += offsets(read_until_timeout(fed.stream))
        for queue, partition, offset in fed.refetched:  # as the connector does
            if queue is fed.queues[partition]:
                queue.close()
                fed.queues[partition] = queue.replacement()
                fetch(offset)
        fed.refetched.clear()
    return [offset for offset in found if offset < 12], is_interrupted


# ---- release -----------------------------------------------------------------------------------------------------


def test_release_of_unread_partition_returns_start() -> None:
    fed = Fed().acquire(offset=5).put(entry([5]), 6, 5)

    assert fed.release(P0) == {P0: 5}
    assert fed.consumed == {}
    assert read_until_timeout(fed.stream) == []


def test_release_returns_current_message_and_stops() -> None:
    fed = Fed().acquire().put(entry(range(10)), 10).put(entry([10]), 11, 10)
    take(fed.stream, 4)

    assert fed.release(P0) == {P0: 3}
    assert read_until_timeout(fed.stream) == []


def test_release_after_last_message_returns_end() -> None:
    fed = Fed().acquire().put(entry(range(3)), 3)

    assert len(read_until_timeout(fed.stream)) == 3
    assert fed.release(P0) == {P0: 3}


def test_release_of_one_partition_keeps_others() -> None:
    fed = Fed().acquire(P0).acquire(P1)
    fed.put(entry(range(4)), 4).put(entry(range(2)), 2, partition=P1)
    take(fed.stream, 2)

    assert fed.release(P0) == {P0: 1}
    assert [(m.partition, m.offset) for m in read_until_timeout(fed.stream)] == [(1, 0), (1, 1)]
    assert fed.consumed == {1: 2}


def test_release_keeps_current_message_of_other_partition() -> None:
    fed = Fed().acquire(P0).acquire(P1, 9).put(entry(range(4)), 4)
    take(fed.stream, 2)

    assert fed.release(P1) == {P1: 9}
    assert offsets(take(fed.stream, 2)) == [2, 3]
    assert fed.consumed == {0: 3}


def test_release_of_unowned_partition_returns_nothing() -> None:
    assert Fed().stream.positions.release({P0}) == {}


def test_unknown_position_is_released_as_unknown() -> None:
    assert Fed().acquire(offset=-1).release(P0) == {P0: -1}


def test_regained_partition_starts_at_given_offset() -> None:
    fed = Fed().acquire().put(entry(range(4)), 4)
    take(fed.stream, 2)
    fed.release(P0)
    fed.acquire(P0, 1).put(entry(range(1, 4)), 4, 1)

    assert offsets(read_until_timeout(fed.stream)) == [1, 2, 3]


def test_reset_before_release_is_ignored() -> None:
    fed = Fed().acquire(offset=50)
    old = fed.queues[P0]
    fed.stream.positions.release({P0})
    old.close()
    old.put(PositionChanged(P0, 3))
    fed.acquire(P0, 60)

    read_until_timeout(fed.stream)

    assert (fed.consumed, fed.resets) == ({0: 60}, [])


@pytest.mark.parametrize("arrow", [False, True], ids=["messages", "batches"])
def test_no_item_is_returned_after_end_of_lease(arrow: bool) -> None:
    fed = Fed().acquire()
    fed.put(entry(range(3)) + entry(range(3, 6)), 6)
    items = fed.stream.batches(3) if arrow else fed.stream
    next(items)
    fed.holds_lease = False
    fed.stream.positions.end_lease()

    with pytest.raises(ConsumerTimeoutError):
        next(items)
    assert fed.queues[P0].is_closed  # the member claims the partition again, with a new queue
    assert fed.consumed == {0: 0}


@pytest.mark.parametrize("arrow", [False, True], ids=["messages", "batches"])
def test_each_block_is_checked_against_lease(arrow: bool) -> None:
    """A process that was suspended may continue to read before the thread of the lease runs."""
    fed = Fed().acquire()
    fed.put(entry(range(3)), 3)
    items = fed.stream.batches() if arrow else fed.stream
    fed.holds_lease = False

    with pytest.raises(ConsumerTimeoutError):
        next(items)
    assert fed.consumed == {0: 0}


def test_late_end_of_lease_keeps_items_of_new_lease() -> None:
    fed = Fed().acquire()
    fed.put(entry(range(3)), 3)
    assert next(fed.stream).offset == 0
    fed.stream.positions.end_lease()  # the member has registered again meanwhile
    assert [message.offset for message in islice(fed.stream, 2)] == [1, 2]


def check_release_while_reading(arrow: bool) -> None:
    """Release a partition from another thread while a reader runs at full speed."""
    total = 6000
    fed = Fed(timeout=None).acquire()
    for first in range(0, total, 300):
        fed.put(b"".join(entry(range(at, at + 10)) for at in range(first, first + 300, 10)), first + 300, first)
    got: list[int] = []
    begun = threading.Event()

    def read() -> None:
        items: Iterator[Any] = fed.stream.batches(10) if arrow else fed.stream
        for item in items:
            got.extend(item.column("offset").to_pylist() if arrow else [item.offset])
            begun.set()

    reading = in_thread(read)
    assert begun.wait(10)
    released = fed.release(P0)[P0]
    size_at_release = len(got)
    fed.stream.close()
    reading.result()

    # The position is that of the current item or the one after it, and at most one more item is returned.
    in_hand = 10 if arrow else 1
    assert got == list(range(len(got)))
    assert len(got) - in_hand <= released <= len(got)
    assert len(got) <= size_at_release + in_hand


@pytest.mark.parametrize("arrow", [False, True], ids=["messages", "batches"])
def test_release_during_read_repeats_only_current_item(arrow: bool) -> None:
    for _ in range(40):
        check_release_while_reading(arrow)


@given(
    sizes=st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=3), min_size=1, max_size=4),
    reads=st.integers(0, 40),
    at_once=st.integers(1, 5),
)
def test_released_position_repeats_at_most_one_message(sizes: list[list[int]], reads: int, at_once: int) -> None:
    chunks, at = [], 0
    for chunk in sizes:
        data, first = b"", at
        for size in chunk:
            data += entry(range(at, at + size))
            at += size
        chunks.append((data, at, first))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoded_items, "_MESSAGES_PER_BLOCK", at_once)
        fed = Fed().acquire()
        for data, next_offset, first in chunks:
            fed.put(data, next_offset, first)
        seen: list[int] = []
        asked_too_often = False
        for _ in range(reads):
            try:
                seen.append(next(fed.stream).offset)
            except ConsumerTimeoutError:
                asked_too_often = True
        consumed, delivered = fed.consumed[0], fed.delivered[0]
        released = fed.release(P0)[P0]

    assert seen == list(range(min(reads, at)))
    assert delivered == len(seen)
    assert consumed == released == (len(seen) if asked_too_often or not seen else len(seen) - 1)


# ---- Arrow batches ---------------------------------------------------------------------------------------------


def test_batches_equal_messages() -> None:
    records = [
        Record(0, 1_600_000_000_000, b"k", b"v", (("h", b"1"),)),
        Record(1, 1_600_000_000_001, None, b""),
        Record(3, 1_600_000_000_002, b"", None),
    ]
    data = batches.batch(records[:2]) + batches.batch(records[2:], GZIP)
    messages = take(Fed().acquire().put(data, 4).stream, 3)

    rows = [
        row
        for batch in read_until_timeout(Fed().acquire().put(data, 4).stream.batches(include_headers=True))
        for row in batch.to_pylist()
    ]

    assert [
        MessageAndMetadata(
            row["topic"],
            row["partition"],
            row["offset"],
            row["key"],
            row["value"],
            round(row["timestamp"].timestamp() * 1000),
            row["timestampType"],
            tuple((header["key"], header["value"]) for header in row["headers"] or ()),
        )
        for row in rows
    ] == messages


def test_headers_are_in_batches_on_request() -> None:
    fed = Fed().acquire().put(entry([0]), 1)

    assert "headers" not in next(fed.stream.batches()).schema.names


def test_batches_are_limited_to_max_rows() -> None:
    fed = Fed().acquire().put(entry([0, 1]) + entry([2, 3]) + entry(range(4, 9)) + entry([9]), 10)

    found = read_until_timeout(fed.stream.batches(max_rows=4))

    assert [batch.column("offset").to_pylist() for batch in found] == [[0, 1, 2, 3], [4, 5, 6, 7, 8], [9]]


def test_positions_within_batches() -> None:
    fed = Fed().acquire(offset=0).put(entry([0, 1]) + entry([3, 4]), 6)
    found, steps = fed.stream.batches(max_rows=2), [(fed.consumed[0], fed.delivered[0])]

    for _ in range(2):
        next(found)
        steps.append((fed.consumed[0], fed.delivered[0]))
    with pytest.raises(ConsumerTimeoutError):
        next(found)
    steps.append((fed.consumed[0], fed.delivered[0]))

    assert steps == [(0, 0), (0, 2), (2, 5), (6, 6)]


def test_batches_returns_same_iterator() -> None:
    fed = Fed().acquire().put(entry([0]) + entry([1]), 2)
    first = fed.stream.batches(1)

    assert fed.stream.batches(1) is first
    assert iter(first) is first
    assert [next(first).num_rows, next(fed.stream.batches(1)).num_rows] == [1, 1]


def test_batches_resume_after_timeout_and_corruption() -> None:
    fed = Fed().acquire(P0).acquire(P1)
    found: Callable[[], Any] = fed.stream.batches().__next__
    with pytest.raises(ConsumerTimeoutError):
        found()
    fed.put(damaged(entry([0])), 1).put(entry([5]), 6, partition=P1)

    with pytest.raises(CorruptRecordError):
        found()

    assert fed.refetched == [(fed.queues[P0], P0, 0)]
    assert found().column("offset").to_pylist() == [5]


def test_close_ends_batches() -> None:
    fed = Fed().acquire().put(entry([0]) + entry([1]), 2)
    found = fed.stream.batches(1)
    next(found)

    fed.stream.close()

    assert list(found) == []


def test_release_returns_first_offset_of_current_batch() -> None:
    fed = Fed().acquire().put(entry([0, 1]) + entry([2, 3]), 4)
    found = fed.stream.batches(2)
    take(found, 2)

    assert fed.release(P0) == {P0: 2}
