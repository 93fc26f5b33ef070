"""Tests of ``examples/service_consumer.py``: it runs as a process that is supervised over HTTP and by signals."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.aliases import Cluster, Topics
from helpers.processes import kill
from helpers.producing import numbers, produce
from helpers.teardown import started
from helpers.waiting import wait_for, wait_until_equal
from helpers.znodes import members, owners, stored
from kazoo.client import KazooClient

from zkconsumer.devcluster.process import free_port

PROGRAM = Path(__file__).parents[2] / "examples" / "service_consumer.py"


class Service:
    """A running program."""

    def __init__(self, directory: Path, topic: str, *options: str) -> None:
        self._log = directory / f"log{len(list(directory.iterdir()))}"
        with self._log.open("wb") as log:
            command = [sys.executable, str(PROGRAM), str(directory / "consumer.properties"), topic]
            selected = ["--secrets", str(directory / "secrets"), "--health-port", "0", *options]
            self.process = subprocess.Popen([*command, *selected], stderr=log)

    @property
    def events(self) -> list[dict[str, Any]]:
        """The events in its log; each line must be JSON."""
        complete, _, _ = self._log.read_text().rpartition("\n")
        return [json.loads(line) for line in complete.splitlines()]

    def named(self, event: str) -> list[dict[str, Any]]:
        """Return the events with a name."""
        return [found for found in self.events if found["event"] == event]

    def get(self, path: str) -> tuple[int, Any]:
        """Return status and body of a path of the health server."""
        [event] = wait_for(lambda: self.named("service_started"), what="the health server is started")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{event['health_port']}{path}", timeout=10) as response:
                return response.status, json.loads(response.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def stop(self, number: signal.Signals = signal.SIGTERM) -> float:
        """Send a signal; return the seconds until the process has ended with exit code 0."""
        started = time.monotonic()
        self.process.send_signal(number)
        assert self.process.wait(60) == 0, self.events[-1]
        return time.monotonic() - started


Services = Callable[..., Service]


@pytest.fixture
def service(zkconsumer_cluster: Cluster, group: str, tmp_path: Path) -> Iterator[Services]:
    """Start the program with a topic; its group is a property in the directory of secrets."""
    settings = {
        **zkconsumer_cluster.consumer_properties,
        "auto.offset.reset": "smallest",
        "zookeeper.session.timeout.ms": "6000",
        "rebalance.backoff.ms": "200",
    }
    settings.pop("group.id", None)
    (tmp_path / "consumer.properties").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "group.id").write_text(f"{group}\n")
    (secrets / "..data").mkdir()  # Kubernetes creates such a directory in each volume

    with started(lambda topic, *options: Service(tmp_path, topic, *options), lambda one: kill(one.process)) as start:
        yield start


def test_sigterm_commits_and_leaves_group(
    admin: Any, topic: Topics, group: str, service: Services, zk: KazooClient
) -> None:
    name = topic(2)
    for partition in range(2):
        produce(admin, name, partition, numbers(0, 10))
    running = service(name)
    wait_until_equal(lambda: len(running.named("order_processed")), 20)
    assert running.get("/live") == running.get("/ready") == (200, {"state": "healthy", "reasons": []})

    took = running.stop()

    assert (members(zk, group), owners(zk, group, name)) == ([], {})
    assert took < 5
    assert stored(zk, group, name) == {0: "10", 1: "10"}
    assert running.events[-1]["event"] == "service_stopped"
    registered = running.named("consumer_registered")[0]  # an event of the library
    assert (registered["logger"], registered["level"], registered["group"]) == ("zkconsumer.rebalance", "info", group)


def test_successor_continues_without_repetition(admin: Any, topic: Topics, service: Services) -> None:
    name = topic()
    produce(admin, name, 0, numbers(0, 1000))
    first = service(name)
    wait_for(lambda: first.named("order_processed"), what="messages are processed")

    first.stop()
    second = service(name)
    produce(admin, name, 0, numbers(0, 1))
    wait_for(lambda: [event for event in second.named("order_processed") if event["offset"] == 1000])

    seen = [event["offset"] for one in (first, second) for event in one.named("order_processed")]
    assert seen == list(range(1001))
    second.stop(signal.SIGINT)


def test_sigterm_ends_joining(topic: Topics, group: str, service: Services, zk: KazooClient) -> None:
    """The owner of the partition is another client, which does not release it."""
    name = topic()
    zk.create(f"/consumers/{group}/owners/{name}/0", b"other_member-0", makepath=True)
    running = service(name)
    try:
        wait_for(lambda: members(zk, group), what="the program is registered")
        assert running.get("/live")[0] == 200

        took = running.stop()

        assert members(zk, group) == []
        assert took < 5
    finally:
        zk.delete(f"/consumers/{group}/owners/{name}/0")


@pytest.mark.parametrize(
    "delay_s", [0.0, 0.02, *(pytest.param(delay_s, marks=pytest.mark.slow) for delay_s in (0.01, 0.04))]
)
def test_sigterm_is_handled_at_any_time(
    delay_s: float, topic: Topics, group: str, service: Services, zk: KazooClient
) -> None:
    """The signal arrives while the consumer connects and joins."""
    running = service(topic())
    wait_for(lambda: running.named("service_started"), what="the health server is started")
    time.sleep(delay_s)

    running.stop()

    assert members(zk, group) == []


def test_stalled_consumer_is_live_but_not_ready(topic: Topics, group: str, service: Services, zk: KazooClient) -> None:
    name = topic()
    running = service(name)
    wait_until_equal(lambda: len(owners(zk, group, name)), 1)
    wait_until_equal(lambda: running.get("/ready")[0], 200)
    path = f"/consumers/{group}/ids/{group}_broken"
    zk.create(path, b"not json")
    try:
        wait_until_equal(lambda: running.get("/ready")[0], 503)

        assert running.get("/live")[0] == 200
        state = running.get("/health")[1]
        assert (state["state"], [reason["code"] for reason in state["reasons"]]) == (
            "stalled",
            ["registration_invalid"],
        )
    finally:
        zk.delete(path)
    wait_until_equal(lambda: running.get("/ready")[0], 200)
    running.stop()


def test_error_is_logged_as_json(topic: Topics, service: Services, tmp_path: Path) -> None:
    with (tmp_path / "consumer.properties").open("a") as properties:
        properties.write("auto.ofset.reset=smallest\n")
    running = service(topic())

    assert running.process.wait(30) == 1
    [event] = running.events
    assert event["event"] == "service_failed"
    assert "unknown property 'auto.ofset.reset'" in event["exception"]


def test_metrics_are_served(topic: Topics, service: Services) -> None:
    port = free_port()
    running = service(topic(), "--metrics-port", str(port))

    def scrape() -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as response:
                return str(response.read().decode())
        except urllib.error.URLError:
            return ""

    wait_for(lambda: "\nkafka_consumer_ZookeeperConsumerConnector_Health" in scrape(), what="metrics are served")
    running.stop()
