"""The phases of the demo."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from examples.demo.ctrl_c import CtrlC
from examples.demo.load import Load
from examples.demo.members import PLAIN, QUERY, Owners, PlainProcess, SparkQuery
from examples.demo.record_count import RecordCount
from examples.demo.screen import Members, Screen
from zkconsumer.devcluster import DevCluster
from zkconsumer.devcluster.servers import download_missing_jars
from zkconsumer.errors import ZkConsumerError

TOPIC, GROUP, PARTITIONS = "demo", "demo", 8
BULK_RECORDS, BATCH_RECORDS, RECORDS_PER_SECOND = 6_000_000, 2_000_000, 50_000

TIMEOUT_S = 120


class Demo:
    """The phases of the demo.

    Args:
        screen: the user's terminal.
        cluster: development cluster, which ``run`` starts.
        folder: directory for Spark's files.
        ctrl_c: Ctrl-C handler.
    """

    def __init__(self, screen: Screen, cluster: DevCluster, folder: Path, ctrl_c: CtrlC) -> None:
        self._screen, self._cluster, self._folder = screen, cluster, folder
        self._ctrl_c = ctrl_c
        self._count = RecordCount()
        self._members: Members
        self._load = Load(cluster, TOPIC, PARTITIONS, BULK_RECORDS, RECORDS_PER_SECOND)
        self._query: SparkQuery
        self._plain: PlainProcess | None = None
        self._owners: Owners

    def run(self) -> bool:
        """Run all phases, and return whether each record was read exactly once."""
        say = self._screen.say
        say(
            "Starting ZooKeeper, two Kafka brokers and Spark. The demo takes about 90 seconds; the first run takes up "
            "to four minutes, because it downloads the servers. Press Ctrl-C to stop it."
        )
        self._start()
        say(f"A Spark query reads {BULK_RECORDS:,} records of 100 bytes through Arrow, and sums their numbers.")
        self._read_bulk()
        say(
            f"It read {self._query.rates()[-1]:,.0f} records per second on this machine, in the last batch of "
            f"{BATCH_RECORDS:,} records, after JIT warm-up, including aggregation and checkpoint."
        )
        self._load.start_steady_load()
        say(
            f"From now on, {RECORDS_PER_SECOND:,} records per second are produced, so a lag of {RECORDS_PER_SECOND:,} "
            "is one second. The query owns all partitions."
        )
        self._observe(8, {QUERY})
        say("A plain Python process joins the group, and takes over half of the partitions from the running query.")
        self._plain = PlainProcess(self._cluster.zookeeper_connect, GROUP, TOPIC, self._count)
        self._observe(14, {QUERY, PLAIN})
        say("The process leaves the group, and the query takes its partitions back.")
        self._plain.leave()
        self._observe(8, {QUERY})
        return self._finish()

    def _start(self) -> None:
        waiting = self._screen.waiting
        with waiting("downloading ZooKeeper and Kafka (62 MB), if they are not in ~/.cache/zkconsumer yet"):
            download_missing_jars(self._cluster.kafka)
        with waiting("starting the servers"):
            self._cluster.start()
            self._cluster.create_topic(TOPIC, PARTITIONS)
        self._load.start()
        with waiting("starting Spark"):
            self._query = SparkQuery(self._folder, self._ctrl_c)
        self._owners = Owners(self._cluster.zookeeper_connect, GROUP, TOPIC, PARTITIONS)
        with waiting(f"producing {BULK_RECORDS:,} records"):
            self._wait_for(self._load.bulk_done.is_set, f"{BULK_RECORDS:,} records are produced")

    def _read_bulk(self) -> None:
        options = {
            "zookeeper.connect": self._cluster.zookeeper_connect,
            "group.id": GROUP,
            "subscribe": TOPIC,
            "auto.offset.reset": "smallest",
            "maxOffsetsPerTrigger": BATCH_RECORDS,
        }
        self._query.start(options, self._count)
        batches = BULK_RECORDS // BATCH_RECORDS
        with self._screen.waiting("reading the records"):
            self._wait_for(lambda: len(self._query.rates()) >= batches, f"the query has read {BULK_RECORDS:,} records")

    def _observe(self, seconds: float, members: set[str]) -> None:
        """Wait until ``members`` own equal numbers of partitions, then show the table for ``seconds``."""
        self._members = Members()
        with self._screen.live() as live:

            def is_balanced() -> bool:
                owners = self._owners.read()
                live.update(self._table(), refresh=True)
                shares = {sum(owner == member for owner in owners.values()) for member in members}
                return shares == {PARTITIONS // len(members)}

            self._wait_for(is_balanced, f"{' and '.join(sorted(members))} own {PARTITIONS} partitions")
            ends_at = time.monotonic() + seconds
            while time.monotonic() < ends_at:
                self._check()
                live.update(self._table(), refresh=True)
                time.sleep(0.5)

    def _table(self) -> Any:
        ends, positions = self._load.ends.copy(), self._count.positions
        return self._members.table(self._owners.read(), self._count.by_member.copy(), positions, ends)

    def _finish(self) -> bool:
        self._load.stop()
        with self._screen.waiting("reading the last records"):
            self._wait_for(self._is_all_read, "all records are read")
        lost, duplicates = self._count.lost_and_duplicates(self._load.ends, self._load.total)
        self._query.stop()
        self._owners.close()
        color = "red" if lost or duplicates else "green"
        self._screen.say(
            f"[bold {color}]{self._load.produced:,} records produced, {lost:,} lost, {duplicates:,} read twice."
            f"[/] The plain process read {self._count.by_member[PLAIN]:,} of them."
        )
        return not lost and not duplicates

    def _is_all_read(self) -> bool:
        return self._count.positions == self._load.ends

    def _wait_for(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            self._check()
            if time.monotonic() > deadline:
                raise ZkConsumerError(f"timed out after {TIMEOUT_S} s waiting until {what}")
            time.sleep(0.2)

    def _check(self) -> None:
        """Raise any error of a member or the load generator, or KeyboardInterrupt after Ctrl-C."""
        self._ctrl_c.check()
        if hasattr(self, "_query"):
            self._query.check()
        for error in (self._load.error, self._plain.error if self._plain else None):
            if error is not None:
                raise error
