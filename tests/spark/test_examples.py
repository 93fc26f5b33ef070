"""Tests of the Spark programs in ``examples/``, which run as a user runs them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.aliases import Cluster
from helpers.producing import numbers, produce
from helpers.waiting import wait_until_equal
from helpers.znodes import stored
from kazoo.client import KazooClient

from zkconsumer.devcluster.java import java_home
from zkconsumer.signals import END_SIGNALS

from .queries import divides_available_now

EXAMPLES = Path(__file__).parents[2] / "examples"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture
def orders(zkconsumer_cluster: Cluster, topic: Callable[..., str]) -> str:
    """Return a topic with 10 numbers in each of two partitions."""
    name = topic(2)
    for partition in range(2):
        produce(zkconsumer_cluster.admin, name, partition, numbers(0, 10))
    return name


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a user whose files are in ``tmp_path``."""
    return {
        **os.environ,
        "JAVA_HOME": str(java_home()),
        "SPARK_LOCAL_DIRS": str(tmp_path),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def run(environment: dict[str, str], folder: Path, example: str, *arguments: object) -> str:
    """Run an example in a folder and return its output."""
    command = [sys.executable, str(EXAMPLES / example), *map(str, arguments)]
    done = subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, timeout=150, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def test_batch_shows_ranges(
    zkconsumer_cluster: Cluster, orders: str, environment: dict[str, str], tmp_path: Path
) -> None:
    output = run(environment, tmp_path, "spark_batch.py", zkconsumer_cluster.zookeeper_connect, orders)

    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in output.splitlines() if line.startswith("|")]
    assert rows[1:] == [["0", "10", "9"], ["1", "10", "9"]]


def test_batches_are_written_to_parquet(
    zkconsumer_cluster: Cluster, orders: str, environment: dict[str, str], tmp_path: Path
) -> None:
    arguments = ("spark_parquet.py", zkconsumer_cluster.zookeeper_connect, orders, tmp_path / "target")

    assert run(environment, tmp_path, *arguments) == f"20 rows in {tmp_path / 'target'}\n"
    produce(zkconsumer_cluster.admin, orders, 0, numbers(10, 15))
    assert run(environment, tmp_path, *arguments) == f"25 rows in {tmp_path / 'target'}\n"


@divides_available_now
def test_windows_of_json_continue_after_restart(
    zkconsumer_cluster: Cluster, topic: Callable[..., str], environment: dict[str, str], tmp_path: Path
) -> None:
    name = topic(1)
    order = '{{"customer": "a", "amount": {}, "time": "2026-11-26T10:{:02}:00Z"}}'
    arguments = ("spark_windows.py", zkconsumer_cluster.zookeeper_connect, name, tmp_path / "target")
    utc = environment | {"TZ": "UTC"}

    produce(zkconsumer_cluster.admin, name, 0, [order.format(1.5, 0).encode(), b"{", order.format(2, 5).encode()])
    assert run(utc, tmp_path, *arguments) == "", "no window is closed"
    produce(zkconsumer_cluster.admin, name, 0, [order.format(3, 0).encode(), order.format(1, 20).encode()])
    produce(zkconsumer_cluster.admin, name, 0, [order.format(1, 40).encode()])
    output = run(utc, tmp_path, *arguments)

    assert output.startswith("2026-11-26 10:00:00 a 4.5\n2026-11-26 10:05:00 a 2.0\n")


def test_words_are_counted(
    zkconsumer_cluster: Cluster, orders: str, environment: dict[str, str], tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    output = run(environment, tmp_path, "spark_stream.py", zkconsumer_cluster.zookeeper_connect, orders, checkpoint)

    rows = {tuple(line.strip("|").split("|")) for line in output.splitlines() if line.startswith("|")}
    assert {(word.strip(), count.strip()) for word, count in rows} >= {(str(n), "2") for n in range(10)}


#: A line of a progress bar, which ends with blanks; or a log line of level INFO, which Spark can write when it stops.
_LINE_OF_SPARK = re.compile(r"\[Stage|[0-9/]+ [0-9:]+ INFO ")


@pytest.mark.parametrize("number", END_SIGNALS)
def test_shim_runs_dstream_until_signal(
    number: signal.Signals,
    zkconsumer_cluster: Cluster,
    orders: str,
    environment: dict[str, str],
    tmp_path: Path,
    zk: KazooClient,
) -> None:
    command = [sys.executable, "-m", "zkconsumer.spark.shim", str(EXAMPLES / "spark_dstream.py")]
    command += [zkconsumer_cluster.zookeeper_connect, orders]
    unbuffered = environment | {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, env=unbuffered, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        lines: list[str] = []
        errors: list[str] = []
        threads = [
            threading.Thread(target=into.extend, args=[file], daemon=True)
            for into, file in ((lines, process.stdout), (errors, process.stderr))
        ]
        for thread in threads:
            thread.start()

        def counted() -> int:
            return sum(int(count) for count in re.findall(r"\('\d', (\d)\)", "".join(list(lines))))

        wait_until_equal(counted, 20, 90)
        wait_until_equal(lambda: stored(zk, "word-count", orders), {0: "10", 1: "10"})
        before = len(errors)
        assert zk.get_children("/consumers/word-count/ids")
        process.send_signal(number)
        assert process.wait(60) == 128 + number
        assert not zk.get_children("/consumers/word-count/ids"), "the member has left the group"
        assert not zk.get_children(f"/consumers/word-count/owners/{orders}")
        for thread in threads:
            thread.join(10)
    assert [line for line in errors[before:] if line.strip() and not _LINE_OF_SPARK.match(line)] == []
