"""Applications whose processes are killed: each record is counted once, and the output is complete."""

from __future__ import annotations

import functools
import importlib
import itertools
import os
import random
import secrets
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from helpers.aliases import Cluster, Topics
from helpers.teardown import started
from helpers.waiting import wait_for

from zkconsumer.spark.streams.output import SEQUENCE_HEADER
from zkconsumer.topology import Topology

from .standalone_cluster import StandaloneCluster, executor_conf
from .streams_feed import Feed
from .streams_kills import KilledApplication
from .streams_output import Output
from .streams_process import Driver, kill_one
from .streams_replay import TopicReader

sys.path.append(str(Path(__file__).parent / "on_path"))

ticking: Callable[[str, str], Topology] = importlib.import_module("streams_topologies").ticking

PARTITIONS = 3

#: Without ZooKeeper, an application that was killed can be started again at once.
GUARANTEES = [
    pytest.param("at_least_once", True, id="at_least_once"),
    pytest.param("exactly_once_v2", False, id="exactly_once"),
]

pytestmark = pytest.mark.slow


@pytest.fixture
def rng() -> random.Random:
    """Random numbers, whose seed is printed."""
    seed = int(os.environ.get("KILLS_SEED", secrets.randbits(32)))
    print(f"KILLS_SEED={seed}")
    return random.Random(seed)


@pytest.fixture
def killed_application(
    zkconsumer_cluster: Cluster,
    topic: Topics,
    group: str,
    folder: Path,
    checkpoint: Path,
    rng: random.Random,
) -> Iterator[Callable[..., KilledApplication]]:
    """Start an application that is to be killed: ``killed_application("exactly_once_v2", has_zookeeper=False)``."""
    numbers = itertools.count()

    def start_driver(settings: dict[str, Any]) -> Driver:
        return drivers(folder / f"driver-{next(numbers)}", settings)

    def make(guarantee: str, *, has_zookeeper: bool, **settings: Any) -> KilledApplication:
        source, sink = topic(PARTITIONS), topic(1)
        properties = {"bootstrap.servers": zkconsumer_cluster.bootstrap_servers}
        if has_zookeeper:
            properties = {**zkconsumer_cluster.consumer_properties, "zookeeper.session.timeout.ms": "4000"}
        wanted = {
            "source": source,
            "sink": sink,
            "group": group,
            "checkpoint": str(checkpoint),
            "properties": properties,
            "query": {"processing_guarantee": guarantee},
            **settings,
        }
        output = outputs(zkconsumer_cluster, sink)
        topology = ticking(source, sink)
        return KilledApplication(zkconsumer_cluster, topology, output, wanted, PARTITIONS, start_driver, rng)

    with (
        started(Output, Output.close) as outputs,
        started(Driver, Driver.kill) as drivers,
        started(make, KilledApplication.close) as start,
    ):
        yield start


@pytest.mark.timeout(2_400)
@pytest.mark.parametrize(("guarantee", "has_zookeeper"), GUARANTEES)
def test_local_application_survives_kills(
    killed_application: Callable[..., KilledApplication],
    rng: random.Random,
    spark: Any,
    guarantee: str,
    has_zookeeper: bool,
) -> None:
    count = int(os.environ.get("KILLS", "10"))
    kinds = ["driver"] * (2 * count) + ["python worker"] * count
    rng.shuffle(kinds)
    running = killed_application(guarantee, has_zookeeper=has_zookeeper)
    for kind in kinds:
        running.wait_for_moment()
        if kind == "driver":
            running.kill_driver()
        else:
            killed = wait_for(lambda: kill_one(running.driver.list_workers, rng), 60, what="a worker is killed")
            running.count(kind)
            print(killed)
    running.finish()
    running.check(spark)


@pytest.mark.timeout(2_400)
@pytest.mark.parametrize(("guarantee", "has_zookeeper"), GUARANTEES)
def test_application_on_standalone_cluster_survives_kills(
    killed_application: Callable[..., KilledApplication],
    rng: random.Random,
    spark: Any,
    folder: Path,
    guarantee: str,
    has_zookeeper: bool,
) -> None:
    count = int(os.environ.get("KILLS", "5"))
    kinds = [kind for kind in ("driver", "executor", "python worker", "worker") for _ in range(count)]
    rng.shuffle(kinds)
    with ExitStack() as stack:
        cluster = StandaloneCluster(folder, stack)
        names = "first", "second"
        for name in names:
            cluster.add_worker(name, 1)
        running = killed_application(
            guarantee, has_zookeeper=has_zookeeper, master=cluster.master, conf=executor_conf()
        )
        for kind in kinds:
            running.wait_for_moment()
            if kind == "driver":
                running.kill_driver()
                continue
            if kind == "worker":
                name = rng.choice(names)
                cluster.workers[name].kill()
                time.sleep(rng.random() * 4)
                cluster.add_worker(name, 1)
            else:
                find = cluster.executors if kind == "executor" else cluster.python_workers
                wait_for(functools.partial(kill_one, find, rng), 60, what=f"an {kind} is killed")
            running.count(kind)
        running.finish()
    running.check(spark)


@pytest.mark.timeout(900)
def test_keyless_output_is_complete_without_repeated_records(
    zkconsumer_cluster: Cluster, topic: Topics, group: str, folder: Path, checkpoint: Path, rng: random.Random
) -> None:
    """A reader can discard repeated records by sequence number, because they are written to the original partition."""
    source, sink = topic(PARTITIONS), topic(4)
    settings: dict[str, Any] = {
        "topology": "copying",
        "source": source,
        "sink": sink,
        "group": group,
        "checkpoint": str(checkpoint),
        "properties": {"bootstrap.servers": zkconsumer_cluster.bootstrap_servers},
    }

    def count_written() -> int:
        return sum(len(found) for (name, _), found in reader.records.items() if name == sink)

    def has_new(known: int) -> bool:
        driver.check_running()
        return count_written() > known

    with started(Driver, Driver.kill) as drivers, started(TopicReader, TopicReader.close) as readers:
        reader = readers(zkconsumer_cluster, {source: PARTITIONS, sink: 4})
        driver, feed = drivers(folder / "driver-0", settings), Feed(zkconsumer_cluster, source, PARTITIONS, rng)
        try:
            for number in range(1, int(os.environ.get("KILLS", "5")) + 1):
                wait_for(functools.partial(has_new, count_written()), 150, what="the application writes records")
                time.sleep(rng.choice((0, 0, rng.random())))
                driver.kill()
                driver = drivers(folder / f"driver-{number}", settings)
        finally:
            feed.stop()
        driver.kill()
        driver = drivers(folder / "last", {**settings, "query": {"available_now": True}})
        assert driver.wait(200) == 0, driver.log
        reader.finish()

    records = {name: Counter[Any]() for name in (source, sink)}
    repeated = 0
    for (name, _), found in reader.records.items():
        highest: dict[bytes, int] = {}
        for record in found:
            header = dict(record.headers).get(SEQUENCE_HEADER)
            if header is not None:
                prefix, _, text = header.rpartition(b":")
                if int(text) <= highest.get(prefix, -1):
                    repeated += 1
                    continue
                highest[prefix] = int(text)
            records[name][record.value, record.timestamp] += 1
    print(f"{records[source].total()} records, {repeated} repeated outputs")
    assert records[sink] == records[source]
