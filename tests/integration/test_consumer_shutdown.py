"""Tests of the shutdown of a member: by the application, from another thread, by Ctrl-C, and after a failed start."""

from __future__ import annotations

import inspect
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from typing import Any

import kazoo.client
import kazoo.handlers.threading
import kazoo.protocol.connection
import pytest
from helpers.aliases import Consumers, Topics
from helpers.interrupts import interrupt_at
from helpers.processes import kill
from helpers.producing import numbers, produce
from helpers.reading import Reader, take
from helpers.teardown import started
from helpers.threads import in_thread
from helpers.waiting import wait_until_equal
from helpers.znodes import members, owners, stored
from kazoo.client import KazooClient

from zkconsumer import ConsumerConfig, KafkaStream
from zkconsumer.errors import ClosedError, ConfigurationError, MessageStreamsExistError, ZooKeeperUnavailableError
from zkconsumer.zookeeper import session


def test_shutdown_is_idempotent(topic: Topics, consumer: Consumers) -> None:
    unused, used = consumer(), consumer()
    used.create_message_streams({topic(): 1})

    for connector in (unused, used):
        for _ in range(3):
            connector.shutdown()


def test_shutdown_is_quick(admin: Any, topic: Topics, consumer: Consumers) -> None:
    """The shutdown waits neither for the response to a fetch request nor for the end of a session."""
    name = topic(4)
    connector = consumer(fetch_wait_max_ms=20_000, socket_timeout_ms=30_000, num_consumer_fetchers=2)
    streams = connector.create_message_streams({name: 2})[name]
    produce(admin, name, 0, numbers(0, 3))
    take(streams[0], 3)

    started = time.monotonic()
    connector.shutdown()

    assert time.monotonic() - started < 3


def test_shutdown_ends_waiting_stream(topic: Topics, consumer: Consumers) -> None:
    name = topic(2)
    connector = consumer(consumer_timeout_ms=-1)
    streams = connector.create_message_streams({name: 2})[name]
    readers = [Reader(streams[0]), Reader(streams[1].batches())]

    in_thread(connector.shutdown).result()

    for reader in readers:
        reader.finish()
        assert reader.seen == []


def test_concurrent_shutdowns_succeed(topic: Topics, consumer: Consumers) -> None:
    connector = consumer()
    connector.create_message_streams({topic(): 1})

    for call in [in_thread(connector.shutdown) for _ in range(4)]:
        call.result()


