"""Tests of the pool of reusable buffers."""

from __future__ import annotations

import gc
import random
import threading
from collections.abc import Iterator
from functools import partial

import pyarrow as pa
import pytest
from helpers.threads import in_thread

from zkconsumer.broker.buffers import BufferPool

MIB = 1 << 20


@pytest.fixture
def pool() -> Iterator[BufferPool]:
    pool = BufferPool()
    yield pool
    gc.collect()
    assert not pool._in_use


def free_bytes(pool: BufferPool) -> int:
    return sum(map(len, pool._free))


@pytest.mark.parametrize("size", [0, 1, (1 << 16) - 1, 1 << 16, MIB - 1, MIB, 3 * MIB + 5])
def test_buffer_has_requested_size_and_is_writable(size: int, pool: BufferPool) -> None:
    buffer = pool.allocate(size)

    assert (buffer.size, buffer.is_mutable) == (size, True)
    view = memoryview(buffer).cast("B")
    view[:] = b"x" * size
    assert bytes(view) == b"x" * size


def test_unreferenced_buffer_is_reused(pool: BufferPool) -> None:
    buffer = pool.allocate(MIB)
    address = buffer.address
    column = pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(b"\0\0\0\0\5\0\0\0"), buffer]).slice(0, 1)
    memoryview(buffer).cast("B")[:5] = b"hello"
    del buffer

    other = pool.allocate(MIB)
    assert other.address != address, "an array still uses the buffer"
    assert column.to_pylist() == [b"hello"]
    del column, other
    both = [pool.allocate(MIB), pool.allocate(MIB)]
    assert address in [buffer.address for buffer in both]


def test_buffer_of_different_size_is_not_reused(pool: BufferPool) -> None:
    address = pool.allocate(4 * MIB).address

    assert pool.allocate(7 * MIB // 2).address == address
    assert pool.allocate(3 * MIB).address != address
    assert pool.allocate(5 * MIB).address != address


@pytest.mark.parametrize("size", [(1 << 16) + 1, 149_520, MIB, MIB + 1])
def test_buffer_of_same_size_is_reused(size: int, pool: BufferPool) -> None:
    first = pool.allocate(size).address
    second = pool.allocate(size).address

    assert second == first


def test_kept_buffers_are_limited(pool: BufferPool) -> None:
    many = [pool.allocate(MIB) for _ in range(40)]
    assert len(pool._in_use) == 40
    many.clear()

    assert free_bytes(pool) == 16 * MIB


def test_buffer_above_limit_is_not_kept(pool: BufferPool) -> None:
    pool.allocate(17 * MIB)

    assert free_bytes(pool) == 0


def test_threads_get_different_buffers(pool: BufferPool) -> None:
    stop = threading.Event()

    def use(number: int) -> None:
        rng, mine = random.Random(number), bytes([number])
        held: list[tuple[pa.Buffer, int]] = []
        while not stop.is_set():
            size = rng.choice([1, 2, 3]) << 16
            held.append((pool.allocate(size), size))
            view = memoryview(held[-1][0]).cast("B")
            view[0:1], view[-1:] = mine, mine
            if len(held) > 5:
                buffer, size = held.pop(rng.randrange(5))
                view = memoryview(buffer).cast("B")
                assert (bytes(view[0:1]), bytes(view[-1:])) == (mine, mine)
                view.release()

    threads = [in_thread(partial(use, number)) for number in range(6)]
    stop.wait(1.0)
    stop.set()
    for thread in threads:
        thread.result()


def test_concurrent_return_and_request_are_safe(pool: BufferPool) -> None:
    class Cycle:
        """Garbage that is freed by the cyclic collector, which may run during an allocation."""

        def __init__(self, buffer: pa.Buffer) -> None:
            self.me, self.buffer = self, buffer

    gc.set_threshold(1)
    try:
        for _ in range(200):
            Cycle(pool.allocate(MIB))
            pool.allocate(MIB)
    finally:
        gc.set_threshold(700, 10, 10)
    gc.collect()

    assert free_bytes(pool) <= 16 * MIB
