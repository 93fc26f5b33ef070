"""Tests of has_next, peek and clear of the iterator, and of a consumer after a fork."""

from __future__ import annotations

import os
from typing import Any

import pytest
from helpers.aliases import Consumers, Topics
from helpers.producing import numbers, produce
from helpers.reading import take, values

from zkconsumer import TopicPartition
from zkconsumer.errors import ClosedError, ConsumerTimeoutError


def test_has_next_loop_of_original_works(admin: Any, topic: Topics, consumer: Consumers) -> None:
    name = topic()
    produce(admin, name, 0, numbers(0, 5000))
    connector = consumer(consumer_timeout_ms=500)
    [stream] = connector.create_message_streams({name: 1})[name]
    iterator = iter(stream)
    seen: list[bytes | None] = []
    assert iter(stream) is iterator  # a stream has one iterator

    while len(seen) < 5000 and iterator.has_next():
        seen.append(next(iterator).value)
    for _ in range(2):
        with pytest.raises(ConsumerTimeoutError):
            iterator.has_next()

    assert seen == numbers(0, 5000)
    produce(admin, name, 0, [b"more"])
    assert iterator.has_next()
    assert next(iterator).value == b"more"
    connector.shutdown()
    assert not iterator.has_next()


def test_peek_does_not_consume(admin: Any, topic: Topics, consumer: Consumers) -> None:
    name = topic()
    produce(admin, name, 0, numbers(0, 3))
    connector = consumer()
    [stream] = connector.create_message_streams({name: 1})[name]

    assert [stream.peek().value, stream.peek().value, next(stream).value] == [b"0", b"0", b"0"]
    assert stream.has_next()
    assert connector.commit_offsets() == {TopicPartition(name, 0): 1}
    assert values(take(stream, 2)) == [b"1", b"2"]
    connector.shutdown()
    with pytest.raises(StopIteration):
        stream.peek()


def test_cleared_messages_are_fetched_again(admin: Any, topic: Topics, consumer: Consumers) -> None:
    name = topic()
    produce(admin, name, 0, numbers(0, 10))
    connector = consumer()
    [stream] = connector.create_message_streams({name: 1})[name]
    take(stream, 4)

    stream.clear()

    assert values(take(stream, 6)) == numbers(4, 10)


def test_fork_cannot_use_parents_consumer(admin: Any, topic: Topics, consumer: Consumers) -> None:
    name = topic()
    produce(admin, name, 0, numbers(0, 5000))
    connector = consumer()
    [stream] = connector.create_message_streams({name: 1})[name]
    take(stream, 1)

    child = os.fork()
    if not child:  # no assertions here: if one failed, pytest would continue in the child process
        refused = 0
        for call in (connector.commit_offsets, lambda: next(stream)):
            try:
                call()
            except ClosedError as error:
                refused += "process" in str(error)
        connector.shutdown()
        os._exit(refused)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
    assert values(take(stream, 4999)) == numbers(1, 5000)
    assert connector.commit_offsets() == {TopicPartition(name, 0): 5000}


def test_two_consumers_in_one_process_share_topic(admin: Any, topic: Topics, consumer: Consumers) -> None:
    name = topic(2)
    one, two = consumer(consumer_id="one"), consumer(consumer_id="two")
    [first] = one.create_message_streams({name: 1})[name]
    [second] = two.create_message_streams({name: 1})[name]
    for partition in range(2):
        produce(admin, name, partition, numbers(partition * 10, partition * 10 + 5))

    assert values(take(first, 5)) == numbers(0, 5)
    assert values(take(second, 5)) == numbers(10, 15)
