"""Kill and restart drivers, workers, servers and members of one group at random times.

Each activity is a generator that yields the number of seconds until its next step. One thread runs all of them, so the
activities overlap, and no thread remains when one of them fails.
"""

from __future__ import annotations

import heapq
import itertools
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil
from helpers.processes import list_session
from helpers.producing import Load
from helpers.waiting import TIMEOUT_S
from interop.jvm import ChildConsumer, jvm_consumer
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException

from zkconsumer.devcluster import DevCluster
from zkconsumer.devcluster.load import numbered_batch
from zkconsumer.devcluster.process import ServerProcess, is_listening
from zkconsumer.devcluster.servers import BrokerServer, ZooKeeperServer
from zkconsumer.errors import RetriableError

from .queries import START, kill, runners

Steps = Iterator[float]


class Extent(NamedTuple):
    """The number and rate of events.

    Attributes:
        pace: factor of the pauses between events.
        bounces, neighbours, queries: maximum number of restarts or pauses of servers, of JVM members that join, and of
            starts of the second query.
        slow: maximum duration of a batch's sink, in seconds.
        per_second: records that are produced per second.
    """

    driver_kills: int
    worker_kills: int
    bounces: int
    neighbours: int
    queries: int
    pace: float
    slow: float
    per_second: int


class Seen(NamedTuple):
    """The records of one partition in one run of a batch."""

    run: int
    batch: int
    topic: str
    partition: int
    start: int
    until: int
    records: int
    checksum: int


class StubbornLoad(Load):
    """A load that retries while partitions have no leader; unacknowledged records may be written twice."""

    def _run(self) -> None:
        try:
            while not self._stopped.wait(self._batch / self.per_second):
                records = numbered_batch(self.written, self._batch, size=self._width)
                try:
                    self._admin.produce(self.partition_of(self.written), records)
                except RetriableError:
                    continue
                self.written += self._batch
        except BaseException as error:
            self._error = error
        finally:
            self._admin.close()


