"""The programs of the consumer guide, which run as a user pastes them, with another topic and group."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.processes import kill
from helpers.producing import numbers, produce

from zkconsumer import TopicPartition

pytestmark = pytest.mark.timeout(90)

_GUIDE = Path(__file__).parents[2] / "docs" / "consumer.rst"
_PYTHON = re.compile(r"^\.\. code-block:: python\n\n((?:    .*\n|\n)+)", re.MULTILINE)
PROGRAMS = [textwrap.dedent(block) for block in _PYTHON.findall(_GUIDE.read_text())]

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(
    zkconsumer_cluster: Any, topic: Callable[..., str], group: str, tmp_path: Path
) -> Callable[..., subprocess.Popen[str]]:
    """Save the program that contains a text, and start it."""
    settings = {**zkconsumer_cluster.consumer_properties, "group.id": group, "auto.offset.reset": "smallest"}
    lines = [f"{name}={value}\n" for name, value in settings.items()]
    (tmp_path / "consumer.properties").write_text("".join(lines))

    def run(text: str, name: str, *arguments: str) -> subprocess.Popen[str]:
        [found] = [program for program in PROGRAMS if text in program]
        path = tmp_path / "program.py"
        path.write_text(found.replace("orders", name))
        # Without a buffer, the parts of a line are written one by one, and another process can write between them.
        unbuffered = [] if "flush=True" in found else ["-u"]
        command = [sys.executable, *unbuffered, "-X", "faulthandler", str(path), *arguments]
        return subprocess.Popen(command, cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    return run


def read_output(process: subprocess.Popen[str], count: int) -> list[str]:
    """Return the first lines of the output."""
    assert process.stdout is not None
    return [process.stdout.readline() for _ in range(count)]


def stop(process: subprocess.Popen[str], number: int = signal.SIGTERM) -> str:
    """Send a signal, wait for exit code 0, and return what was written to standard error."""
    process.send_signal(number)
    try:
        _, errors = process.communicate(timeout=30)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)  # faulthandler writes the stacks of all threads
        raise AssertionError(process.communicate(timeout=30)[1]) from None
    finally:
        kill(process)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors
    return errors


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_first_program_commits_and_leaves_on_signal(
    number: int, start: Start, topic: Callable[..., str], group: str, admin: Any, zk: Any
) -> None:
    name = topic(1)
    produce(admin, name, 0, numbers(0, 100))

    process = start("message.key, message.value)", name)
    lines = read_output(process, 100)
    stop(process, number)

    assert lines == [f"0 {offset} None b'{offset}'\n" for offset in range(100)]
    assert zk.get(f"/consumers/{group}/offsets/{name}/0")[0] == b"100"
    assert zk.get_children(f"/consumers/{group}/ids") == []


def test_json_program_skips_invalid_records(start: Start, topic: Callable[..., str], admin: Any) -> None:
    name = topic(1)
    produce(admin, name, 0, [b'{"id": 1}', b"{", b'{"id": 2}'])

    process = start("json.loads", name)
    lines = read_output(process, 2)

    assert lines == ["None {'id': 1}\n", "None {'id': 2}\n"]
    assert "skipped 0-1: Expecting property name" in stop(process)


def test_filter_program_reads_matching_topic(start: Start, topic: Callable[..., str], admin: Any) -> None:
    name = topic(1)
    produce(admin, name, 0, [b"a"])

    output, errors = start("Whitelist(", name).communicate(timeout=60)

    assert output == f"{name} 0 0\nno message arrived for five seconds\n", errors


def test_processes_divide_partitions(start: Start, topic: Callable[..., str], admin: Any) -> None:
    name = topic(2)
    for partition in range(2):
        produce(admin, name, partition, numbers(0, 3))

    process = start("multiprocessing", name)
    lines = read_output(process, 6)
    stop(process)

    assert {line.split()[0] for line in lines} == {"0", "1"}


def test_simple_consumer_program_reads_partition(
    start: Start, topic: Callable[..., str], admin: Any, zkconsumer_cluster: Any
) -> None:
    name = topic(1)
    produce(admin, name, 0, [b"a", b"b"])
    leader = admin._leader_of(TopicPartition(name, 0))

    output, errors = start("SimpleConsumer(", name, str(leader)).communicate(timeout=60)

    assert output == "0 b'a'\n1 b'b'\nnext offset: 2\n", errors