def test_reentrant_shutdown_does_not_deadlock(
    topic: Topics, consumer: Consumers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal handler may shut down a consumer while the end of a ``with`` block does the same."""
    connector = consumer()
    connector.create_message_streams({topic(): 1})
    close = KafkaStream.close

    def interrupted(stream: KafkaStream) -> None:
        connector.shutdown()
        close(stream)

    monkeypatch.setattr(KafkaStream, "close", interrupted)

    in_thread(connector.shutdown).result(10)


def test_shutdown_in_reading_thread_ends_loop(admin: Any, topic: Topics, consumer: Consumers) -> None:
    name = topic()
    produce(admin, name, 0, numbers(0, 100))
    connector = consumer()
    seen = []

    for message in connector.create_message_streams({name: 1})[name][0]:
        seen.append(message.offset)
        if len(seen) == 10:
            connector.shutdown()

    assert seen == list(range(10))


def test_closed_consumer_rejects_new_streams(topic: Topics, consumer: Consumers) -> None:
    connector = consumer()
    connector.shutdown()

    with pytest.raises(ClosedError):
        connector.create_message_streams({topic(): 1})


def test_streams_are_created_once(topic: Topics, consumer: Consumers) -> None:
    name = topic()
    connector = consumer()
    connector.create_message_streams({name: 1})

    with pytest.raises(MessageStreamsExistError):
        connector.create_message_streams({name: 1})


def test_shutdown_ends_creation_of_streams(topic: Topics, group: str, consumer: Consumers, zk: KazooClient) -> None:
    name = topic()
    zk.create(f"/consumers/{group}/owners/{name}/0", b"other_member-0", makepath=True)
    connector = consumer(consumer_id="c", zookeeper_session_timeout_ms=60_000)
    joining = in_thread(lambda: connector.create_message_streams({name: 1}))
    wait_until_equal(lambda: members(zk, group), [f"{group}_c"])

    connector.shutdown()

    try:
        with pytest.raises(ClosedError):
            joining.result(5)
        assert members(zk, group) == []
    finally:
        zk.delete(f"/consumers/{group}/owners/{name}/0")
        joining.join(20)


def test_missing_zookeeper_is_reported_in_time(consumer: Consumers) -> None:
    connector = consumer(zookeeper_connect="127.0.0.1:1", zookeeper_connection_timeout_ms=300)
    started = time.monotonic()

    with pytest.raises(ZooKeeperUnavailableError, match=r"127\.0\.0\.1:1"):
        connector.create_message_streams({"t": 1})

    assert time.monotonic() - started < 5


@pytest.mark.parametrize("count", [0, -1, 1.5, "1", None])
def test_invalid_stream_count_is_rejected(count: object, consumer: Consumers) -> None:
    with pytest.raises(ConfigurationError, match="must be an integer between 1 and 1000, got"):
        consumer().create_message_streams({"t": count})  # type: ignore[dict-item]


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "é", "x" * 250])
def test_invalid_topic_name_is_rejected(name: str, consumer: Consumers) -> None:
    connector = consumer(rebalance_max_retries=1, zookeeper_session_timeout_ms=1000)

    with pytest.raises(ConfigurationError, match="topic"):
        connector.create_message_streams({name: 1})


# ---- Ctrl-C ------------------------------------------------------------------------------------------------

CHILD = """
    import sys
    from zkconsumer import ConsumerConfig, create_consumer

    properties, topic, stop_at, arrow = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4] == "arrow"
    with create_consumer(ConsumerConfig.from_properties(properties)) as consumer:
        [stream] = consumer.create_message_streams({topic: 1})[topic]
        print("joined", flush=True)
        for item in stream.batches() if arrow else stream:
            last = item.column("offset")[-1].as_py() if arrow else item.offset
            print(last, flush=True)
            if last == stop_at:
                sys.stdin.read()  # simulates processing
"""

CHILD_WITH_DESTRUCTOR = """
    import sys
    from zkconsumer import ConsumerConfig, create_consumer

    class Application:
        def __init__(self):
            self.consumer = create_consumer(ConsumerConfig.from_properties(sys.argv[1]))
            self.consumer.create_message_streams({sys.argv[2]: 1})
            print("joined", flush=True)

        def __del__(self):
            self.consumer.shutdown()

    application = Application()
