"""Tests of ``stop()``, and of signals that arrive while a consumer joins, waits, processes a message or shuts down."""

from __future__ import annotations

import inspect
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.aliases import Consumers, Topics
from helpers.interrupts import interrupt_at
from helpers.processes import kill
from helpers.producing import numbers, produce
from helpers.reading import Reader, take
from helpers.teardown import started
from helpers.threads import in_thread
from helpers.waiting import wait_for, wait_until_equal
from helpers.znodes import members, owners, stored
from kazoo.client import KazooClient

from zkconsumer import ConsumerConfig, Whitelist, threads
from zkconsumer.consumer import connector, runtime
from zkconsumer.errors import ClosedError

pytestmark = pytest.mark.timeout(120)

# ---- stop() ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arrow", [False, True], ids=["messages", "batches"])
def test_stop_ends_iteration_and_commits_current_item(
    arrow: bool, admin: Any, topic: Topics, group: str, consumer: Consumers, zk: KazooClient
) -> None:
    name = topic()
    for first in range(0, 10, 2):
        produce(admin, name, 0, numbers(first, first + 2))
    offsets: list[int] = []

    with consumer() as connector:
        [stream] = connector.create_message_streams({name: 1})[name]
        items: Iterator[Any] = stream.batches(max_rows=2) if arrow else stream
        for item in items:
            offsets += item.column("offset").to_pylist() if arrow else [item.offset]
            connector.stop()
        assert len(members(zk, group)) == 1, "the consumer is still in the group"

    assert offsets == list(range(len(offsets)))
    assert 1 <= len(offsets) < 10
    assert stored(zk, group, name) == {0: str(len(offsets))}
    assert (members(zk, group), owners(zk, group, name)) == ([], {})


def test_stop_ends_all_streams_of_several_threads(topic: Topics, consumer: Consumers) -> None:
    name = topic(2)
    connector = consumer(consumer_timeout_ms=-1)
    streams = connector.create_message_streams_by_filter(Whitelist(name), 3)
    readers = [Reader(streams[0]), Reader(streams[1].batches()), Reader(streams[2])]
    started = time.monotonic()

    connector.stop()

    for reader in readers:
        reader.finish()
    assert time.monotonic() - started < 1


def test_manual_commit_after_stop_commits_delivered_messages(
    admin: Any, topic: Topics, group: str, consumer: Consumers, zk: KazooClient
) -> None:
    name = topic()
    produce(admin, name, 0, numbers(0, 10))
    with consumer(auto_commit_enable=False) as connector:
        [stream] = connector.create_message_streams({name: 1})[name]
        take(stream, 3)
        connector.stop()
        connector.stop()
        assert list(stream) == []
        connector.commit_offsets()

    assert stored(zk, group, name) == {0: "3"}


def test_consumer_stopped_before_creation_of_streams_does_not_join(
    topic: Topics, group: str, consumer: Consumers, zk: KazooClient
) -> None:
    name = topic()
    with consumer() as connector:
        connector.stop()
        [stream] = connector.create_message_streams({name: 1})[name]
        [matching] = consumer_streams_by_filter(consumer, name)
        assert (list(stream), list(stream.batches()), list(matching)) == ([], [], [])
        assert connector.commit_offsets() == {}
        assert connector.assignment == {}

    assert members(zk, group) == []


def consumer_streams_by_filter(consumer: Consumers, name: str) -> list[Any]:
    """Return the streams of another consumer that was stopped before they were created."""
    connector = consumer()
    connector.stop()
    return connector.create_message_streams_by_filter(Whitelist(name))


def test_stop_ends_waiting_for_first_rebalance(topic: Topics, group: str, consumer: Consumers, zk: KazooClient) -> None:
    name = topic()
    zk.create(f"/consumers/{group}/owners/{name}/0", b"other_member-0", makepath=True)
    connector = consumer(consumer_id="c", zookeeper_session_timeout_ms=60_000)
    joining = in_thread(lambda: connector.create_message_streams({name: 1}))
    wait_until_equal(lambda: members(zk, group), [f"{group}_c"])

    connector.stop()

    try:
        [stream] = joining.result(5)[name]
        assert list(stream) == []
        assert members(zk, group) == []
        assert connector.commit_offsets() == {}
    finally:
        zk.delete(f"/consumers/{group}/owners/{name}/0")


