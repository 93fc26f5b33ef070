"""Tests of the end of an iteration after ``stop``, which a signal handler may call between any two instructions."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from helpers.interrupts import interrupt_at
from helpers.reading import Reader
from unit.test_stream import P0, P1, Fed, entry

from zkconsumer import KafkaStream, threads
from zkconsumer.consumer import positions, reader_guard
from zkconsumer.consumer import stream as stream_module
from zkconsumer.errors import ConsumerTimeoutError
from zkconsumer.fetcher import queues

FILES = [inspect.getfile(module) for module in (stream_module, positions, reader_guard, queues, threads)]


def read_messages(stream: KafkaStream) -> Iterator[int]:
    for message in stream:
        yield message.offset


def read_batches(stream: KafkaStream) -> Iterator[int]:
    for batch in stream.batches():
        yield from batch.column("offset").to_pylist()


def read_with_has_next(stream: KafkaStream) -> Iterator[int]:
    while stream.has_next():
        yield next(stream).offset


def read_with_peek(stream: KafkaStream) -> Iterator[int]:
    while stream.has_next():
        peeked = stream.peek()
        assert next(stream) is peeked
        yield peeked.offset


READS = [read_messages, read_batches, read_with_has_next, read_with_peek]
Read = Callable[[KafkaStream], Iterator[int]]


def feed(timeout: float | None = None) -> Fed:
    fed = Fed(timeout).acquire()
    return fed.put(entry([0, 1]), 2).put(entry([2]), 3, fetch_offset=2)


@pytest.mark.parametrize("read", READS)
def test_iteration_ends_after_current_item(read: Read) -> None:
    fed = feed()
    seen = []
    for offset in read(fed.stream):
        seen.append(offset)
        fed.stream.stop()
        assert fed.consumed[0] == 0, "the item is being processed"

    assert seen == [0, 1] if read is read_batches else [0]
    assert fed.consumed == fed.delivered == {0: len(seen)}
    assert list(read(fed.stream)) == [], "the iteration does not begin again"


@pytest.mark.parametrize("read", READS)
def test_stopped_stream_delivers_nothing(read: Read) -> None:
    fed = feed()
    fed.stream.stop()

    assert list(read(fed.stream)) == []
    assert fed.delivered == {0: 0}


@pytest.mark.parametrize("read", READS)
def test_stop_ends_waiting_iteration_at_once(read: Read) -> None:
    fed = Fed(timeout=None).acquire()
    reader = Reader(read(fed.stream))
    started = time.monotonic()

    fed.stream.stop()
    reader.finish()

    assert time.monotonic() - started < 0.4, "stop() wakes up the reader"
    assert reader.seen == []


def test_peeked_message_is_delivered_after_stop() -> None:
    """A program that has called ``has_next`` calls ``next`` without expecting StopIteration."""
    fed = feed()
    assert fed.stream.has_next()

    fed.stream.stop()

    assert fed.stream.has_next()
    assert next(fed.stream).offset == 0
    assert not fed.stream.has_next()
    assert fed.consumed == {0: 1}


def test_peeked_message_is_delivered_once_before_stop() -> None:
    fed = feed()
    fed.stream.peek()
    next(fed.stream)

    fed.stream.stop()

    assert not fed.stream.has_next()
    assert fed.consumed == {0: 1}


def test_peeked_message_of_released_partition_is_not_delivered_after_stop() -> None:
    fed = feed().acquire(P1)
    fed.stream.peek()
    fed.release(P0)

    fed.stream.stop()

    assert not fed.stream.has_next()


def test_partition_released_after_stop_continues_after_last_message() -> None:
    fed = feed()
    next(fed.stream)
    fed.stream.stop()

    assert list(fed.stream) == []
    assert fed.release(P0) == {P0: 1}


@pytest.mark.parametrize("read", READS)
def test_stop_at_any_instruction_loses_and_repeats_nothing(read: Read) -> None:
    """The handler runs in the thread that reads the stream, which may hold a lock."""
    number, is_interrupted, counts = 0, True, set()
    while is_interrupted:
        number += 1
        fed = feed(timeout=0.0)
        seen: list[int] = []

        def read_all(fed: Fed = fed, seen: list[int] = seen) -> None:
            with suppress(ConsumerTimeoutError):
                seen.extend(read(fed.stream))  # keeps the items before an exception

        is_interrupted = interrupt_at(number, read_all, FILES, event="opcode", handle=fed.stream.stop)
        assert seen == list(range(len(seen)))
        assert fed.consumed == fed.delivered == {0: len(seen)}, f"after an interrupt at instruction {number}"
        counts.add(len(seen))
    assert counts >= {0, 2, 3}
    assert number > 100
