"""A Spark session for all tests, and fixtures that stop what a test has started."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from helpers.aliases import Cluster
from helpers.producing import Load
from helpers.teardown import started
from helpers.waiting import wait_for
from helpers.znodes import set_offsets
from kazoo.client import KazooClient

from zkconsumer import ConsumerConfig
from zkconsumer.spark.compat import HAS_ADMISSION_CONTROL
from zkconsumer.topology import ApplicationConfig, Topology

from .neighbours import Plain
from .queries import Batch, Gate, Query, is_committing, runners
from .session import start_spark, stop_spark

if TYPE_CHECKING:
    from zkconsumer.spark.streams.app import StreamsApp
    from zkconsumer.spark.streams.changes import AllowedChange

    from .streams_output import Output

#: Tests of topologies, which require Spark 4.2 or later.
collect_ignore_glob = [] if HAS_ADMISSION_CONTROL else ["test_streams_*.py"]


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A Spark session with two cores that is stopped after the last test."""
    with tempfile.TemporaryDirectory(prefix="zkconsumer-spark-", ignore_cleanup_errors=True) as folder:
        session = start_spark(Path(folder))
        yield session
        stop_spark(session)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A temporary folder for one test."""
    made = Path(tempfile.mkdtemp(prefix="zkconsumer-test-"))
    yield made
    shutil.rmtree(made)


@pytest.fixture
def checkpoint(folder: Path) -> Path:
    """Checkpoint folder of the test's queries."""
    return folder / "checkpoint"


@pytest.fixture(autouse=True)
def no_thread_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Check that the test leaves no threads, except those that py4j keeps for callbacks of the JVM."""
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
    """Return options of a query in the test's group: ``options("topic", includeHeaders="true")``."""

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
    """Start queries: ``query("topic", on_batch=..., trigger=..., revokeTimeout="1s")``.

    All queries of a test have the same checkpoint. They are stopped after the test.
    """

    def make(
        topic: str,
        *,
        before: Callable[[int], object] | None = None,
        on_batch: Callable[[Batch], object] | None = None,
        trigger: dict[str, Any] | None = None,
        checkpoint: Path = checkpoint,
        **settings: object,
    ) -> Query:
        frame = spark.readStream.format("zkconsumer").options(**options(topic, **settings)).load()
        return Query(frame, checkpoint, before=before, on_batch=on_batch, trigger=trigger)

    with started(make, Query.stop) as start:
        yield start
    wait_for(lambda: not runners(os.getpid()), what="the planning processes have ended")
    wait_for(lambda: not is_committing(spark), 30, what="the listener has committed the last batches")


@pytest.fixture
def app(spark: Any, zkconsumer_cluster: Cluster, group: str, checkpoint: Path) -> Iterator[Callable[..., StreamsApp]]:
    """Create applications, which are closed after the test.

    ``app(topology, has_zookeeper=False, group="other", checkpoint=..., properties=..., allow=..., trigger_ms=100)``:
    the default group and checkpoint are those of the test.
    """
    from zkconsumer.spark.streams.app import StreamsApp
    from zkconsumer.spark.streams.settings import QuerySettings

    def make(
        topology: Topology,
        *,
        has_zookeeper: bool = True,
        group: str = group,
        checkpoint: Path = checkpoint,
        properties: Mapping[str, str] | None = None,
        config: Mapping[str, Any] | None = None,
        allow: Collection[AllowedChange] = (),
        **settings: Any,
    ) -> StreamsApp:
        of_cluster = {"bootstrap.servers": zkconsumer_cluster.bootstrap_servers}
        if has_zookeeper:
            of_cluster = {**zkconsumer_cluster.consumer_properties, "zookeeper.sync.time.ms": "200"}
        wanted = {**of_cluster, **(properties or {})}
        of_application = ApplicationConfig(application_id=group, **(config or {}))
        of_query = QuerySettings(**settings)
        return StreamsApp(topology, of_application, spark, str(checkpoint), wanted, of_query, allow=allow)

    with started(make, StreamsApp.close) as start:
        yield start


@pytest.fixture
def output_of(zkconsumer_cluster: Cluster) -> Iterator[Callable[[str], Output]]:
    """Read topics."""
    from .streams_output import Output

    with started(partial(Output, zkconsumer_cluster), Output.close) as start:
        yield start


@pytest.fixture
def runner_pid(spark: Any) -> Callable[[], int]:
    """Return the process id of the planning process of the only running query."""

    def find() -> int:
        [runner] = runners(os.getpid())
        return int(runner.pid)

    return find


@pytest.fixture
def load(zkconsumer_cluster: Cluster) -> Iterator[Callable[..., Load]]:
    """Start loads that write to a topic until the test ends: ``load(topic, partitions=4)``."""
    with started(partial(Load, zkconsumer_cluster), Load.stop) as start:
        yield start


@pytest.fixture
def plain(config: Callable[..., ConsumerConfig]) -> Iterator[Callable[..., Plain]]:
    """Start plain consumers of the test's group: ``plain("topic", auto_commit_interval_ms=100)``."""

    def make(topic: str, **settings: object) -> Plain:
        return Plain(config(**settings), {topic: 1})

    with started(make, Plain.leave) as start:
        yield start


@pytest.fixture
def store(zk: KazooClient, group: str) -> Callable[..., None]:
    """Set committed offsets of the test's group in ZooKeeper: ``store("topic", {0: 42})``."""

    return partial(set_offsets, zk, group)


@pytest.fixture
def gate(query: Callable[..., Query]) -> Iterator[Gate]:
    """A gate that is opened after the test, before its queries are stopped."""
    made = Gate()
    yield made
    made.open()