class Driver(ServerProcess):
    """A Spark driver process that runs one query whenever it is started; see ``drivers/chaos.py``."""

    def __init__(self, name: str, folder: Path, options: dict[str, str], slow: float) -> None:
        self.checkpoint, self._seen = folder / f"{name}-checkpoint", folder / f"{name}-seen"
        # Spark creates Unix sockets in this folder, and their paths must be short.
        self._temporary = tempfile.TemporaryDirectory(prefix="zkconsumer-", ignore_cleanup_errors=True)
        spark = self._temporary.name
        settings = {
            "options": options,
            "folder": spark,
            "checkpoint": str(self.checkpoint),
            "seen": str(self._seen),
            "slow": slow,
        }
        paths = [str(Path(__file__).parent.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        command = ["env", f"PYTHONPATH={os.pathsep.join(paths)}", f"TMPDIR={spark}"]
        command += [sys.executable, "-m", f"{__package__}.drivers.chaos", json.dumps(settings)]
        super().__init__(name, command, folder, lambda: True)
        self._session = 0

    def start(self, *, wait: bool = False) -> None:
        """Start the process without waiting for the query."""
        assert not self.processes, f"{self.name}: processes of the previous run are still running"
        super().start(wait=wait)
        assert self.pid is not None
        self._session = self.pid

    @property
    def processes(self) -> list[psutil.Process]:
        """Return all processes of the driver: Python, the JVM, planning processes and workers."""
        return list_session(self._session) if self._session else []

    @property
    def seen(self) -> list[Seen]:
        """Return the records of its batches in all runs."""
        lines = self._seen.read_text().splitlines() if self._seen.exists() else []
        return [Seen(*json.loads(line)) for line in lines]

    @property
    def is_done(self) -> bool:
        """Whether all batches in its checkpoint have finished."""
        if not self.checkpoint.exists():
            return True
        logs = [self.checkpoint / folder for folder in ("offsets", "commits")]
        planned, done = ({f.name for f in log.iterdir() if f.name.isdigit()} for log in logs)
        return planned == done

    @property
    def output(self) -> str:
        """The last 6000 characters of the output."""
        return self._written[-6000:]

    @property
    def _written(self) -> str:
        out = self.log.with_suffix(".out")
        return out.read_text(errors="replace") if out.exists() else ""

    def workers(self) -> list[psutil.Process]:
        """Return the processes that run tasks in Python."""
        return [p for p in self.processes if _has(p, "pyspark.worker")]

    @property
    def lost_tasks(self) -> int:
        """Return the number of failed tasks."""
        return self._written.count(" Lost task ")

    def end(self, how: str) -> str:
        """Kill one process of the driver, or all of them, and return what was killed."""
        victims = {
            "Python": [psutil.Process(self.pid)],
            "JVM": [p for p in self.processes if _has(p, "org.apache.spark.deploy.SparkSubmit")],
            "planner": runners(self.pid or 0),
        }.get(how, [])
        kill(victims or self.processes)
        return how if victims else "all"

    def kill(self) -> None:
        """Kill all processes of the driver."""
        while processes := self.processes:
            kill(processes)
            psutil.wait_procs(processes, TIMEOUT_S)
        super().kill()

    def close(self) -> None:
        """Kill the driver and delete the temporary files of Spark."""
        self.kill()
        self._temporary.cleanup()


def _has(process: psutil.Process, word: str) -> bool:
    try:
        return word in process.cmdline()
    except psutil.Error:
        return False


def _reads(process: psutil.Process, ports: Sequence[int]) -> bool:
    """Whether a worker is connected to a broker."""
    try:
        return any(c.raddr and c.raddr.port in ports for c in process.net_connections("tcp"))
    except psutil.Error:
        return False


def until(condition: Callable[[], object], timeout: float, what: Callable[[], str]) -> Steps:
    """Wait for a condition; fail after ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"timed out after {timeout:g} s, waiting for {what()}"
        yield 0.1


class Chaos:
    """Random events that affect one group.

    Attributes:
        counts: number of events by kind.
        died: name and output of drivers that terminated without being killed.
    """

    def __init__(
        self,
        cluster: DevCluster,
        zk: KazooClient,
        group: str,
        load: Load,
        options: dict[str, str],
        folder: Path,
        extent: Extent,
        seed: int,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.died: list[str] = []
        self.first = Driver("first", folder, options, extent.slow)
        self.second = Driver("second", folder, options, extent.slow)
        self.neighbours: list[ChildConsumer] = []
        self._cluster, self._zk, self._load = cluster, zk, load
        self._folder, self._extent, self._seed = folder, extent, seed
        self._neighbour = {
            "zookeeper.connect": cluster.zookeeper_connect,
            "group.id": group,
            "zookeeper.session.timeout.ms": 3000,
            "zookeeper.connection.timeout.ms": 20_000,
            "auto.commit.interval.ms": 1000,
            "auto.offset.reset": "largest",  # the JVM console consumer rejects smallest for a group with offsets
        }
        self._active_killers = 2
        self._started = time.monotonic()

    def run(self, timeout: float) -> None:
        """Run all activities. At the end, the servers and both queries are running, and the JVM members have left."""
        deadline = time.monotonic() + timeout
        activities = [self._drivers(), self._workers(), self._servers(), self._neighbours(), self._second_query()]
        order = itertools.count()
        waiting = [(0.0, next(order), activity) for activity in activities]
        while waiting:
            at, _, activity = heapq.heappop(waiting)
            assert time.monotonic() < deadline, f"not done within {timeout:g} s; events: {dict(self.counts)}"
            time.sleep(max(0.0, at - time.monotonic()))
            try:
                pause = next(activity)
            except StopIteration:
                continue
            heapq.heappush(waiting, (time.monotonic() + pause, next(order), activity))

    def close(self) -> None:
        """Kill all processes that were started."""
        for one in self.neighbours:
            one.kill()
        for driver in (self.first, self.second):
            driver.close()

    def log(self, what: str) -> None:
        """Print an event with the time."""
        print(f"{time.monotonic() - self._started:7.1f} {what}", flush=True)

    def _random(self, activity: str) -> random.Random:
        return random.Random(f"{self._seed} {activity}")

    def _pause(self, rng: random.Random, least: float, most: float) -> Steps:
        """Wait for a random time, at most until the killing of drivers and workers has ended."""
        ends = time.monotonic() + rng.uniform(least, most) * self._extent.pace
        while self._active_killers and (left := ends - time.monotonic()) > 0:
            yield min(left, 0.2)

    # ---- drivers ----

    def _drivers(self) -> Steps:
        """Kill the driver of the first query at random times and start it again."""
        rng = self._random("drivers")
        for _ in range(self._extent.driver_kills):
            yield from self._ensure_running(self.first)
            if rng.random() < 0.3:
                yield from self._keep_running(self.first, rng, 0, 20)
            else:
                yield from self._wait_for_batch(self.first)
                yield from self._keep_running(self.first, rng, 0, 8)
            yield from self._kill(self.first, rng.choice(["all", "all", "all", "Python", "JVM", "planner"]))
            self.counts["driver kills"] += 1
            yield rng.uniform(0, 6) * self._extent.pace
        yield from self._ensure_running(self.first)
        self._active_killers -= 1

    def _second_query(self) -> Steps:
        """Start and stop a second query of the group."""
        rng = self._random("second")
        for _ in range(self._extent.queries):
            yield from self._pause(rng, 2, 15)
            yield from self._ensure_running(self.second)
            self.counts["joins of the second query"] += 1
            yield from self._wait_for_batch(self.second)
            yield from self._keep_running(self.second, rng, 0, 30)
            if not self._active_killers:
                return
            if rng.random() < 0.3:
                yield from self._kill(self.second, "all")
                self.counts["kills of the second query"] += 1
            else:
                self.log("second: SIGTERM")
                assert self.second.pid is not None
                os.kill(self.second.pid, signal.SIGTERM)
                yield from self._wait_for_exit(self.second)
        if self._extent.queries:
            yield from self._ensure_running(self.second)

    def _ensure_running(self, driver: Driver) -> Steps:
        if not driver.is_running:
            yield from self._wait_for_exit(driver)
            self.log(f"{driver.name}: starts")
            driver.start()

    def _keep_running(self, driver: Driver, rng: random.Random, least: float, most: float) -> Steps:
        """Wait for a random time, and restart the driver if it terminates."""
        for pause in self._pause(rng, least, most):
            yield pause
            if not driver.is_running:
                yield from self._restart(driver)

    def _wait_for_batch(self, driver: Driver) -> Steps:
        """Wait until the driver has finished a batch since its start."""
        batches = len(driver.seen)
        while len(driver.seen) == batches:
            yield from until(
                lambda: len(driver.seen) > batches or not driver.is_running,
                5 * START,  # two Spark drivers and all servers share two cores
                lambda: f"a batch of {driver.name}; {driver.output}",
            )
            if not driver.is_running:
                yield from self._restart(driver)

    def _restart(self, driver: Driver) -> Steps:
        self.log(f"{driver.name}: terminated unexpectedly")
        self.died.append(f"{driver.name} terminated unexpectedly: {driver.output}")
        yield from self._ensure_running(driver)

    def _kill(self, driver: Driver, how: str) -> Steps:
        yield from self._ensure_running(driver)
        killed = driver.end(how)
        self.counts[f"of it {killed}"] += driver is self.first
        self.log(f"{driver.name}: {killed} killed")
        yield from self._wait_for_exit(driver)

    def _wait_for_exit(self, driver: Driver) -> Steps:
        """Wait until all processes of a driver have terminated, because two drivers must not use one checkpoint."""

        def has_exited() -> bool:
            return not driver.is_running and not driver.processes

        yield from until(
            has_exited,
            60,
            lambda: f"{driver.name} ends: {[p.cmdline()[-3:] for p in driver.processes]}; {driver.output}",
        )

    # ---- workers ----

    def _workers(self) -> Steps:
        """Kill workers, most of them while they are reading from a broker."""
        rng = self._random("workers")
        for _ in range(self._extent.worker_kills):
            yield from self._pause(rng, 1, 20)
            wants_reader = rng.random() < 0.7
            deadline = time.monotonic() + 4 * START
            workers: list[psutil.Process] = []
            listed_at = 0.0
            while True:
                now = time.monotonic()
                assert now < deadline, "no driver has a Python worker"
                if now > listed_at + 0.5:
                    workers = [w for driver in (self.first, self.second) for w in driver.workers()]
                    listed_at = now
                reading = [w for w in workers if _reads(w, self._ports)]
                victims = reading if wants_reader and now < deadline - 2 * START else workers
                if victims:
                    victim = rng.choice(victims)
                    try:
                        victim.kill()
                        break
                    except psutil.NoSuchProcess:
                        pass
                yield 0.01 if workers else 0.2
            self.counts["worker kills"] += 1
            self.counts["of workers that read"] += victim in reading
            self.log(f"a worker killed{', which read' * (victim in reading)}")
        self._active_killers -= 1

    @property
    def _ports(self) -> list[int]:
        return [broker.endpoint.port for broker in self._cluster.brokers]

    # ---- servers ----

    def _servers(self) -> Steps:
        """Restart or pause ZooKeeper or a broker, one at a time."""
        rng = self._random("servers")
        zookeeper, brokers = self._cluster.zookeeper, self._cluster.brokers
        servers: list[BrokerServer | ZooKeeperServer] = [zookeeper, zookeeper, *brokers]
        for _ in range(self._extent.bounces):
            yield from self._pause(rng, 3, 15)
            if not self._active_killers:
                return
            server = rng.choice(servers)
            how = rng.choice(["kill", "stop", "pause"])
            self.counts[f"{'ZooKeeper' if server is zookeeper else 'broker'} {how}s"] += 1
            self.log(f"{server.name}: {how}")
            if how == "pause":
                server.pause()
                yield rng.uniform(0.5, 5)
                server.resume()
            else:
                os.kill(server.pid or 0, signal.SIGKILL if how == "kill" else signal.SIGTERM)
                yield from until(lambda: not server.is_running, 60, lambda: f"{server.name} ends; {server.log_end()}")
                yield rng.uniform(0, 3)
                yield from self._start_server(server)
            written = self._load.written + 100
            yield from until(lambda: self._load.written > written, 120, lambda: f"{server.name} serves again")
            self.log(f"{server.name}: serves again")

    def _start_server(self, server: BrokerServer | ZooKeeperServer) -> Steps:
        if isinstance(server, BrokerServer):
            yield from until(lambda: self._is_unregistered(server), 30, lambda: f"the session of {server.name} ends")
        port = server.endpoint.port if isinstance(server, BrokerServer) else server.port
        server.start(wait=False)
        yield from until(
            lambda: server.is_running and is_listening(port), 60, lambda: f"{server.name} is back; {server.log_end()}"
        )

    def _is_unregistered(self, broker: BrokerServer) -> bool:
        try:
            return self._zk.exists(f"/brokers/ids/{broker.node}") is None
        except KazooException:
            return False

    # ---- JVM ----

    def _neighbours(self) -> Steps:
        """Start and stop JVM consumers of the group."""
        rng, topic = self._random("neighbours"), self._load.partitions[0].topic
        for _ in range(self._extent.neighbours):
            if not self._active_killers:
                return
            name = f"jvm-{len(self.neighbours)}"
            one = jvm_consumer(name, self._folder, {**self._neighbour, "consumer.id": name}, topic)
            self.neighbours.append(one)
            one.start()
            self.counts["joins of a JVM"] += 1
            self.log(f"{name}: joins")
            deadline = time.monotonic() + 20
            while not one.output.stat().st_size and time.monotonic() < deadline:
                yield 0.1
            self.counts["of JVMs that read nothing in 20 s"] += not one.output.stat().st_size
            yield from self._pause(rng, 2, 25)
            self.counts["of JVMs that gave up"] += not one.is_running
            if one.pid is not None:
                self.log(f"{name}: SIGTERM")
                os.kill(one.pid, signal.SIGTERM)
            yield from until(lambda: not one.is_running, 60, lambda: f"{name} ends; {one.log_end()}")
            yield from self._pause(rng, 2, 12)