"""


@pytest.fixture
def child(config: Callable[..., ConsumerConfig], tmp_path: Any) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a process that reads a topic and prints offsets."""

    def make(
        topic: str, *, stop_at: int = -1, arrow: bool = False, commit_ms: int = 60_000, code: str = CHILD
    ) -> subprocess.Popen[str]:
        built = config()
        path = tmp_path / "consumer.properties"
        path.write_text(
            f"group.id={built.group_id}\nconsumer.id=child\nzookeeper.connect={built.zookeeper_connect}\n"
            f"bootstrap.servers={built.bootstrap_servers}\nauto.offset.reset=smallest\n"
            f"zookeeper.session.timeout.ms=2000\nauto.commit.interval.ms={commit_ms}\n"
        )
        return subprocess.Popen(
            [
                *(sys.executable, "-c", textwrap.dedent(code), str(path), topic, str(stop_at)),
                "arrow" if arrow else "messages",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=tmp_path,
            text=True,
        )

    with started(make, kill) as start:
        yield start


def lines(process: subprocess.Popen[str], count: int) -> list[str]:
    assert process.stdout is not None
    return [process.stdout.readline().strip() for _ in range(count)]


def interrupted(process: subprocess.Popen[str]) -> tuple[int, str, float]:
    """Send SIGINT; return the exit code, the content of standard error, and the seconds until the process ended."""
    started = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    return process.returncode, errors, time.monotonic() - started


@pytest.mark.parametrize("arrow", [False, True], ids=["messages", "batches"])
def test_ctrl_c_ends_waiting_member(
    arrow: bool,
    admin: Any,
    topic: Topics,
    group: str,
    child: Callable[..., subprocess.Popen[str]],
    zk: KazooClient,
) -> None:
    name = topic()
    produce(admin, name, 0, numbers(0, 5))
    process = child(name, arrow=arrow, commit_ms=20)
    assert lines(process, 2 if arrow else 6) == (["joined", "4"] if arrow else ["joined", *map(str, range(5))])
    wait_until_equal(lambda: stored(zk, group, name), {0: "5"})  # the process waits for the next message

    code, errors, took = interrupted(process)

    assert took < 5
    assert errors.rstrip().endswith("KeyboardInterrupt"), errors
    assert errors.count("Traceback") == 1, errors
    assert code in (1, -signal.SIGINT, 130)
    assert members(zk, group) == []
    assert owners(zk, group, name) == {}
    assert stored(zk, group, name) == {0: "5"}


def test_ctrl_c_commits_only_consumed_messages(
    admin: Any, topic: Topics, group: str, child: Callable[..., subprocess.Popen[str]], zk: KazooClient
) -> None:
    name = topic()
    produce(admin, name, 0, numbers(0, 5))
    process = child(name, stop_at=2)
    assert lines(process, 4) == ["joined", "0", "1", "2"]

    _, _, took = interrupted(process)

    assert took < 5
    assert stored(zk, group, name) == {0: "2"}, "message 2 was not consumed"
    assert members(zk, group) == []


def test_shutdown_at_end_of_interpreter_does_not_hang(
    topic: Topics, child: Callable[..., subprocess.Popen[str]]
) -> None:
    """Daemon threads no longer run when remaining objects are deleted, so waiting for them would never end."""
    process = child(topic(), code=CHILD_WITH_DESTRUCTOR)

    output, errors = process.communicate(timeout=20)

    assert (output, process.returncode) == ("joined\n", 0), errors
    assert "ClosedError: the interpreter is exiting" in errors
    assert errors.count("Traceback") == 1, errors


def test_killed_member_commits_nothing_unconsumed(
    admin: Any, topic: Topics, child: Callable[..., subprocess.Popen[str]], consumer: Consumers
) -> None:
    name = topic()
    produce(admin, name, 0, numbers(0, 5))
    process = child(name, stop_at=2)
    lines(process, 4)

    os.kill(process.pid, signal.SIGKILL)
    process.wait()

    # The znodes of the killed member exist until its session expires; the next owner waits for that.
    [stream] = consumer(consumer_id="next").create_message_streams({name: 1})[name]
    assert take(stream, 1)[0].offset <= 2


#: Files in which the start of a session is interrupted.
INTERRUPTED = [
    inspect.getfile(module) for module in (session, kazoo.client, kazoo.protocol.connection, kazoo.handlers.threading)
]


def test_start_of_session_can_be_interrupted_at_any_line(config: Callable[..., ConsumerConfig]) -> None:
    """Kazoo cannot be stopped if an exception interrupted its start."""
    number, is_interrupted = 0, True
    while is_interrupted:
        number += 1
        starting = session.ZooKeeperSession.from_config(config())
        try:
            is_interrupted = interrupt_at(number, starting.start, INTERRUPTED, event="line")
        finally:
            starting.close()
        assert starting.session_id == 0 or starting._client._stopped.is_set()
    assert number > 10
