"""Drivers are killed during a batch: it is replayed with the same records, and none are lost or repeated after it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from helpers.aliases import Cluster, Topics
from helpers.processes import list_session
from helpers.producing import Load, numbers, produce
from helpers.teardown import started
from helpers.topics import end_offsets
from helpers.waiting import TIMEOUT_S, wait_for, wait_until_equal
from helpers.znodes import members, owners, stored
from kazoo.client import KazooClient

from .neighbours import Plain
from .queries import ALL_AVAILABLE, START, Batch, Query, Spans, check_union, kill, planned, repetitions, runners

pytestmark = pytest.mark.timeout(300)

Queries = Callable[..., Query]
Stores = Callable[..., None]


class Driver:
    """A Spark driver process that runs one query and blocks in one of its batches; see ``driver.py``."""

    def __init__(
        self, folder: Path, options: dict[str, str], checkpoint: Path, hold: int, writer: Mapping[str, object]
    ) -> None:
        self._seen, self._holding = folder / "seen", folder / "holding"
        (folder / "spark").mkdir()
        settings = {
            "options": options,
            "folder": str(folder / "spark"),
            "checkpoint": str(checkpoint),
            "seen": str(self._seen),
            "holding": str(self._holding),
            "hold": hold,
            "writer": dict(writer),
        }
        self._output = (folder / "driver.log").open("w+")
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.drivers.query", json.dumps(settings)],
            cwd=Path(__file__).parent.parent,
            env={**os.environ, "TMPDIR": str(folder / "spark")},
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # identifies all processes of the driver
        )

    @property
    def pid(self) -> int:
        """Process id of the driver's Python process."""
        return self._process.pid

    @property
    def processes(self) -> list[psutil.Process]:
        """All processes of the driver: Python, the JVM, planning processes and workers."""
        return list_session(self.pid)

    def batches(self) -> dict[int, Spans]:
        """Return the ranges that each batch read, including the blocked batch."""
        found: dict[int, Spans] = {}
        for line in self._seen.read_text().splitlines() if self._seen.exists() else ():
            number, topic, partition, start, until, count = json.loads(line)
            found.setdefault(number, {})[topic, partition] = (start, until, count)
        return found

    def wait_for(self, condition: Callable[[], object], what: str) -> None:
        """Wait for a condition while the driver runs."""

        def ask() -> object:
            assert self._process.poll() is None, f"the driver terminated:\n{self._log_end()}"
            return condition()

        try:
            wait_for(ask, 2 * START, what=what)
        except AssertionError:
            print(self._log_end())
            raise

    def wait_until_blocked(self) -> None:
        """Wait until the driver blocks in its batch."""
        self.wait_for(self._holding.exists, "the batch")

    def kill(self) -> None:
        """Kill all processes of the driver with SIGKILL."""
        while processes := self.processes:
            kill(processes)
            self._process.wait(TIMEOUT_S)
            psutil.wait_procs(processes, TIMEOUT_S)

    def close(self) -> None:
        """Kill the remaining processes."""
        self.kill()
        self._output.close()

    def _log_end(self) -> str:
        self._output.flush()
        return Path(self._output.name).read_text()[-5000:]


@pytest.fixture
def driver(folder: Path, checkpoint: Path, options: Callable[..., dict[str, str]]) -> Iterator[Callable[..., Driver]]:
    """Start the driver of the test: ``driver("topic", hold=1)``."""

    def make(topic: str, *, hold: int, writer: Mapping[str, object] | None = None, **settings: object) -> Driver:
        own = options(topic, **{"zookeeper_session_timeout_ms": 2000, **settings})
        return Driver(folder, own, checkpoint, hold, writer or {})

    with started(make, Driver.close) as start:
        yield start


def spans(batches: list[Batch]) -> dict[int, Spans]:
    return {batch.number: batch.spans for batch in batches}


def check_offset_log(checkpoint: Path, batches: dict[int, Spans]) -> None:
    """Check that the ranges in the offset log are those that the batches read."""
    for number, ranges in planned(checkpoint).items():
        saw = {partition: (start, until) for partition, (start, until, _) in batches.get(number, {}).items()}
        assert saw == ranges, f"batch {number} differs from the offset log"


