"""Drivers, workers, servers and members of one group that end and come back at random moments.

Who does what is a generator that yields for how many seconds it has nothing to do; one thread runs all of them, so that
all of it goes on at once and nothing is left behind when one fails.
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
from interop.jvm import ChildConsumer, jvm_consumer
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from support import PATIENCE, Load

from zkconsumer.devcluster import DevCluster
from zkconsumer.devcluster.load import numbered_batch
from zkconsumer.devcluster.process import ServerProcess, is_listening
from zkconsumer.devcluster.servers import Broker, ZooKeeperServer
from zkconsumer.errors import RetriableError

from .queries import START, kill, runners

Doing = Iterator[float]


class Extent(NamedTuple):
    """How much of it.

    Attributes:
        pace: what pauses, of seconds, are multiplied by.
        bounces, neighbours, queries: how often, at most, a server is restarted or frozen, a JVM joins, and the second
            query does.
        slow: seconds that a batch's sink takes at most.
        per_second: records that are written.
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
    """What one run of a batch saw of a partition."""

    run: int
    batch: int
    topic: str
    partition: int
    start: int
    until: int
    count: int
    checksum: int


class StubbornLoad(Load):
    """A load that outlives any time without leaders; what it is not told of may be written twice."""

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
    """A Spark of its own that runs one query whenever it is started, see ``chaos_driver.py``."""

    def __init__(self, name: str, folder: Path, options: dict[str, str], slow: float) -> None:
        self.checkpoint, self._seen = folder / f"{name}-checkpoint", folder / f"{name}-seen"
        # The sockets there must not have long names.
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
        command += [sys.executable, "-m", f"{__package__}.chaos_driver", json.dumps(settings)]
        super().__init__(name, command, folder, lambda: True)
        self._session = 0

    def start(self, *, wait: bool = False) -> None:
        """Start it; where that takes its time, nobody waits."""
        assert not self.processes, f"{self.name}: some of its processes are left"
        super().start(wait=wait)
        assert self.pid is not None
        self._session = self.pid

    @property
    def processes(self) -> list[psutil.Process]:
        """All that runs for the driver: its Python and JVM, and the processes that plan and read."""
        found = []
        for process in psutil.process_iter() if self._session else ():
            try:
                if os.getsid(process.pid) == self._session and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except (ProcessLookupError, psutil.NoSuchProcess):
                continue
        return found

    @property
    def seen(self) -> list[Seen]:
        """What its batches saw, in all runs."""
        lines = self._seen.read_text().splitlines() if self._seen.exists() else []
        return [Seen(*json.loads(line)) for line in lines]

    @property
    def is_done(self) -> bool:
        """Whether all batches in its checkpoint are done."""
        if not self.checkpoint.exists():
            return True
        logs = [self.checkpoint / folder for folder in ("offsets", "commits")]
        planned, done = ({f.name for f in log.iterdir() if f.name.isdigit()} for log in logs)
        return planned == done

    @property
    def output(self) -> str:
        """The end of what it wrote."""
        return self._written[-6000:]

    @property
    def _written(self) -> str:
        out = self.log.with_suffix(".out")
        return out.read_text(errors="replace") if out.exists() else ""

    def workers(self) -> list[psutil.Process]:
        """The processes that run tasks in Python."""
        return [p for p in self.processes if _has(p, "pyspark.worker")]

    @property
    def lost_tasks(self) -> int:
        """How many tasks failed."""
        return self._written.count(" Lost task ")

    def end(self, how: str) -> str:
        """Kill what ends the driver: one process, or all of them; returns what was killed."""
        victims = {
            "Python": [psutil.Process(self.pid)],
            "JVM": [p for p in self.processes if _has(p, "org.apache.spark.deploy.SparkSubmit")],
            "planner": runners(self.pid or 0),
        }.get(how, [])
        kill(victims or self.processes)
        return how if victims else "all"

    def kill(self) -> None:
        """End all of its processes at once."""
        while processes := self.processes:
            kill(processes)
            psutil.wait_procs(processes, PATIENCE)
        super().kill()

    def close(self) -> None:
        """Kill it, and delete what Spark has left behind."""
        self.kill()
        self._temporary.cleanup()


def _has(process: psutil.Process, word: str) -> bool:
    try:
        return word in process.cmdline()
    except psutil.Error:
        return False


def _reads(process: psutil.Process, ports: Sequence[int]) -> bool:
    """Whether a worker is connected with a broker."""
    try:
        return any(c.raddr and c.raddr.port in ports for c in process.net_connections("tcp"))
    except psutil.Error:
        return False


