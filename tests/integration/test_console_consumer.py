"""Tests of the command ``zkconsumer console-consumer`` as a process: its output and its exit code."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers import batches
from helpers.aliases import Cluster, Run, Topics
from helpers.processes import kill
from helpers.producing import numbers, produce
from helpers.teardown import started
from helpers.topics import outlives_tests
from helpers.waiting import wait_for, wait_until_equal
from helpers.znodes import members, owners, set_offsets, stored
from kazoo.client import KazooClient

from zkconsumer import TopicPartition

TOOL = (sys.executable, "-m", "zkconsumer", "console-consumer")

pytestmark = pytest.mark.timeout(60)

Refused = Callable[..., str]
File = Callable[[bytes], str]


class Tool(subprocess.Popen[bytes]):
    """A running console consumer."""

    def ended(self, timeout: float = 20.0) -> tuple[int, bytes, str]:
        """Wait for the end of the process; return the exit code and the remaining output and errors."""
        out, errors = self.communicate(timeout=timeout)
        return self.returncode, out, errors.decode()

    def lines(self, count: int) -> list[bytes]:
        """Return the next lines of standard output."""
        assert self.stdout is not None
        return [self.stdout.readline().rstrip(b"\n") for _ in range(count)]


@pytest.fixture
def tool(tmp_path: Path) -> Iterator[Callable[..., Tool]]:
    """Start the tool with any arguments."""

    def make(*arguments: str, stdout: Any = subprocess.PIPE) -> Tool:
        return Tool([*TOOL, *arguments], cwd=tmp_path, stdout=stdout, stderr=subprocess.PIPE, bufsize=0)

    with started(make, kill) as start:
        yield start


@pytest.fixture
def console(zkconsumer_cluster: Cluster, group: str, tmp_path: Path, tool: Callable[..., Tool]) -> Callable[..., Tool]:
    """Start a member of the test's group: ``console(topic, "--from-beginning", auto_commit_interval_ms=50)``."""

    def start(
        topic: str, *options: str, kind: str = "--topic", stdout: Any = subprocess.PIPE, **settings: object
    ) -> Tool:
        properties: dict[str, object] = {
            "group.id": group,
            "consumer.id": "console",
            "auto.commit.interval.ms": 50,
            "zookeeper.session.timeout.ms": 2000,
            "zookeeper.connection.timeout.ms": 20_000,
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
        file = tmp_path / "consumer.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        at = ["--zookeeper", zkconsumer_cluster.zookeeper_connect, kind, topic, "--consumer.config", str(file)]
        return tool(*at, *options, stdout=stdout)

    return start


# ---- output -----------------------------------------------------------------------------------------------


def test_values_are_printed_one_per_line(admin: Any, topic: Topics, console: Callable[..., Tool]) -> None:
    name = topic()
    content = [b"plain", b"", b"\xff\x00not text", "grüße".encode(), b"x" * 300_000, b"two\nlines"]
    produce(admin, name, 0, content)

    code, out, errors = console(name, "--from-beginning", "--max-messages", str(len(content))).ended()

    assert out == b"".join(value + b"\n" for value in content)
    assert errors == f"Processed a total of {len(content)} messages\n"
    assert code == 0


def test_missing_topic_is_reported_on_standard_error(group: str, console: Callable[..., Tool]) -> None:
    code, out, errors = console(f"missing-{group}", "--log-level", "WARNING").ended()

    assert errors.startswith(f"zkconsumer console-consumer: topic 'missing-{group}' does not exist; check the topic")
    assert (code, out) == (1, b"")


def test_failing_rebalances_are_reported_on_standard_error(
    group: str, zk: KazooClient, topic: Topics, console: Callable[..., Tool]
) -> None:
    """Another program writes a registration that cannot be read, after the tool has joined the group."""
    process = console(topic(), rebalance_backoff_ms=50)
    wait_for(lambda: members(zk, group), what="the tool to join")
    zk.create(f"/consumers/{group}/ids/other", b"{not JSON")
    assert process.stderr is not None

    line = next(line for line in map(bytes.decode, process.stderr) if "event='rebalance_failed'" in line)

    assert " ERROR zkconsumer.rebalance: event='rebalance_failed'" in line
    assert f"/consumers/{group}/ids/other" in line


def test_log_level_selects_events(admin: Any, topic: Topics, console: Callable[..., Tool]) -> None:
    name = topic()
    produce(admin, name, 0, [b"a"])
    restart = ("--from-beginning", "--delete-consumer-offsets")
    shown = {
        level: console(name, "--max-messages", "1", *restart, "--log-level", level).ended()[2]
        for level in ("error", "info", "debug")
    }

    assert shown["error"] == "Processed a total of 1 messages\n"
    assert "INFO zkconsumer.rebalance: event='consumer_registered'" in shown["info"]
    assert "zkconsumer.zookeeper.kazoo" not in shown["info"]
    assert "DEBUG zkconsumer.zookeeper.kazoo: " in shown["debug"]


def test_null_value_is_printed_as_null(admin: Any, topic: Topics, console: Callable[..., Tool]) -> None:
    name = topic()
    records = [batches.Record(0, key=b"k", value=None), batches.Record(1, value=b"last")]
    admin.produce(TopicPartition(name, 0), batches.batch(records))

    assert console(name, "--from-beginning", "--max-messages", "2").ended()[:2] == (0, b"null\nlast\n")


def test_only_new_messages_without_from_beginning(
    admin: Any, topic: Topics, group: str, console: Callable[..., Tool], zk: KazooClient
) -> None:
    name = topic()
    produce(admin, name, 0, [b"before"])
    process = console(name, "--max-messages", "1")
    wait_until_equal(lambda: stored(zk, group, name), {0: "1"})

    produce(admin, name, 0, [b"after"])

    assert process.ended()[:2] == (0, b"after\n")


def test_from_beginning_agrees_with_smallest_reset(admin: Any, topic: Topics, console: Callable[..., Tool]) -> None:
    name = topic()
    produce(admin, name, 0, numbers(0, 3))

    process = console(name, "--from-beginning", "--max-messages", "3", auto_offset_reset="smallest")

    assert process.ended()[:2] == (0, b"0\n1\n2\n")


def test_messages_of_all_partitions_are_printed(admin: Any, topic: Topics, console: Callable[..., Tool]) -> None:
    name = topic(4)
    for partition in range(4):
        produce(admin, name, partition, numbers(partition * 1000, partition * 1000 + 1000))

    code, out, _ = console(name, "--from-beginning", "--max-messages", "4000").ended()

    assert code == 0
    assert sorted(out.split()) == sorted(numbers(0, 4000))


def test_topic_created_later_is_printed(
    zkconsumer_cluster: Cluster,
    admin: Any,
    unique: Callable[[str], str],
    group: str,
    console: Callable[..., Tool],
    zk: KazooClient,
) -> None:
    name = unique("late")
    process = console(name, "--from-beginning", "--max-messages", "1", kind="--whitelist")
    wait_until_equal(lambda: members(zk, group), [f"{group}_console"])

    zkconsumer_cluster.create_topic(name)
    try:
        produce(admin, name, 0, [b"here"])
        assert process.ended()[:2] == (0, b"here\n")
    finally:
        if outlives_tests(zkconsumer_cluster):
            admin.delete_topic(name)


def test_offsets_topic_is_printed_by_its_formatter(
    zkconsumer_cluster: Cluster, topic: Topics, group: str, zk: KazooClient, run: Run, tool: Callable[..., Tool]
) -> None:
    name, at = topic(2), zkconsumer_cluster.zookeeper_connect
    set_offsets(zk, group, name, {0: 4, 1: 6})
    run("migrate-offsets", "--zookeeper", at, "--group", group, "--to", "kafka", "--execute")
    formatter = "kafka.coordinator.group.GroupMetadataManager$OffsetsMessageFormatter"

    process = tool(*("--zookeeper", at, "--topic", "__consumer_offsets", "--from-beginning", "--formatter", formatter))

    pattern = rb"\[%s,%s,(\d)\]::\[OffsetMetadata\[(\d),[^\]]+\],CommitTime \d{13},ExpirationTime -?\d+\]"
    found: list[tuple[bytes, bytes]] = []
    while len(found) < 2:  # other tests commit offsets at the same time
        [line] = process.lines(1)
        assert line, process.ended()
        found += re.findall(pattern % (group.encode(), name.encode()), line)
    assert sorted(found) == [(b"0", b"4"), (b"1", b"6")]


# ---- exit --------------------------------------------------------------------------------------------------


def test_next_run_continues_after_max_messages(
    admin: Any, topic: Topics, group: str, console: Callable[..., Tool], zk: KazooClient
) -> None:
    name = topic()
    produce(admin, name, 0, numbers(0, 10))

    assert console(name, "--max-messages", "4", auto_offset_reset="smallest").ended()[:2] == (0, b"0\n1\n2\n3\n")

    assert stored(zk, group, name) == {0: "4"}
    assert (members(zk, group), owners(zk, group, name)) == ([], {})
    assert console(name, "--max-messages", "2").ended()[:2] == (0, b"4\n5\n")


def test_consumer_timeout_ends_the_tool(
    admin: Any, topic: Topics, group: str, console: Callable[..., Tool], zk: KazooClient
) -> None:
    name = topic()
    produce(admin, name, 0, numbers(0, 3))

    code, out, errors = console(name, "--from-beginning", consumer_timeout_ms=300).ended()

    assert (code, out) == (0, b"0\n1\n2\n")
    assert errors == "Processed a total of 3 messages\n"
    assert stored(zk, group, name) == {0: "3"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_commits_printed_messages(
    number: signal.Signals, admin: Any, topic: Topics, group: str, console: Callable[..., Tool], zk: KazooClient
) -> None:
    name = topic()
    produce(admin, name, 0, numbers(0, 5))
    process = console(name, "--from-beginning", auto_commit_interval_ms=60_000)
    assert process.lines(5) == numbers(0, 5)
    wait_for(lambda: is_waiting(process), what="the tool waits for messages")

    started = time.monotonic()
    process.send_signal(number)
    code, out, errors = process.ended()

    assert time.monotonic() - started < 3
    assert (code, out, errors) == (128 + number, b"", "Processed a total of 5 messages\n")
    assert stored(zk, group, name) == {0: "5"}
    assert (members(zk, group), owners(zk, group, name)) == ([], {})


@pytest.mark.parametrize(
    "number",
    [signal.SIGINT, *(pytest.param(other, marks=pytest.mark.slow) for other in (signal.SIGTERM, signal.SIGHUP))],
)
def test_signal_ends_blocked_first_rebalance(
    number: signal.Signals, topic: Topics, group: str, console: Callable[..., Tool], zk: KazooClient
) -> None:
    name = topic()
    zk.create(f"/consumers/{group}/owners/{name}/0", b"other_member-0", makepath=True)
    process = console(name, zookeeper_session_timeout_ms=60_000)
    wait_until_equal(lambda: members(zk, group), [f"{group}_console"])

    process.send_signal(number)
    code, out, errors = process.ended(5)

    assert (code, out, errors) == (128 + number, b"", "Processed a total of 0 messages\n")
    assert members(zk, group) == []


def is_waiting(process: Tool) -> bool:
    """Return whether the main thread sleeps, according to the kernel."""
    stat = Path(f"/proc/{process.pid}/task/{process.pid}/stat").read_text()
    return stat.rpartition(")")[2].split()[0] == "S"


def test_closed_pipe_ends_the_tool(
    admin: Any, topic: Topics, group: str, console: Callable[..., Tool], zk: KazooClient
) -> None:
    """``| head -n 1`` closes the pipe; the offsets of messages that could not be written are not committed."""
    name = topic()
    produce(admin, name, 0, numbers(0, 1))
    process = console(name, "--from-beginning")
    assert process.lines(1) == numbers(0, 1)
    assert process.stdout is not None
    process.stdout.close()

    produce(admin, name, 0, numbers(1, 10))

    assert process.wait(20) == 0
    assert process.stderr is not None
    assert process.stderr.read().decode().splitlines() == [
        "Unable to write to standard out, closing consumer.",
        "Processed a total of 1 messages",
    ]
    assert stored(zk, group, name) == {0: "1"}


def test_full_output_ends_with_error(admin: Any, topic: Topics, console: Callable[..., Tool]) -> None:
    name = topic()
    produce(admin, name, 0, numbers(0, 3))

    with open("/dev/full", "wb") as full:
        code, _, errors = console(name, "--from-beginning", stdout=full).ended()

    assert code == 1
    assert errors.splitlines() == [
        "Unable to write to standard out, closing consumer.",
        "Processed a total of 0 messages",
        "zkconsumer console-consumer: cannot write to standard output: No space left on device",
    ]


def test_unwritten_messages_are_not_committed(
    admin: Any, topic: Topics, group: str, console: Callable[..., Tool], zk: KazooClient
) -> None:
    """The pipe is full, so the tool blocks. When it is killed, only offsets of messages in the pipe are committed."""
    name = topic()
    size, count = 1000, 2000
    produce(admin, name, 0, [b"%0*d" % (size, number) for number in range(count)])
    process = console(name, "--from-beginning")
    wait_for(lambda: int(stored(zk, group, name).get(0, "0")) > 0, what="an offset is committed")
    wait_for(lambda: settled(lambda: stored(zk, group, name)), what="the pipe is full")

    process.kill()
    _, out, _ = process.ended()

    whole = [int(line) for line in out.split(b"\n")[:-1]]
    assert whole == list(range(len(whole)))
    assert len(whole) < count
    assert 0 < int(stored(zk, group, name)[0]) <= len(whole)


def settled(look: Callable[[], object]) -> bool:
    """Return whether the result of ``look`` does not change during several commit intervals."""
    before, end = look(), time.monotonic() + 0.5
    while time.monotonic() < end:
        if look() != before:
            return False
    return True


@pytest.mark.parametrize(
    ("first", "second", "delay_s"),
    [
        (signal.SIGINT, signal.SIGINT, 0.0),
        pytest.param(signal.SIGTERM, signal.SIGTERM, 0.005, marks=pytest.mark.slow),
        (signal.SIGHUP, signal.SIGTERM, 0.0),
        pytest.param(signal.SIGTERM, signal.SIGINT, 0.05, marks=pytest.mark.slow),
    ],
)
def test_repeated_signal_does_not_interrupt_shutdown(
    first: signal.Signals,
    second: signal.Signals,
    delay_s: float,
    admin: Any,
    topic: Topics,
    group: str,
    console: Callable[..., Tool],
    zk: KazooClient,
) -> None:
    """``timeout -s INT`` sends the signal to the process and to its group. Of two signals at once, either is first."""
    name = topic()
    produce(admin, name, 0, numbers(0, 5))
    process = console(name, "--from-beginning", auto_commit_interval_ms=60_000)
    assert process.lines(5) == numbers(0, 5)

    process.send_signal(first)
    time.sleep(delay_s)
    process.send_signal(second)
    process.send_signal(second)
    code, _, errors = process.ended()

    assert code in ((128 + first, 128 + second) if delay_s == 0 else (128 + first,))
    assert errors == ("Processed a total of 5 messages\n")
    assert stored(zk, group, name) == {0: "5"}
    assert members(zk, group) == []


def test_ctrl_c_ends_tool_with_slow_reader(
    admin: Any, topic: Topics, console: Callable[..., Tool], group: str, zk: KazooClient
) -> None:
    name = topic()
    produce(admin, name, 0, [b"x" * 100_000, b"y"])
    process = console(name, "--from-beginning")
    assert process.stdout is not None
    assert process.stdout.read(1) == b"x"

    process.send_signal(signal.SIGINT)

    assert process.wait(5) == 130
    assert stored(zk, group, name) in ({}, {0: "0"})


# ---- generated groups ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGHUP])
def test_generated_group_is_deleted_at_end(
    number: signal.Signals,
    zkconsumer_cluster: Cluster,
    admin: Any,
    topic: Topics,
    tool: Callable[..., Tool],
    zk: KazooClient,
) -> None:
    name = topic()
    produce(admin, name, 0, numbers(0, 2))
    arguments = ["--zookeeper", zkconsumer_cluster.zookeeper_connect, "--topic", name, "--from-beginning"]
    process = tool(*arguments)
    assert process.lines(2) == numbers(0, 2)
    groups = [g for g in zk.get_children("/consumers") if re.fullmatch(r"console-consumer-\d{1,5}", g)]
    [group] = [group for group in groups if zk.exists(f"/consumers/{group}/owners/{name}/0")]

    process.send_signal(number)

    assert process.ended()[0] == 128 + number
    assert not zk.exists(f"/consumers/{group}")


# ---- rejected arguments ------------------------------------------------------------------------------------------


def test_chroot_without_brokers_is_reported(
    zkconsumer_cluster: Cluster, refused: Refused, zk: KazooClient, unique: Callable[[str], str]
) -> None:
    chroot = f"/{unique('empty')}"
    zk.create(chroot)

    errors = refused("--zookeeper", zkconsumer_cluster.zookeeper_connect + chroot, "--topic", "t", exit_code=3)

    assert "No brokers found in ZK." in errors
    assert zk.get_children(chroot) == []
    zk.delete(chroot)


def test_missing_chroot_is_reported_and_not_created(
    zkconsumer_cluster: Cluster, refused: Refused, zk: KazooClient, unique: Callable[[str], str]
) -> None:
    chroot = f"/{unique('missing')}"

    errors = refused("--zookeeper", zkconsumer_cluster.zookeeper_connect + chroot, "--topic", "t")

    assert re.search(f"the chroot '.*{chroot}' does not exist", errors)
    assert not zk.exists(chroot)


def test_from_beginning_is_rejected_for_group_with_offsets(
    zkconsumer_cluster: Cluster, topic: Topics, group: str, refused: Refused, file: File, zk: KazooClient
) -> None:
    name, settings = topic(), file(f"group.id={group}\n".encode())
    zk.create(f"/consumers/{group}/offsets/{name}/0", b"7", makepath=True)

    errors = refused(
        *("--zookeeper", zkconsumer_cluster.zookeeper_connect, "--topic", name, "--from-beginning"),
        *("--consumer.config", settings),
        exit_code=1,
    )

    assert f"Found previous offset information for this group {group}" in errors
    assert stored(zk, group, name) == {0: "7"}
    assert members(zk, group) == []


def test_command_line_overrides_properties_file(admin: Any, topic: Topics, console: Callable[..., Tool]) -> None:
    name = topic()
    produce(admin, name, 0, numbers(0, 1))

    process = console(name, "--from-beginning", "--max-messages", "1", zookeeper_connect="127.0.0.1:1")

    assert process.ended()[:2] == (0, b"0\n")