@pytest.mark.slow
def test_replay_keeps_ranges(
    zkconsumer_cluster: Cluster,
    driver: Callable[..., Driver],
    query: Queries,
    checkpoint: Path,
    topic: Topics,
    group: str,
    zk: KazooClient,
) -> None:
    name, admin = topic(partitions=3), zkconsumer_cluster.admin
    for number in range(3):
        produce(admin, name, number, numbers(0, 50 + number))
    killed = driver(name, hold=2)
    killed.wait_for(lambda: len(killed.batches()) == 1, "batch 0")
    produce(admin, name, 0, numbers(50, 80))
    killed.wait_for(lambda: len(killed.batches()) == 2, "batch 1")
    wait_until_equal(lambda: stored(zk, group, name), {0: "80", 1: "51", 2: "52"})
    for number in range(2):
        produce(admin, name, number, numbers(0, 100))
    killed.wait_until_blocked()
    assert runners(killed.pid)
    killed.kill()
    before = killed.batches()
    logged = planned(checkpoint)
    assert 2 in before
    assert max(logged) == 2
    produce(admin, name, 2, numbers(0, 33))  # must not be part of the replayed batch

    again = query(name)
    again.wait_for_records(sum(count for _, _, count in before[2].values()) + 33)
    after = spans(again.batches)
    assert after[2] == before[2]
    assert min(after) == 2
    check_offset_log(checkpoint, before | after)
    assert {number: ranges for number, ranges in planned(checkpoint).items() if number in logged} == logged
    check_union((before | after).values(), {(name, 0): (0, 180), (name, 1): (0, 151), (name, 2): (0, 85)})
    wait_until_equal(lambda: stored(zk, group, name), {0: "180", 1: "151", 2: "85"})


@pytest.mark.slow
def test_replay_of_batch_0_ignores_moved_group_offsets(
    zkconsumer_cluster: Cluster,
    driver: Callable[..., Driver],
    query: Queries,
    checkpoint: Path,
    topic: Topics,
    group: str,
    zk: KazooClient,
    store: Stores,
) -> None:
    name, admin = topic(partitions=4), zkconsumer_cluster.admin
    for number in range(4):
        produce(admin, name, number, numbers(0, 100))
    store(name, {0: 20, 1: 30, 3: 40})
    killed = driver(name, hold=0)
    killed.wait_until_blocked()
    killed.kill()
    before = killed.batches()
    assert before == {
        0: {(name, 0): (20, 100, 80), (name, 1): (30, 100, 70), (name, 2): (0, 100, 100), (name, 3): (40, 100, 60)}
    }
    assert stored(zk, group, name) == {0: "20", 1: "30", 2: "0", 3: "40"}
    store(name, {0: 0, 1: 60, 2: 99})  # the start, the middle and the last record of the batch
    zk.delete(f"/consumers/{group}/offsets/{name}/3")
    for number in range(4):
        produce(admin, name, number, numbers(100, 110))

    again = query(name)
    again.wait_for_records(310 + 40)
    after = spans(again.batches)
    assert after[0] == before[0]
    check_offset_log(checkpoint, after)
    starts = {0: 20, 1: 30, 2: 0, 3: 40}
    check_union(after.values(), {(name, number): (start, 110) for number, start in starts.items()})
    wait_until_equal(lambda: stored(zk, group, name), dict.fromkeys(range(4), "110"))


@pytest.mark.slow
def test_killed_driver_python_leaves_group(
    zkconsumer_cluster: Cluster, driver: Callable[..., Driver], topic: Topics, group: str, zk: KazooClient
) -> None:
    name = topic()
    produce(zkconsumer_cluster.admin, name, 0, numbers(0, 10))
    killed = driver(name, hold=1, zookeeper_session_timeout_ms=60_000)
    killed.wait_for(lambda: stored(zk, group, name) == {0: "10"}, "the first batch is stored")
    os.kill(killed.pid, signal.SIGKILL)
    wait_until_equal(lambda: (members(zk, group), owners(zk, group, name)), ([], {}))
    wait_for(lambda: not killed.processes, what="all its processes end")


def test_replay_ignores_new_owner(
    zkconsumer_cluster: Cluster, query: Queries, plain: Callable[..., Plain], topic: Topics, group: str, zk: KazooClient
) -> None:
    name, admin = topic(partitions=2), zkconsumer_cluster.admin
    for number in range(2):
        produce(admin, name, number, numbers(0, 100))

    def refuse(batch: Batch) -> None:
        raise OSError("the sink is full")

    failed = query(name, on_batch=refuse)
    with pytest.raises(Exception, match="the sink is full"):
        failed.finish()
    [batch] = failed.begun
    assert batch.spans == {(name, 0): (0, 100, 100), (name, 1): (0, 100, 100)}
    assert stored(zk, group, name) == {0: "0", 1: "0"}
    other = plain(name, auto_commit_interval_ms=100)
    other.wait_for_messages(200)
    again = query(name, revokeTimeout="1s")
    again.wait_for_records(200)
    assert spans(again.batches) == {0: batch.spans}
    other.leave()
    for number in range(2):
        produce(admin, name, number, numbers(100, 110))
    again.wait_for_records(220)
    check_union([batch.spans for batch in again.batches], {(name, 0): (0, 110), (name, 1): (0, 110)})


