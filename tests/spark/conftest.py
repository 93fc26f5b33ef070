"""One Spark for all tests here, and queries in it that end with their test."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from support import Load, wait_for

from zkconsumer import ConsumerConfig
from zkconsumer.devcluster import DevCluster, ExistingCluster

from .neighbours import Plain
from .queries import Batch, Gate, Query, runners
from .session import start_spark, stop_spark

Cluster = DevCluster | ExistingCluster


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A session with two cores; its JVM ends with the last test."""
    with tempfile.TemporaryDirectory(prefix="zkconsumer-spark-", ignore_cleanup_errors=True) as folder:
        session = start_spark(Path(folder))
        yield session
        stop_spark(session)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder of the test's own."""
    made = Path(tempfile.mkdtemp(prefix="zkconsumer-test-"))
    yield made
    shutil.rmtree(made)


@pytest.fixture
def checkpoint(folder: Path) -> Path:
    """Where the test's queries keep their offsets."""
    return folder / "checkpoint"


@pytest.fixture(autouse=True)
def no_thread_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """As for all tests; but py4j keeps the threads in which the JVM calls back."""
    before = set(threading.enumerate())
    yield
    wait_for(
        lambda: (
            not [thread.name for thread in threading.enumerate() if thread not in before and not _is_sparks(thread)]
        ),
        5,
        what="threads that the test has started end",
    )


def _is_sparks(thread: threading.Thread) -> bool:
    target = getattr(getattr(thread, "_target", None), "__self__", thread)
    return type(target).__module__.partition(".")[0] in ("py4j", "pyspark")


@pytest.fixture
def options(zkconsumer_cluster: Cluster, group: str) -> Callable[..., dict[str, str]]:
    """Make options of a query in the test's group: ``options("topic", includeHeaders="true")``."""

    def make(topic: str, **settings: object) -> dict[str, str]:
        wanted = {
            **zkconsumer_cluster.consumer_properties,
            "group.id": group,
            "subscribe": topic,
            "auto.offset.reset": "smallest",
            "zookeeper.sync.time.ms": "200",
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        return {name: str(value) for name, value in wanted.items() if value is not None}

    return make


@pytest.fixture
def query(spark: Any, options: Callable[..., dict[str, str]], checkpoint: Path) -> Iterator[Callable[..., Query]]:
    """Start queries: ``query("topic", on_batch=..., trigger=..., handover_timeout_ms=1000)``.

    They keep one checkpoint, and are stopped after the test.
    """
    started: list[Query] = []

    def start(
        topic: str,
        *,
        before: Callable[[int], object] | None = None,
        on_batch: Callable[[Batch], object] | None = None,
        trigger: dict[str, Any] | None = None,
        checkpoint: Path = checkpoint,
        **settings: object,
    ) -> Query:
        frame = spark.readStream.format("zkconsumer").options(**options(topic, **settings)).load()
        started.append(Query(frame, checkpoint, before=before, on_batch=on_batch, trigger=trigger))
        return started[-1]

    yield start
    for one in started:
        one.stop()
    wait_for(lambda: not runners(os.getpid()), what="the processes that plan have ended")


@pytest.fixture
def runner_pid(spark: Any) -> Callable[[], int]:
    """Return the id of the process that plans for the one query that runs."""

    def find() -> int:
        [runner] = runners(os.getpid())
        return int(runner.pid)

    return find


@pytest.fixture
def load(zkconsumer_cluster: Cluster) -> Iterator[Callable[..., Load]]:
    """Write into topics all the time: ``load(topic, partitions=4)``."""
    started: list[Load] = []

    def start(topic: str, partitions: int, **settings: int) -> Load:
        started.append(Load(zkconsumer_cluster, topic, partitions, **settings))
        return started[-1]

    yield start
    for one in started:
        one.stop()


@pytest.fixture
def plain(config: Callable[..., ConsumerConfig]) -> Iterator[Callable[..., Plain]]:
    """Start plain consumers of the test's group: ``plain("topic", auto_commit_interval_ms=100)``."""
    started: list[Plain] = []

    def start(topic: str, **settings: object) -> Plain:
        started.append(Plain(config(**settings), {topic: 1}))
        return started[-1]

    yield start
    for one in started:
        one.leave()


@pytest.fixture
def store(zk: KazooClient, group: str) -> Callable[..., None]:
    """Write offsets of the test's group, as an operator would: ``store("topic", {0: 42})``."""

    def write(topic: str, offsets: dict[int, int]) -> None:
        for partition, offset in offsets.items():
            path = f"/consumers/{group}/offsets/{topic}/{partition}"
            zk.ensure_path(path)
            zk.set(path, b"%d" % offset)

    return write


@pytest.fixture
def gate(query: Callable[..., Query]) -> Iterator[Gate]:
    """A gate that is opened, at the latest, before queries are stopped."""
    made = Gate()
    yield made
    made.open()