def until(condition: Callable[[], object], timeout: float, what: Callable[[], str]) -> Doing:
    """Wait for a condition, with a deadline."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout:g} s: {what()}"
        yield 0.1


class Chaos:
    """All that happens to one group.

    Attributes:
        counts: of what has happened.
        died: drivers that ended though nobody had killed them, and what they said.
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
            "auto.offset.reset": "largest",  # its tool refuses the other for a group that has offsets
        }
        self._busy = 2
        self._started = time.monotonic()

    def run(self, timeout: float) -> None:
        """Let all of it happen; in the end the servers are up, both queries run, and nobody else is in the group."""
        deadline = time.monotonic() + timeout
        doings = [self._drivers(), self._workers(), self._servers(), self._neighbours(), self._second_query()]
        order = itertools.count()
        waiting = [(0.0, next(order), doing) for doing in doings]
        while waiting:
            at, _, doing = heapq.heappop(waiting)
            assert time.monotonic() < deadline, f"not done within {timeout:g} s: {dict(self.counts)}"
            time.sleep(max(0.0, at - time.monotonic()))
            try:
                pause = next(doing)
            except StopIteration:
                continue
            heapq.heappush(waiting, (time.monotonic() + pause, next(order), doing))

    def close(self) -> None:
        """Kill all that was started here."""
        for one in self.neighbours:
            one.kill()
        for driver in (self.first, self.second):
            driver.close()

    def tell(self, what: str) -> None:
        """Print what happens, with the time."""
        print(f"{time.monotonic() - self._started:7.1f} {what}", flush=True)

    def _chance(self, who: str) -> random.Random:
        return random.Random(f"{self._seed} {who}")

    def _pause(self, chance: random.Random, least: float, most: float) -> Doing:
        """Wait a random time, not beyond the end of it all."""
        ends = time.monotonic() + chance.uniform(least, most) * self._extent.pace
        while self._busy and (left := ends - time.monotonic()) > 0:
            yield min(left, 0.2)

    # ---- drivers ----

    def _drivers(self) -> Doing:
        """Kill the first query's driver at any moment of its life, and start it again."""
        chance = self._chance("drivers")
        for _ in range(self._extent.driver_kills):
            yield from self._live(self.first)
            if chance.random() < 0.3:
                yield from self._any_time(self.first, chance, 0, 20)
            else:
                yield from self._get_on(self.first)
                yield from self._any_time(self.first, chance, 0, 8)
            yield from self._end(self.first, chance.choice(["all", "all", "all", "Python", "JVM", "planner"]))
            self.counts["driver kills"] += 1
            yield chance.uniform(0, 6) * self._extent.pace
        yield from self._live(self.first)
        self._busy -= 1

    def _second_query(self) -> Doing:
        """Have another query join and leave."""
        chance = self._chance("second")
        for _ in range(self._extent.queries):
            yield from self._pause(chance, 2, 15)
            yield from self._live(self.second)
            self.counts["joins of the second query"] += 1
            yield from self._get_on(self.second)
            yield from self._any_time(self.second, chance, 0, 30)
            if not self._busy:
                return
            if chance.random() < 0.3:
                yield from self._end(self.second, "all")
                self.counts["kills of the second query"] += 1
            else:
                self.tell("second: SIGTERM")
                assert self.second.pid is not None
                os.kill(self.second.pid, signal.SIGTERM)
                yield from self._until_gone(self.second)
        if self._extent.queries:
            yield from self._live(self.second)

    def _live(self, driver: Driver) -> Doing:
        if not driver.is_running:
            yield from self._until_gone(driver)
            self.tell(f"{driver.name}: starts")
            driver.start()

    def _any_time(self, driver: Driver, chance: random.Random, least: float, most: float) -> Doing:
        """Wait a random time, and start the driver again should it end by itself."""
        for pause in self._pause(chance, least, most):
            yield pause
            if not driver.is_running:
                yield from self._revive(driver)

    def _get_on(self, driver: Driver) -> Doing:
        """Wait until the driver has done a batch since it was started."""
        batches = len(driver.seen)
        while len(driver.seen) == batches:
            yield from until(
                lambda: len(driver.seen) > batches or not driver.is_running,
                5 * START,  # two Sparks and all the servers on two cores, and others beside them
                lambda: f"a batch of {driver.name}; {driver.output}",
            )
            if not driver.is_running:
                yield from self._revive(driver)

    def _revive(self, driver: Driver) -> Doing:
        self.tell(f"{driver.name}: ended by itself")
        self.died.append(f"{driver.name} ended by itself: {driver.output}")
        yield from self._live(driver)

    def _end(self, driver: Driver, how: str) -> Doing:
        yield from self._live(driver)
        killed = driver.end(how)
        self.counts[f"of it {killed}"] += driver is self.first
        self.tell(f"{driver.name}: {killed} killed")
        yield from self._until_gone(driver)

    def _until_gone(self, driver: Driver) -> Doing:
        """Wait until all of its processes have ended: two drivers must not use one checkpoint."""

        def is_gone() -> bool:
            return not driver.is_running and not driver.processes

        yield from until(
            is_gone, 60, lambda: f"{driver.name} ends: {[p.cmdline()[-3:] for p in driver.processes]}; {driver.output}"
        )

    # ---- workers ----

    def _workers(self) -> Doing:
        """Kill processes that run tasks, most of them while they read from a broker."""
        chance = self._chance("workers")
        for _ in range(self._extent.worker_kills):
            yield from self._pause(chance, 1, 20)
            wants_reader = chance.random() < 0.7
            deadline = time.monotonic() + 4 * START
            workers: list[psutil.Process] = []
            looked_at = 0.0
            while True:
                now = time.monotonic()
                assert now < deadline, "no driver has a worker"
                if now > looked_at + 0.5:
                    workers = [w for driver in (self.first, self.second) for w in driver.workers()]
                    looked_at = now
                reading = [w for w in workers if _reads(w, self._ports)]
                victims = reading if wants_reader and now < deadline - 2 * START else workers
                if victims:
                    victim = chance.choice(victims)
                    try:
                        victim.kill()
                        break
                    except psutil.NoSuchProcess:
                        pass
                yield 0.01 if workers else 0.2
            self.counts["worker kills"] += 1
            self.counts["of workers that read"] += victim in reading
            self.tell(f"a worker killed{', which read' * (victim in reading)}")
        self._busy -= 1

    @property
    def _ports(self) -> list[int]:
        return [broker.endpoint.port for broker in self._cluster.brokers]

    # ---- servers ----

    def _servers(self) -> Doing:
        """Restart ZooKeeper or a broker, or freeze it for a moment, one at a time."""
        chance = self._chance("servers")
        zookeeper, brokers = self._cluster.zookeeper, self._cluster.brokers
        for _ in range(self._extent.bounces):
            yield from self._pause(chance, 3, 15)
            if not self._busy:
                return
            server = chance.choice([zookeeper, zookeeper, *brokers])
            how = chance.choice(["kill", "stop", "pause"])
            self.counts[f"{'ZooKeeper' if server is zookeeper else 'broker'} {how}s"] += 1
            self.tell(f"{server.name}: {how}")
            if how == "pause":
                server.pause()
                yield chance.uniform(0.5, 5)
                server.resume()
            else:
                os.kill(server.pid or 0, signal.SIGKILL if how == "kill" else signal.SIGTERM)
                yield from until(lambda: not server.is_running, 60, lambda: f"{server.name} ends; {server.log_end()}")
                yield chance.uniform(0, 3)
                yield from self._bring_back(server)
            written = self._load.written + 100
            yield from until(lambda: self._load.written > written, 120, lambda: f"{server.name} serves again")
            self.tell(f"{server.name}: serves again")

    def _bring_back(self, server: Broker | ZooKeeperServer) -> Doing:
        if isinstance(server, Broker):
            yield from until(lambda: self._is_forgotten(server), 30, lambda: f"the session of {server.name} ends")
        port = server.endpoint.port if isinstance(server, Broker) else server.port
        server.start(wait=False)
        yield from until(
            lambda: server.is_running and is_listening(port), 60, lambda: f"{server.name} is back; {server.log_end()}"
        )

    def _is_forgotten(self, broker: Broker) -> bool:
        try:
            return self._zk.exists(f"/brokers/ids/{broker.node}") is None
        except KazooException:
            return False

    # ---- JVM ----

    def _neighbours(self) -> Doing:
        """Have a JVM's old consumer join and leave."""
        chance, topic = self._chance("neighbours"), self._load.partitions[0].topic
        for _ in range(self._extent.neighbours):
            if not self._busy:
                return
            name = f"jvm-{len(self.neighbours)}"
            one = jvm_consumer(name, self._folder, {**self._neighbour, "consumer.id": name}, topic)
            self.neighbours.append(one)
            one.start()
            self.counts["joins of a JVM"] += 1
            self.tell(f"{name}: joins")
            deadline = time.monotonic() + 20
            while not one.output.stat().st_size and time.monotonic() < deadline:
                yield 0.1
            self.counts["of JVMs that read nothing in 20 s"] += not one.output.stat().st_size
            yield from self._pause(chance, 2, 25)
            self.counts["of JVMs that gave up"] += not one.is_running
            if one.pid is not None:
                self.tell(f"{name}: SIGTERM")
                os.kill(one.pid, signal.SIGTERM)
            yield from until(lambda: not one.is_running, 60, lambda: f"{name} ends; {one.log_end()}")
            yield from self._pause(chance, 2, 12)
