"""Tests of the bounded queues of partitions, and of the stream that takes chunks from them in turn."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable

import pytest
from helpers.threads import in_thread
from helpers.waiting import wait_for
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from zkconsumer.errors import ZkConsumerError
from zkconsumer.fetcher.chunk import Chunk, PositionChanged
from zkconsumer.fetcher.queues import ByteBudget, PartitionQueue, StreamQueue
from zkconsumer.message import TopicPartition
from zkconsumer.threads import WakeUp


def chunk(offset: int, partition: int = 0, data: bytes = b"data") -> Chunk:
    return Chunk(TopicPartition("t", partition), offset, offset + 1, data)


@pytest.mark.parametrize("timeout_s", [None, 60.0])
def test_signal_to_another_thread_interrupts_waiting(timeout_s: float | None) -> None:
    """The operating system may deliver a signal to any thread, which does not wake up the main thread."""

    def handle(*_: object) -> None:
        raise KeyboardInterrupt

    def is_waiting() -> bool:
        frame = sys._current_frames()[main]
        return frame.f_code is WakeUp.wait.__code__

    def send() -> None:
        wait_for(is_waiting)
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)

    main = threading.get_ident()
    stream = StreamQueue(ByteBudget(LIMIT))
    before = signal.signal(signal.SIGUSR1, handle)
    try:
        sender = in_thread(send)
        with pytest.raises(KeyboardInterrupt):
            stream.take(timeout_s)
        sender.result()
    finally:
        signal.signal(signal.SIGUSR1, before)


P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def taken(stream: StreamQueue, timeout: float | None = 0) -> Chunk:
    found = stream.take(timeout)
    assert found is not None
    assert isinstance(found[1], Chunk)
    return found[1]


#: Maximum bytes of the queues.
LIMIT = 1 << 30


@pytest.fixture
def budget() -> ByteBudget:
    return ByteBudget(LIMIT)


@pytest.fixture
def stream(budget: ByteBudget) -> StreamQueue:
    return StreamQueue(budget)


def queued_bytes(budget: ByteBudget) -> int:
    """Return the bytes that a fetcher cannot reserve."""
    granted = budget.reserve(LIMIT, 0)
    budget.release(granted)
    return LIMIT - granted


# ---- order and bounds -----------------------------------------------------------------------------------


def test_chunks_of_partition_stay_in_order(stream: StreamQueue) -> None:
    queue = PartitionQueue(stream, 3)
    for offset in range(3):
        queue.put(chunk(offset))

    found = [stream.take(0) for _ in range(3)]

    assert found == [(queue, chunk(offset)) for offset in range(3)]


def test_queue_has_room_below_capacity(stream: StreamQueue) -> None:
    queue = PartitionQueue(stream, 2)
    room = []
    for offset in range(3):
        room.append(queue.has_room)
        queue.put(chunk(offset))

    assert room == [True, True, False]


def test_full_queue_does_not_fill_others(stream: StreamQueue) -> None:
    full, other = PartitionQueue(stream, 1), PartitionQueue(stream, 1)
    full.put(chunk(0))

    assert not full.has_room
    assert other.has_room


def test_put_never_blocks(stream: StreamQueue) -> None:
    queue = PartitionQueue(stream, 1)

    def put() -> None:
        for offset in range(5):
            queue.put(chunk(offset))

    in_thread(put).result(5)

    assert [taken(stream).fetch_offset for _ in range(5)] == [0, 1, 2, 3, 4]


def test_callback_runs_for_each_taken_chunk(stream: StreamQueue) -> None:
    queue = PartitionQueue(stream, 2)
    calls: list[bool] = []
    queue.on_room = lambda taken_from: calls.append(taken_from.has_room)
    queue.put(chunk(0))
    queue.put(chunk(1))

    stream.take(0)
    stream.take(0)

    assert calls == [True, True]


def test_callback_gets_queue_of_taken_chunk(stream: StreamQueue) -> None:
    calls: list[PartitionQueue] = []
    a, b = PartitionQueue(stream, 1), PartitionQueue(stream, 1)
    a.on_room = b.on_room = calls.append
    b.put(chunk(0, 1))

    stream.take(0)

    assert calls == [b]


def test_callback_can_put_next_chunk(stream: StreamQueue) -> None:
    queue = PartitionQueue(stream, 1)
    queue.on_room = lambda taken_from: taken_from.put(chunk(1))
    queue.put(chunk(0))

    found = in_thread(lambda: [taken(stream).fetch_offset, taken(stream).fetch_offset]).result(5)

    assert found == [0, 1]


def test_bytes_count_queued_chunks(budget: ByteBudget, stream: StreamQueue) -> None:
    queue = PartitionQueue(stream, 3)
    queue.put(chunk(0, data=b"12345"))
    queue.put(chunk(1, data=b"123"))
    before = queued_bytes(budget)
    stream.take(0)

    assert (before, queued_bytes(budget)) == (8, 3)


def test_partitions_alternate(stream: StreamQueue) -> None:
    queues = [PartitionQueue(stream, 4) for _ in range(3)]
    for offset in range(4):
        queues[0].put(chunk(offset, 0))
    queues[1].put(chunk(0, 1))
    for offset in range(2):
        queues[2].put(chunk(offset, 2))

    order = [(c.partition.partition, c.fetch_offset) for c in (taken(stream) for _ in range(7))]

    assert order == [(0, 0), (1, 0), (2, 0), (0, 1), (2, 1), (0, 2), (0, 3)]


@given(st.lists(st.integers(1, 6), min_size=1, max_size=6))
def test_partition_waits_for_one_chunk_of_each_other(sizes: list[int]) -> None:
    stream = StreamQueue(ByteBudget(1 << 30))
    queues = [PartitionQueue(stream, 10) for _ in sizes]
    for number, (queue, size) in enumerate(zip(queues, sizes, strict=True)):
        for offset in range(size):
            queue.put(chunk(offset, number))

    waited = [0] * len(sizes)
    left = list(sizes)
    for _ in range(sum(sizes)):
        number = taken(stream).partition.partition
        left[number] -= 1
        waited[number] = 0
        for other, rest in enumerate(left):
            if other != number and rest:
                waited[other] += 1
                assert waited[other] < len(sizes)

    assert left == [0] * len(sizes)


# ---- waiting ------------------------------------------------------------------------------------------------


def test_take_from_empty_queue_times_out(stream: StreamQueue) -> None:
    PartitionQueue(stream, 1)
    started = time.monotonic()

    assert stream.take(0.05) is None
    assert time.monotonic() - started >= 0.05


def test_take_with_zero_timeout_does_not_block(stream: StreamQueue) -> None:
    assert stream.take(0) is None


def test_waiting_take_returns_new_chunk(stream: StreamQueue) -> None:
    queue = PartitionQueue(stream, 1)
    waiting = in_thread(lambda: taken(stream, None).fetch_offset)

    queue.put(chunk(7))

    assert waiting.result() == 7


# ---- close --------------------------------------------------------------------------------------------------


def test_closed_partition_discards_chunks(budget: ByteBudget, stream: StreamQueue) -> None:
    closed, kept = PartitionQueue(stream, 2), PartitionQueue(stream, 2)
    closed.put(chunk(0, 0))
    kept.put(chunk(0, 1))

    closed.close()
    closed.put(chunk(1, 0))

    assert closed.is_closed
    assert queued_bytes(budget) == len(b"data"), "only those of the other partition"
    assert taken(stream).partition.partition == 1
    assert stream.take(0) is None


def test_closing_partition_is_idempotent(stream: StreamQueue) -> None:
    queue = PartitionQueue(stream, 1)

    queue.close()
    queue.close()

    assert queue.is_closed
    assert stream.take(0) is None


def test_renewed_queue_is_empty(stream: StreamQueue) -> None:
    queue = PartitionQueue(stream, 2)
    queue.put(chunk(0))
    queue.close()

    replacement = queue.replacement()
    for offset in (5, 6):
        assert replacement.has_room
        replacement.put(chunk(offset))

    assert not replacement.has_room
    assert [taken(stream).fetch_offset, taken(stream).fetch_offset] == [5, 6]


def test_closed_stream_ends_waiting_take(stream: StreamQueue) -> None:
    waiting = in_thread(lambda: stream.take(None))

    stream.close()

    assert waiting.result() is None
    assert stream.is_closed


def test_closed_stream_discards_chunks(budget: ByteBudget, stream: StreamQueue) -> None:
    queue = PartitionQueue(stream, 2)
    queue.put(chunk(0))

    stream.close()
    queue.put(chunk(1))
    queue.close()

    assert stream.take(None) is None
    assert queued_bytes(budget) == 0


# ---- failures -----------------------------------------------------------------------------------------------


def test_failure_is_raised_once(stream: StreamQueue) -> None:
    queue = PartitionQueue(stream, 1)
    queue.put(chunk(0))
    stream.fail(RuntimeError("raised once"))

    with pytest.raises(RuntimeError, match="raised once"):
        stream.take(0)

    assert taken(stream).fetch_offset == 0


def test_failure_wakes_waiting_stream(stream: StreamQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zkconsumer.fetcher.queues.WAKE_INTERVAL_S", 600.0)
    waiting = in_thread(lambda: stream.take(None))
    wait_for(lambda: sys._current_frames()[waiting.ident or 0].f_code is WakeUp.wait.__code__)

    stream.fail(RuntimeError("now"))

    with pytest.raises(RuntimeError, match="now"):
        waiting.result()


def test_failures_are_raised_in_order(stream: StreamQueue) -> None:
    for text in ("first", "second"):
        stream.fail(RuntimeError(text))

    for text in ("first", "second"):
        with pytest.raises(RuntimeError, match=text):
            stream.take(0)
    assert stream.take(0) is None


def test_unread_stream_keeps_latest_failures(stream: StreamQueue) -> None:
    for number in range(1000):
        stream.fail(RuntimeError(f"failure {number}"))

    found = []
    while True:
        try:
            assert stream.take(0) is None
            break
        except RuntimeError as error:
            found.append(str(error))

    assert found == [f"failure {number}" for number in range(1000 - len(found), 1000)]
    assert 1 <= len(found) <= 100


def test_final_failure_is_raised_each_time(stream: StreamQueue) -> None:
    error = ZkConsumerError("the group member failed")
    stream.fail(error, is_final=True)
    for _ in range(2):
        with pytest.raises(ZkConsumerError) as raised:
            stream.take(0)
        assert raised.value is error
    stream.close()
    assert stream.take(None) is None


def test_failure_is_raised_before_end_of_stream(stream: StreamQueue) -> None:
    stream.fail(RuntimeError("why it ended"))
    stream.close()

    with pytest.raises(RuntimeError, match="why it ended"):
        stream.take(None)
    assert stream.take(None) is None


# ---- any order of calls ---------------------------------------------------------------------------------------


class AnyOrder(RuleBasedStateMachine):
    """Compares the queues with a model: lists of offsets per partition, and the order of the partitions."""

    def __init__(self) -> None:
        super().__init__()
        self.budget = ByteBudget(LIMIT)
        self.stream = StreamQueue(self.budget)
        self.queues: list[PartitionQueue] = []
        self.waiting: list[list[int]] = []
        self.turns: list[int] = []
        self.next_offset = 0
        self.on_room_calls: list[PartitionQueue] = []

    @initialize(count=st.integers(1, 4), capacity=st.integers(1, 3))
    def begin(self, count: int, capacity: int) -> None:
        self.capacity = capacity
        for _ in range(count):
            self._add(PartitionQueue(self.stream, capacity))

    def _add(self, queue: PartitionQueue) -> None:
        queue.on_room = self.on_room_calls.append
        self.queues.append(queue)
        self.waiting.append([])

    def _pick(self, data: st.DataObject) -> int:
        return data.draw(st.integers(0, len(self.queues) - 1))

    @rule(data=st.data())
    def put(self, data: st.DataObject) -> None:
        number = self._pick(data)
        self.queues[number].put(chunk(self.next_offset, number))
        if not self.queues[number].is_closed:
            if not self.waiting[number]:
                self.turns.append(number)
            self.waiting[number].append(self.next_offset)
        self.next_offset += 1

    @rule()
    def take(self) -> None:
        calls = list(self.on_room_calls)
        found = self.stream.take(0)
        if not self.turns:
            assert (found, self.on_room_calls) == (None, calls)
            return
        number = self.turns.pop(0)
        assert found == (self.queues[number], chunk(self.waiting[number].pop(0), number))
        assert self.on_room_calls == [*calls, self.queues[number]]
        if self.waiting[number]:
            self.turns.append(number)

    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        number = self._pick(data)
        self.queues[number].close()
        self.waiting[number].clear()
        if number in self.turns:
            self.turns.remove(number)

    @precondition(lambda self: any(queue.is_closed for queue in self.queues) and len(self.queues) < 8)
    @rule()
    def renew(self) -> None:
        closed = next(queue for queue in self.queues if queue.is_closed)
        self._add(closed.replacement())

    @invariant()
    def room_is_what_is_left_of_the_capacity(self) -> None:
        for queue, waiting in zip(self.queues, self.waiting, strict=True):
            assert queue.has_room == (len(waiting) < self.capacity)

    @invariant()
    def bytes_of_waiting_chunks_are_counted(self) -> None:
        assert queued_bytes(self.budget) == len(b"data") * sum(map(len, self.waiting))


TestAnyOrder = AnyOrder.TestCase


# ---- threads ------------------------------------------------------------------------------------------------


def fill(stream: StreamQueue, queue: PartitionQueue, partition: int, count: int) -> Callable[[], int]:
    """Return a function that puts chunks while there is room, as a fetcher does.

    It returns the largest number of chunks in the stream.
    """
    room = threading.Event()
    queue.on_room = lambda _: room.set()

    def run() -> int:
        largest = 0
        for offset in range(count):
            while not queue.has_room:
                assert room.wait(10)
                room.clear()
            queue.put(chunk(offset, partition))
            largest = max(largest, len(stream))
        return largest

    return run


def test_many_fetchers_keep_order_and_bounds(
    stream: StreamQueue,
) -> None:
    count, partitions, capacity = 2000, 4, 2
    fetchers = [in_thread(fill(stream, PartitionQueue(stream, capacity), p, count)) for p in range(partitions)]
    seen: dict[int, list[int]] = {p: [] for p in range(partitions)}
    for _ in range(count * partitions):
        found = taken(stream, 10)
        seen[found.partition.partition].append(found.fetch_offset)

    assert seen == {p: list(range(count)) for p in range(partitions)}
    assert max(fetcher.result() for fetcher in fetchers) <= partitions * capacity
    assert stream.take(0) is None


def test_concurrent_close_delivers_nothing_more(stream: StreamQueue) -> None:
    for _ in range(50):
        queue = PartitionQueue(stream, 1_000_000)
        stop = threading.Event()

        def put(queue: PartitionQueue = queue, stop: threading.Event = stop) -> None:
            offset = 0
            while not stop.is_set():
                queue.put(chunk(offset))
                offset += 1

        putting = in_thread(put)
        wait_for(lambda: len(stream))
        queue.close()
        after_close = stream.take(0)
        stop.set()
        putting.result()

        assert after_close is None
        assert stream.take(0) is None


# ---- shared bytes ---------------------------------------------------------------------------------------


def test_queues_share_bytes_of_their_streams() -> None:
    budget = ByteBudget(100)
    stream, other = StreamQueue(budget), StreamQueue(budget)
    first, second, third = PartitionQueue(stream, 10), PartitionQueue(stream, 10), PartitionQueue(other, 10)
    queues = (first, second, third)
    first.put(Chunk(P0, 0, 1, bytes(60)))
    assert [queue.has_room for queue in queues] == [True, True, True]
    first.put(Chunk(P0, 1, 2, bytes(60)))
    assert [queue.has_room for queue in queues] == [False, False, True], "the other stream has nothing to read"
    third.put(Chunk(P1, 0, 1, bytes(1)))
    assert [queue.has_room for queue in queues] == [False, False, False]
    stream.take(0)
    assert [queue.has_room for queue in queues] == [True, True, True]
    first.close()
    stream.close()
    other.close()
    assert budget.reserve(1000, 1) == 100


def test_changed_positions_use_no_room() -> None:
    stream = StreamQueue(budget := ByteBudget(1))
    full, announced = PartitionQueue(stream, 1), PartitionQueue(stream, 1)
    announced.put(PositionChanged(P0, 5))
    assert announced.has_room
    full.put(Chunk(P1, 0, 1, b"x"))
    assert budget.is_spent
    assert not announced.has_room
    stream.take(0)
    stream.take(0)
    assert announced.has_room


def test_watcher_is_woken_once_when_bytes_are_free() -> None:
    budget, wake_up = ByteBudget(10), WakeUp()
    budget.add(15)
    budget.watch(wake_up)
    budget.add(-5)
    assert not wake_up.wait(0), "still spent"
    budget.add(-1)
    assert wake_up.wait(0)
    budget.add(6)
    budget.add(-6)
    assert not wake_up.wait(0)


def test_responses_in_flight_reserve_bytes() -> None:
    budget = ByteBudget(100)
    assert (budget.reserve(70, 10), budget.reserve(70, 10), budget.reserve(70, 10)) == (70, 30, 10)
    assert not budget.is_spent  # nothing is queued
    budget.release(70)
    assert budget.reserve(70, 10) == 60