def test_stop_ends_waiting_for_zookeeper(consumer: Consumers) -> None:
    connector = consumer(zookeeper_connect="127.0.0.1:1", zookeeper_connection_timeout_ms=60_000)
    joining = in_thread(lambda: connector.create_message_streams({"t": 1}))
    wait_for(lambda: any("-join-" in thread.name for thread in threading.enumerate()), what="the consumer joins")

    connector.stop()

    [stream] = joining.result(10)["t"]
    assert list(stream) == []
    connector.shutdown()
    with pytest.raises(ClosedError):
        connector.commit_offsets()


# ---- shutdown at any instruction ---------------------------------------------------------------------------

FILES = [inspect.getfile(module) for module in (connector, runtime, threads)]


@pytest.mark.parametrize(
    ("first", "step"), [(50, 40), pytest.param(1, 1, marks=[pytest.mark.slow, pytest.mark.timeout(600)])]
)
def test_shutdown_ends_after_interrupt_at_any_instruction(
    first: int, step: int, admin: Any, topic: Topics, consumer: Consumers, group: str, zk: KazooClient
) -> None:
    """Offsets are committed and znodes deleted. An interrupt at the first instructions prevents the shutdown."""
    name = topic()
    produce(admin, name, 0, numbers(0, 10_000))
    number, is_interrupted, expected = first, True, 0
    while is_interrupted:
        connected = consumer(consumer_id=f"c{number}")
        with connected:
            [stream] = connected.create_message_streams({name: 1})[name]
            assert [message.offset for message in take(stream, 2)] == [expected, expected + 1]

            def leave(connected: Any = connected) -> None:
                connected.__exit__(None, None, None)

            is_interrupted = interrupt_at(number, leave, FILES, event="opcode")
            has_begun = bool(connected._is_closed)
        if has_begun:
            assert (members(zk, group), owners(zk, group, name)) == ([], {}), number
        assert has_begun or number < 45, number
        expected += 2
        assert stored(zk, group, name) == {0: str(expected)}, f"after an interrupt at instruction {number}"
        number += step
    assert number > 100


# ---- signals -----------------------------------------------------------------------------------------------

#: Programs whose signal handlers stop the consumer, or raise an exception.
HANDLERS = {
    "stop": "consumer.stop()",
    "exit": "sys.exit()",
    "interrupt": "signal.default_int_handler(number, frame)",
}

CHILD = """
    import atexit, os, signal, sys, threading, time

    def set_handlers(handler):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, handler)

    # The last exit function: the interpreter then removes the handlers, and a late signal would terminate the process.
    atexit.register(set_handlers, signal.SIG_IGN)

    from zkconsumer import ConsumerConfig, create_consumer

    def handle(number, frame):
        {handler}

    moment = sys.argv[3]
    consumer = create_consumer(ConsumerConfig.from_properties(sys.argv[1]))
    set_handlers(handle)
    if moment == "thread":
        blocked = {{signal.SIGINT, signal.SIGTERM, signal.SIGHUP}}
        busy = threading.Thread(target=time.sleep, args=(1000,), daemon=True)
        busy.start()
        signal.pthread_sigmask(signal.SIG_BLOCK, blocked)  # the kernel delivers the signals to other threads
    print("ready", flush=True)
    count = 0
    with consumer:
        [stream] = consumer.create_message_streams({{sys.argv[2]: 1}})[sys.argv[2]]
        for message in stream:
            count += 1
            if message.offset % 100 == 99:
                print(message.offset, flush=True)
    print("end", count, flush=True)
"""

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def child(config: Callable[..., ConsumerConfig], tmp_path: Path) -> Iterator[Start]:
    """Start a program that reads a topic."""

    def make(topic: str, handler: str, moment: str = "") -> subprocess.Popen[str]:
        built = config()
        path = tmp_path / "consumer.properties"
        path.write_text(
            f"group.id={built.group_id}\nzookeeper.connect={built.zookeeper_connect}\n"
            f"bootstrap.servers={built.bootstrap_servers}\nauto.offset.reset=smallest\n"
            "zookeeper.session.timeout.ms=30000\nauto.commit.interval.ms=600000\n"
        )
        code = textwrap.dedent(CHILD).format(handler=HANDLERS[handler])
        return subprocess.Popen(
            [sys.executable, "-X", "faulthandler", "-c", code, str(path), topic, moment],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=tmp_path,
            text=True,
            start_new_session=True,
        )

    with started(make, kill) as start:
        yield start


