"""Tests of MessagePrinter and ``console-consumer``: which messages are counted and committed after an interrupt."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO

import pytest
from helpers.interrupts import interrupt_at
from unit.test_stream import P0, Fed, entry

from zkconsumer import MessageAndMetadata
from zkconsumer.tools import console_consumer, printer
from zkconsumer.tools.printer import MessagePrinter

#: Files whose functions the tests interrupt.
INTERRUPTED = {printer.__file__, console_consumer.__file__}


@pytest.fixture(autouse=True)
def default_sigint_handler() -> Iterator[None]:
    """Let a SIGINT raise KeyboardInterrupt; test processes of pytest-xdist ignore the signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def create(monkeypatch: pytest.MonkeyPatch) -> Callable[..., MessagePrinter]:
    """Create a printer that writes to a file instead of standard output."""

    def make(file: BinaryIO, format_message: Callable[[MessageAndMetadata], bytes]) -> MessagePrinter:
        options = argparse.Namespace(max_messages=None, skip_message_on_error=False)
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", file)
            return MessagePrinter(options, format_message)

    return make


def message(offset: int) -> MessageAndMetadata:
    return MessageAndMetadata("t", 0, offset, None, b"%d" % offset, 0, 0, ())


def test_count_is_exact_after_interrupt_anywhere(tmp_path: Path, create: Callable[..., MessagePrinter]) -> None:
    """A signal handler can run between two instructions, for example when a message was written."""

    def print_all(tool: MessagePrinter) -> None:
        for offset in range(3):
            tool.print(message(offset))

    number, is_interrupted = 0, True
    while is_interrupted:
        number += 1
        path = tmp_path / str(number)
        with path.open("wb") as file:
            tool = create(file, lambda message: b"%d\n" % message.offset)
            is_interrupted = interrupt_at(number, partial(print_all, tool), INTERRUPTED, event="opcode")
            assert tool.count == len(path.read_bytes().splitlines()), f"after an interrupt at instruction {number}"
    assert tool.count == 3
    assert number > 100


def test_printed_messages_are_consumed_after_interrupt(tmp_path: Path, create: Callable[..., MessagePrinter]) -> None:
    """The released offset, which is committed, is the offset after the last message that was written."""
    number, is_interrupted = 0, True
    while is_interrupted:
        number += 1
        path = tmp_path / str(number)
        fed = Fed().acquire().put(entry([0, 1]), 2).put(entry([2]), 3, fetch_offset=2)
        with path.open("wb") as file:
            tool = create(file, lambda message: message.value + b"\n")
            printing = partial(console_consumer._print_all, fed.stream, tool)
            is_interrupted = interrupt_at(number, printing, INTERRUPTED, event="opcode")
        printed = len(path.read_bytes().splitlines())
        assert fed.release(P0) == {P0: printed}, f"after an interrupt at instruction {number}"
    assert printed == 3
    assert number > 100


def test_interrupted_write_is_not_counted(create: Callable[..., MessagePrinter]) -> None:
    """The pipe is full before the end of the second message, so the printer waits."""
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb"), os.fdopen(writer, "wb") as file:
        tool = create(file, lambda message: b"x" * 1000 ** (message.offset + 1))
        tool.print(message(0))
        timer = threading.Timer(0.2, signal.pthread_kill, [threading.get_ident(), signal.SIGINT])
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            tool.print(message(1))
        timer.join()

    assert tool.count == 1
