"""Tests of StreamPositions, without threads: delivered items, consumed offsets and releases."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers import batches

from zkconsumer.consumer.decoded_items import DecodedItems, OpenChunk, decode_messages
from zkconsumer.consumer.positions import Delivery, StreamPositions
from zkconsumer.fetcher.chunk import Chunk, PositionChanged
from zkconsumer.fetcher.queues import ByteBudget, PartitionQueue, StreamQueue
from zkconsumer.message import NO_DECODERS, TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Owner:
    """A consumer whose lease a test can end, and that records resets."""

    def __init__(self) -> None:
        self.holds_lease = True
        self.resets: list[TopicPartition] = []

    def refetch(self, queue: PartitionQueue, partition: TopicPartition, offset: int) -> None:
        raise AssertionError("positions never fetch")

    def on_position_changed(self, partition: TopicPartition) -> None:
        self.resets.append(partition)

    def on_consumed(self, partition: TopicPartition, rows: int) -> None:
        raise AssertionError("the stream counts records")

    def on_skipped(self, partition: TopicPartition, offsets: int) -> None:
        raise AssertionError("the stream counts offsets")


class Fixture:
    """Positions of two partitions at offset 10, and the queue of the first one."""

    def __init__(self) -> None:
        self.owner = Owner()
        self.stream = StreamQueue(ByteBudget(1 << 30))
        self.queue = PartitionQueue(self.stream, 1)
        self.positions = StreamPositions(self.stream, self.owner)
        self.positions.acquire(P0, 10)
        self.positions.acquire(P1, 10)

    def items(self, *offsets: int, next_offset: int) -> DecodedItems:
        """Return items of the first partition with these offsets."""
        data = batches.entry(2, [batches.Record(offset) for offset in offsets])
        opened = OpenChunk(self.queue, P0, 10, next_offset)
        chunk = Chunk(P0, 10, next_offset, data)
        return replace(next(decode_messages(opened, chunk, NO_DECODERS, check_crcs=True)), next_offset=next_offset)

    @property
    def consumed(self) -> int:
        return self.positions.offsets(include_current=False)[P0]

    @property
    def delivered(self) -> int:
        return self.positions.offsets(include_current=True)[P0]


@pytest.fixture
def made() -> Fixture:
    return Fixture()


def test_delivered_item_is_consumed_with_next_one(made: Fixture) -> None:
    items = made.items(10, 12, next_offset=15)
    assert made.positions.deliver(items) is Delivery.ALLOWED
    steps = [(made.consumed, made.delivered)]
    for _ in range(2):
        items.remaining.popleft()
        steps.append((made.consumed, made.delivered))

    assert steps == [(10, 10), (10, 12), (12, 15)]
    assert made.positions.consume_current() is items
    assert made.positions.consume_current() is None
    assert (made.consumed, made.delivered) == (15, 15)


def test_release_repeats_last_delivered_item(made: Fixture) -> None:
    items = made.items(10, 11, 12, next_offset=13)
    made.positions.deliver(items)
    items.remaining.popleft()
    items.remaining.popleft()

    assert made.positions.release({P0}) == {P0: 11}
    assert not items.remaining
    assert made.positions.consume_current() is None
    assert made.positions.offsets(include_current=True) == {P1: 10}


def test_last_delivered_item_can_be_consumed(made: Fixture) -> None:
    items = made.items(10, 12, next_offset=15)
    made.positions.deliver(items)
    made.positions.consume_last(P0, 10)
    assert made.consumed == 10, "no item was delivered"
    items.remaining.popleft()
    made.positions.consume_last(P1, 10)
    made.positions.consume_last(P0, 9)
    assert made.consumed == 10, "another item was delivered last"

    made.positions.consume_last(P0, 10)
    assert made.consumed == 12
    items.remaining.popleft()
    made.positions.consume_last(P0, 10)
    assert made.consumed == 12, "the next item was delivered"
    made.positions.consume_last(P0, 12)

    assert made.positions.release({P0}) == {P0: 15}
    made.positions.consume_last(P0, 12)
    assert made.positions.offsets(include_current=True) == {P1: 10}


def test_delivered_items_can_be_consumed(made: Fixture) -> None:
    items = made.items(10, 12, next_offset=15)
    made.positions.deliver(items)
    assert made.positions.consume_delivered() == {P0: 10, P1: 10}, "no item was delivered"
    items.remaining.popleft()

    assert made.positions.consume_delivered() == {P0: 12, P1: 10}
    assert made.consumed == 12
    assert made.positions.release({P0, P1}) == {P0: 12, P1: 10}
    made.positions.acquire(P0, 3)
    assert made.consumed == 3


def test_changed_position_replaces_consumed_offset(made: Fixture) -> None:
    items = made.items(10, 12, next_offset=15)
    made.positions.deliver(items)
    items.remaining.popleft()
    made.positions.consume_delivered()
    made.positions.consume_current()

    made.positions.apply(made.queue, PositionChanged(P0, 4))

    assert (made.consumed, made.positions.position(P0), made.owner.resets) == (4, 4, [P0])


@pytest.mark.parametrize("is_closed", [False, True])
def test_released_partition_keeps_no_position(made: Fixture, is_closed: bool) -> None:
    if is_closed:
        made.queue.close()  # the partition is owned again, with another queue
    else:
        made.positions.release({P0})
        made.positions.skip_to(P0, 7)

    made.positions.apply(made.queue, PositionChanged(P0, 4))
    assert (made.positions.position(P0), made.owner.resets) == (10 if is_closed else None, [])


def test_nothing_is_delivered_after_end_of_lease(made: Fixture) -> None:
    made.owner.holds_lease = False

    assert made.positions.deliver(made.items(10, next_offset=11)) is Delivery.RELEASED

    assert made.queue.is_closed
    assert made.consumed == 10


def test_end_of_lease_discards_current_items(made: Fixture) -> None:
    items = made.items(10, 11, next_offset=12)
    made.positions.deliver(items)
    items.remaining.popleft()
    made.positions.end_lease()
    assert len(items.remaining) == 1, "the member has registered again"

    made.owner.holds_lease = False
    made.positions.end_lease()

    assert (len(items.remaining), made.queue.is_closed, made.consumed) == (0, True, 10)


def test_items_of_closed_stream_are_not_delivered(made: Fixture) -> None:
    made.stream.close()

    assert made.positions.deliver(made.items(10, next_offset=11)) is Delivery.RELEASED


def test_dropped_items_count_only_delivered_ones(made: Fixture) -> None:
    items = made.items(10, 11, 12, next_offset=13)
    made.positions.deliver(items)
    items.remaining.popleft()

    made.positions.consume_current()

    assert (made.consumed, len(items.remaining)) == (11, 0)
    made.positions.consume_current()
    made.positions.release_all()
    assert made.positions.offsets(include_current=True) == {}


def test_items_after_missing_ones_are_not_delivered(made: Fixture) -> None:
    made.positions.skip_to(P0, 9)

    assert made.positions.deliver(made.items(10, next_offset=11)) is Delivery.ITEMS_MISSING
    assert made.positions.consume_current() is None
    assert made.consumed == 9


def test_end_of_chunk_is_consumed(made: Fixture) -> None:
    """The offsets after the last record belong to control batches, for example."""
    chunk = OpenChunk(made.queue, P0, 10, 15, is_decoded=True)

    assert made.positions.finish(chunk)
    assert made.consumed == 15
    assert made.positions.finish(chunk), "a stream without further chunks finishes its last one repeatedly"
    assert made.consumed == 15


@pytest.mark.parametrize(("position", "is_decoded"), [(12, True), (10, False)], ids=["not delivered", "not decoded"])
def test_missing_items_are_noticed_at_end_of_chunk(made: Fixture, position: int, is_decoded: bool) -> None:
    chunk = OpenChunk(made.queue, P0, position, 15, is_decoded=is_decoded)

    assert not made.positions.finish(chunk)
    assert made.consumed == 10


def test_end_of_chunk_of_released_partition_is_ignored(made: Fixture) -> None:
    chunk = OpenChunk(made.queue, P0, 10, 15, is_decoded=True)
    made.queue.close()
    made.positions.release({P0})
    assert made.positions.finish(chunk)

    made.positions.acquire(P0, 10)
    assert made.positions.finish(chunk)
    assert made.consumed == 10