def wait_for_line(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdout is not None
    for found in process.stdout:
        if found == f"{line}\n":
            return
    raise AssertionError(process.communicate()[1])


def send_twice(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGTERM)


def send_two_different(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGTERM)


def send_like_timeout(process: subprocess.Popen[str]) -> None:
    """Signal the process, then its group, as ``timeout`` of coreutils does."""
    process.send_signal(signal.SIGTERM)
    os.killpg(process.pid, signal.SIGTERM)


def press_ctrl_c_repeatedly(process: subprocess.Popen[str]) -> None:
    """Send SIGINT five times. The last ones may arrive when the interpreter has already removed the handlers."""
    for delay_s in (0.0, 0.002, 0.02, 0.1, 0.3):
        time.sleep(delay_s)
        process.send_signal(signal.SIGINT)


def assert_exit_code(process: subprocess.Popen[str], expected: int, errors: str) -> None:
    """Check the exit code, or that a late SIGINT terminated the interpreter."""
    assert process.returncode in (expected, -signal.SIGINT), errors


SENDS = [send_twice, send_two_different, send_like_timeout, press_ctrl_c_repeatedly]


@pytest.mark.parametrize(
    ("send", "handler"),
    [
        pytest.param(send, handler, marks=[] if handler == "stop" else pytest.mark.slow)
        for send in SENDS
        for handler in HANDLERS
    ],
)
def test_second_signal_does_not_interrupt_shutdown(
    handler: str,
    send: Callable[[subprocess.Popen[str]], None],
    admin: Any,
    topic: Topics,
    group: str,
    child: Start,
    zk: KazooClient,
) -> None:
    name = topic()
    produce(admin, name, 0, numbers(0, 1000))
    process = child(name, handler)
    wait_for_line(process, "999")

    send(process)
    output, errors = process.communicate(timeout=30)

    committed = int(stored(zk, group, name)[0])
    assert "unlocked" not in errors
    assert (members(zk, group), owners(zk, group, name)) == ([], {}), errors
    if handler == "stop":
        assert (output, errors) == ("end 1000\n", "")
        assert committed == 1000
    else:
        assert committed in (999, 1000), "the last message may be in progress"
    assert_exit_code(process, 0 if handler in ("stop", "exit") else -signal.SIGINT, errors)


@pytest.mark.parametrize("handler", HANDLERS)
@pytest.mark.parametrize("moment", ["join", "thread"])
def test_signals_end_program_at_any_moment(
    moment: str, handler: str, topic: Topics, group: str, child: Start, zk: KazooClient
) -> None:
    """The signals arrive while the consumer joins, or in another thread while the main thread waits."""
    process = child(topic(), handler, moment)
    wait_for_line(process, "ready")
    if moment == "thread":
        wait_for(lambda: members(zk, group), what="the member is registered")
        time.sleep(0.5)  # the main thread waits

    press_ctrl_c_repeatedly(process)
    output, errors = process.communicate(timeout=30)

    assert members(zk, group) == []
    assert "unlocked" not in errors
    if handler == "stop":
        assert (output, errors) == ("end 0\n", "")
    assert_exit_code(process, 0 if handler in ("stop", "exit") else -signal.SIGINT, errors)
