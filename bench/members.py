"""Part ``members``: what an idle member costs itself, the brokers and ZooKeeper.

A group has two members, one of zkconsumer and one of Kafka 1.1.1 (the console consumers of both), which own the same
number of partitions of one topic without new records. The requests are the TCP segments with data that the member sent
to brokers and to ZooKeeper, as ``ss`` reports them, because a client sends each request in one segment. Memory per
partition is the difference between a large and a small topic.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import psutil
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from bench.grid import grid
from tests.interop.jvm import ChildConsumer, Maker, jvm_consumer, our_consumer
from zkconsumer.devcluster import DevCluster
from zkconsumer.devcluster.load import numbered_batch
from zkconsumer.message import TopicPartition

KINDS: dict[str, Maker] = {"zkconsumer": our_consumer, "JVM 1.1.1": jvm_consumer}
SMALL, LARGE = 8, 1_000

#: Time before the measurement, in which start and rebalance end, and duration of the measurement, in seconds.
SETTLE_S, MEASURED_S = 20.0, 60.0

#: Figures of a member by name: CPU in milliseconds per second, requests per second, and resident memory in bytes.
Figures = Mapping[str, float]

_SOCKET = re.compile(r"\S+:(\d+)\s+users:\(\(.*?pid=(\d+),")
_SENT = re.compile(r"\bdata_segs_out:(\d+)")


def count_requests(pid: int) -> dict[int, int]:
    """Return the number of segments with data that a process sent on its open connections, by port of the server."""
    command = ["ss", "--tcp", "--numeric", "--processes", "--info", "--oneline", "state", "established"]
    sent: dict[int, int] = {}
    for line in subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines():
        socket, segments = _SOCKET.search(line), _SENT.search(line)
        if socket and segments and int(socket[2]) == pid:
            port = int(socket[1])
            sent[port] = sent.get(port, 0) + int(segments[1])
    return sent


@dataclass(frozen=True)
class Sample:
    """What a process used since its start.

    Attributes:
        at: time of the sample, in seconds of a monotonic clock.
        cpu: CPU seconds.
        sent: number of requests by port of the server.
        resident: resident memory in bytes.
    """

    at: float
    cpu: float
    sent: Mapping[int, int]
    resident: int

    @classmethod
    def take(cls, process: psutil.Process) -> Sample:
        """Return a sample of a running process."""
        times = process.cpu_times()
        sent = count_requests(process.pid)
        return cls(time.monotonic(), times.user + times.system, sent, process.memory_info().rss)

    def since(self, earlier: Sample, zookeeper_port: int) -> Figures:
        """Return the figures of the time between two samples."""
        seconds = self.at - earlier.at
        sent = {port: count - earlier.sent.get(port, 0) for port, count in self.sent.items()}
        to_zookeeper = sent.pop(zookeeper_port, 0)
        return {
            "CPU ms/s": 1000 * (self.cpu - earlier.cpu) / seconds,
            "broker requests/s": sum(sent.values()) / seconds,
            "ZooKeeper requests/s": to_zookeeper / seconds,
            "bytes": self.resident,
        }


def wait_until_owned(zk: KazooClient, path: str, partitions: int, members: int) -> None:
    """Wait until each of the members owns the same number of partitions. ``path`` contains their znodes."""
    deadline = time.monotonic() + 180
    while True:
        owned: list[bytes] = []
        with contextlib.suppress(NoNodeError):  # a rebalance is under way
            owned = [zk.get(f"{path}/{number}")[0] for number in zk.get_children(path)]
        if len(owned) == partitions and len(set(owned)) == members:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(owned)} of {partitions} partitions are owned, by {set(owned)}")
        time.sleep(0.1)


def measure(cluster: DevCluster, rounds: int) -> dict[str, list[dict[str, Figures]]]:
    """Run both members with few and with many partitions, and return the figures of the runs by partitions."""
    runs: dict[str, list[dict[str, Figures]]] = {str(SMALL): [], str(LARGE): []}
    zk = KazooClient(cluster.zookeeper_connect)
    zk.start(timeout=10)
    try:
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(rounds):
                for partitions, found in runs.items():
                    found.append(_run(cluster, zk, int(partitions), Path(folder)))
                    print(f"  {int(partitions):,} partitions: {found[-1]}", file=sys.stderr, flush=True)
    finally:
        zk.stop()
        zk.close()
    return runs


def _run(cluster: DevCluster, zk: KazooClient, partitions: int, folder: Path) -> dict[str, Figures]:
    """Run both members with ``partitions`` partitions each, and return the figures of each member."""
    name = f"members-{uuid.uuid4().hex[:8]}"
    topic = cluster.create_topic(name, partitions * len(KINDS))
    for first in range(0, partitions * len(KINDS), 100):
        numbers = range(first, min(first + 100, partitions * len(KINDS)))
        cluster.admin.produce_all({TopicPartition(topic, number): numbered_batch(0, 1) for number in numbers})
    settings = {"zookeeper.connect": cluster.zookeeper_connect, "group.id": name, "rebalance.max.retries": 50}
    members: dict[str, ChildConsumer] = {}
    try:
        for number, (kind, make) in enumerate(KINDS.items()):
            identity = {"consumer.id": f"c{number}", "auto.offset.reset": "smallest"}
            members[kind] = make(f"{name}-{number}", folder, {**settings, **identity}, topic)
            members[kind].start()
        wait_until_owned(zk, f"/consumers/{name}/owners/{topic}", partitions * len(KINDS), len(KINDS))
        time.sleep(SETTLE_S)
        processes = {kind: psutil.Process(member.pid) for kind, member in members.items()}
        before = {kind: Sample.take(process) for kind, process in processes.items()}
        time.sleep(MEASURED_S)
        port = cluster.zookeeper.port
        return {kind: Sample.take(process).since(before[kind], port) for kind, process in processes.items()}
    finally:
        for member in members.values():
            member.kill()
        cluster.admin.delete_topic(topic)


def table(runs: dict[str, list[dict[str, Figures]]]) -> str:
    """Return the medians as a reStructuredText table. ``runs`` contains the runs by number of partitions."""
    rows = []
    for partitions, found in runs.items():
        for kind in KINDS:
            medians = {key: median(run[kind][key] for run in found) for key in found[0][kind]}
            cpu = [run[kind]["CPU ms/s"] for run in found]
            growth = ""
            if int(partitions) > SMALL:
                small = median(run[kind]["bytes"] for run in runs[str(SMALL)])
                growth = f"{(medians['bytes'] - small) / 1000 / (int(partitions) - SMALL):.1f}"
            rows.append(
                (
                    *(kind, f"{int(partitions):,}", f"{medians['CPU ms/s']:.1f}", f"{min(cpu):.1f} to {max(cpu):.1f}"),
                    *(f"{medians[key]:.1f}" for key in ("broker requests/s", "ZooKeeper requests/s")),
                    *(f"{medians['bytes'] / 1e6:.0f}", growth),
                )
            )
    header = (
        *("idle member", "partitions of each", "CPU, ms/s", "range", "broker requests/s"),
        *("ZooKeeper requests/s", "resident MB", "KB per partition"),
    )
    return grid(header, rows)
