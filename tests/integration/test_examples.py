"""Tests of the programs in ``examples/``, which run as a user runs them."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from helpers.aliases import Cluster
from helpers.producing import numbers, produce
from helpers.waiting import wait_for, wait_until_equal
from helpers.znodes import members, stored
from kazoo.client import KazooClient

from zkconsumer.devcluster.process import free_port

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def properties(zkconsumer_cluster: Cluster, group: str, tmp_path: Path) -> Path:
    """Return a properties file for the test's group."""
    settings = {
        **zkconsumer_cluster.consumer_properties,
        "group.id": group,
        "auto.offset.reset": "smallest",
        "consumer.timeout.ms": 2000,
    }
    file = tmp_path / "consumer.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return file


@pytest.fixture
def orders(topic: Callable[..., str], admin: Any) -> str:
    """Return a topic with 10 numbers in each of two partitions."""
    name = topic(2)
    for partition in range(2):
        produce(admin, name, partition, numbers(0, 10))
    return name


def run(example: str, *arguments: object) -> str:
    """Run an example and return its output."""
    command = [sys.executable, str(EXAMPLES / example), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_plain_consumer_prints_messages(properties: Path, orders: str) -> None:
    lines = run("plain_consumer.py", properties, orders).splitlines()

    assert sorted(lines) == sorted(
        f"{p} {o} {value.decode()}" for p in (0, 1) for o, value in enumerate(numbers(0, 10))
    )


def test_topic_filter_counts_messages(properties: Path, orders: str) -> None:
    assert run("topic_filter.py", properties, f"{orders}|none-such") == f"{orders}: 20 messages\n"


def test_arrow_batches_are_summed(properties: Path, orders: str) -> None:
    size = 2 * sum(map(len, numbers(0, 10)))
    assert run("arrow_batches.py", properties, orders) == f"20 messages, {size} bytes\n"


def test_manual_commits_store_each_message_once(
    zkconsumer_cluster: Cluster, properties: Path, topic: Callable[..., str], tmp_path: Path
) -> None:
    """The program is stopped twice while it stores messages, and continues without gaps or repetitions."""
    name, output = topic(2), tmp_path / "out"
    for partition in range(2):
        values = [json.dumps({"id": 1000 * partition + number}).encode() for number in range(500)]
        produce(zkconsumer_cluster.admin, name, partition, [b"{", *values])

    def stored() -> list[int]:
        return [json.loads(line)["id"] for line in output.read_text().splitlines()] if output.exists() else []

    def has_stored(count: int) -> bool:
        return len(stored()) >= count

    skipped = []
    for count, number in ((1, signal.SIGTERM), (300, signal.SIGINT), (1000, signal.SIGTERM)):
        command = [sys.executable, str(EXAMPLES / "manual_commits.py"), str(properties), name, str(output)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            wait_for(partial(has_stored, count), what=f"{count} messages are stored")
            process.send_signal(number)
            skipped += process.communicate(timeout=30)[1].splitlines()
        assert process.returncode == 0, skipped

    assert sorted(stored()) == [*range(500), *range(1000, 1500)]
    assert sorted(line.split(":")[0] for line in skipped) == [f"skipped {name}-{partition}@0" for partition in range(2)]


def test_rebalance_listener_stores_counts(properties: Path, orders: str, tmp_path: Path) -> None:
    assert run("rebalance_listener.py", properties, orders, tmp_path / "counts") == "assigned {0: 0, 1: 0}\n"
    assert run("rebalance_listener.py", properties, orders, tmp_path / "counts") == "assigned {0: 10, 1: 10}\n"


def test_prometheus_metrics_are_served(properties: Path, orders: str) -> None:
    port = free_port()
    command = [sys.executable, str(EXAMPLES / "prometheus_metrics.py"), str(properties), orders, str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:

        def scraped() -> str | None:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as response:
                    return str(response.read().decode())
            except urllib.error.URLError:
                return None

        text = wait_for(scraped, what="metrics are served")
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert len(output.splitlines()) == 20
    assert re.search("^kafka_consumer_ZookeeperConsumerConnector_Health", text, re.MULTILINE)


@pytest.mark.slow
def test_fixture_starts_a_cluster() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_with_cluster.py"]
    done = subprocess.run(command, cwd=EXAMPLES, capture_output=True, text=True, timeout=100, check=False)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(
    "example",
    [
        "plain_consumer.py",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("topic_filter.py", "arrow_batches.py", "rebalance_listener.py", "prometheus_metrics.py")
        ),
    ],
)
def test_signals_end_example(
    example: str, properties: Path, orders: str, tmp_path: Path, group: str, zk: KazooClient
) -> None:
    """Ctrl-C and SIGTERM arrive at once; the program commits all messages, leaves the group, and exits with code 0."""
    properties.write_text(properties.read_text().replace("consumer.timeout.ms=2000", "consumer.timeout.ms=-1"))
    arguments = {"rebalance_listener.py": [str(tmp_path / "counts")], "prometheus_metrics.py": [str(free_port())]}
    command = [sys.executable, str(EXAMPLES / example), str(properties), orders, *arguments.get(example, [])]
    properties.write_text(f"{properties.read_text()}auto.commit.interval.ms=50\n")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_until_equal(lambda: stored(zk, group, orders), {0: "10", 1: "10"})
            process.send_signal(signal.SIGINT)
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=30)
        finally:
            process.kill()
    assert (process.returncode, errors) == (0, "")
    assert members(zk, group) == []
    assert stored(zk, group, orders) == {0: "10", 1: "10"}