@pytest.mark.slow
def test_added_partitions_are_read_after_replay(
    zkconsumer_cluster: Cluster, query: Queries, checkpoint: Path, topic: Topics, group: str, zk: KazooClient
) -> None:
    name, admin, now = topic(partitions=2), zkconsumer_cluster.admin, ALL_AVAILABLE
    for number in range(2):
        produce(admin, name, number, numbers(0, 100))

    def refuse(_batch: Batch) -> None:
        raise OSError("the sink is full")

    failed = query(name, on_batch=refuse, trigger=now, maxOffsetsPerTrigger=150)
    with pytest.raises(Exception, match="the sink is full"):
        failed.finish()
    [first] = failed.begun
    admin.create_partitions(name, 4)
    for number in range(4):
        produce(admin, name, number, numbers(0, 20))

    again = query(name, trigger=now, maxOffsetsPerTrigger=150)
    again.finish()
    after = spans(again.batches)
    assert after[0] == first.spans == {(name, 0): (0, 75, 75), (name, 1): (0, 75, 75)}
    check_offset_log(checkpoint, after)
    ends = {0: 120, 1: 120, 2: 20, 3: 20}
    check_union(after.values(), {(name, number): (0, end) for number, end in ends.items()})
    assert stored(zk, group, name) == {number: str(end) for number, end in ends.items()}


#: Spark writes its logs asynchronously, here for the first batch only, so the group is ahead of the checkpoint.
ASYNC = {"asyncProgressTrackingEnabled": True, "asyncProgressTrackingCheckpointIntervalMs": 3_600_000}


@pytest.mark.slow
@pytest.mark.parametrize("restart", ["checkpoint", "furthest"])
def test_killed_async_progress_query_loses_nothing(
    restart: str,
    zkconsumer_cluster: Cluster,
    driver: Callable[..., Driver],
    query: Queries,
    checkpoint: Path,
    topic: Topics,
    group: str,
    zk: KazooClient,
) -> None:
    name, admin = topic(), zkconsumer_cluster.admin  # with two partitions, one write can become two batches
    overridden = ASYNC | {"_asyncProgressTrackingOverrideSinkSupportCheck": True}
    killed = driver(name, hold=3, writer=overridden)
    for number in range(4):
        produce(admin, name, 0, numbers(0, 10))
        killed.wait_for(lambda: len(killed.batches()) == number + 1, f"batch {number}")
    killed.wait_until_blocked()
    wait_until_equal(lambda: stored(zk, group, name), {0: "30"})
    killed.kill()
    assert planned(checkpoint).keys() == {0}
    wait_until_equal(lambda: members(zk, group), [])  # before that, the killed query is assigned the partition
    again = query(name, trigger={"availableNow": True}, resumeFrom=restart)
    again.finish()
    starts = {"checkpoint": 10, "furthest": 30}
    check_union([batch.spans for batch in again.batches], {(name, 0): (starts[restart], 40)})
    assert stored(zk, group, name) == {0: "40"}


@pytest.mark.slow
@pytest.mark.parametrize("restart", ["checkpoint", "furthest"])
def test_stopped_async_progress_query_loses_nothing(
    restart: str,
    zkconsumer_cluster: Cluster,
    spark: Any,
    options: Callable[..., dict[str, str]],
    load: Callable[..., Load],
    folder: Path,
    checkpoint: Path,
    topic: Topics,
    group: str,
    zk: KazooClient,
) -> None:
    name, notes = topic(partitions=2), folder / "notes"
    notes.mkdir()

    def note(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:  # runs in workers
        for batch in batches:
            fields = zip(batch["partition"].to_pylist(), batch["offset"].to_pylist(), strict=True)
            file = notes / f".{os.urandom(8).hex()}"
            file.write_text(json.dumps(list(fields)))
            file.rename(notes / file.name[1:])  # other processes must not read a part of the file
            yield batch

    def seen() -> Counter[tuple[int, int]]:
        return Counter((p, offset) for file in notes.glob("[!.]*") for p, offset in json.loads(file.read_text()))

    def start() -> Any:
        frame = spark.readStream.format("zkconsumer").options(**options(name, resumeFrom=restart)).load()
        noted = frame.select("partition", "offset").mapInArrow(note, "partition int, offset bigint")
        return noted.writeStream.format("noop").options(**ASYNC, checkpointLocation=str(checkpoint)).start()

    def ahead() -> bool:
        """Return whether the group is ahead of the checkpoint by several batches."""
        assert running.exception() is None
        logged = planned(checkpoint) if (checkpoint / "offsets").exists() else {}
        untils = {p: until for (_, p), (_, until) in logged.get(0, {}).items()}
        group_is_at = stored(zk, group, name)
        return untils.keys() == {0, 1} and all(int(group_is_at[p]) > until + 100 for p, until in untils.items())

    writer = load(name, 2, per_second=500)
    running = start()
    try:
        wait_for(ahead, START, what="the group is ahead")
        running.stop()
        assert max(planned(checkpoint)) == 0
        running = start()
        before = writer.written
        wait_for(lambda: len(seen()) > before, START, what="it goes on")
        writer.stop()
        ends = end_offsets(zkconsumer_cluster, name, 2)
        wait_for(lambda: len(seen()) >= sum(ends.values()), START, what=f"all of {ends}")
    finally:
        running.stop()
    twice = repetitions([seen()], ends)
    if restart == "checkpoint":
        assert twice > 200, "all records after the checkpoint must be read again"
