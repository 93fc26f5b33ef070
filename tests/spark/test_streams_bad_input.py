"""Applications with bad input or a cluster that lacks something: errors name it, and a restart continues."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from helpers.aliases import Cluster, Topics
from helpers.teardown import started
from helpers.waiting import wait_for
from kazoo.client import KazooClient

from zkconsumer.devcluster import Admin
from zkconsumer.devcluster.load import batch
from zkconsumer.errors import ConfigurationError, StreamsError, TopologyError
from zkconsumer.message import TopicPartition
from zkconsumer.spark.compat import VERSION
from zkconsumer.spark.streams.app import StreamsApp
from zkconsumer.topology import ApplicationState, Topology

from .queries import delete_records
from .standalone_cluster import StandaloneCluster, executor_conf
from .streams_output import Output
from .streams_process import Driver

sys.path.append(str(Path(__file__).parent / "on_path"))

topologies: Any = importlib.import_module("streams_topologies")
ticking: Callable[[str, str], Topology] = topologies.ticking

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

#: Maximum seconds for a start with its first batches.
START_S = 90.0

#: Modules and packages of the extra.
PACKAGES = pytest.mark.parametrize(
    ("module", "package"), [("google.protobuf", "protobuf"), ("confluent_kafka", "confluent-kafka")]
)

Apps = Callable[..., StreamsApp]
Outputs = Callable[[str], Output]


def write(admin: Admin, topic: str, *values: bytes, partition: int = 0) -> None:
    admin.produce(TopicPartition(topic, partition), batch(values, timestamp_ms=1_000))


def run_to_end(app: StreamsApp) -> None:
    """Run an application with ``available_now``."""
    app.start()
    assert app.wait(START_S)


def counts_of(output: Output) -> list[str]:
    """Return the counts in the output, without totals and ticks."""
    return [record.value.decode() for record in output.fetch() if b" = " in record.value]


def wait_for_counts(output: Output, *expected: str) -> None:
    wait_for(
        lambda: counts_of(output)[-len(expected) :] == list(expected), START_S, what=f"output ends with {expected}"
    )


def list_state(checkpoint: Path) -> list[str]:
    """Return the committed batches of a checkpoint and the files of its state."""
    folders = checkpoint / "commits", checkpoint / "state"
    return sorted(str(file.relative_to(checkpoint)) for folder in folders for file in folder.rglob("*"))


def start_and_fail(app: StreamsApp, match: str) -> None:
    """Start an application, which must end with an error within a minute."""

    def run() -> None:
        app.start()
        app.wait(60)

    with pytest.raises(StreamsError, match=match):
        run()
    assert app.state is ApplicationState.ERROR


@contextlib.contextmanager
def mounted(folder: Path, size: str) -> Iterator[None]:
    """Mount a small file system in memory."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("file systems cannot be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(path: Path) -> None:
    """Write a file until its disk is full."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4_096))


@pytest.fixture
def run_driver(
    zkconsumer_cluster: Cluster, group: str, folder: Path, checkpoint: Path
) -> Iterator[Callable[..., tuple[int, str]]]:
    """Run ``ticking`` in a process until its first error or its end, and return the exit code and the log."""
    numbers = itertools.count()

    def run(source: str, sink: str, **settings: Any) -> tuple[int, str]:
        wanted = {
            "topology": "ticking",
            "source": source,
            "sink": sink,
            "group": group,
            "checkpoint": str(checkpoint),
            "properties": {"bootstrap.servers": zkconsumer_cluster.bootstrap_servers},
            "max_restarts": 0,
            **settings,
        }
        driver = start(folder / f"driver-{next(numbers)}", wanted)
        return driver.wait(150), driver.log

    with started(Driver, Driver.kill) as start:
        yield run


# ---- known failures of other libraries ---------------------------------------------------------------------


def test_idle_topic_punctuates(app: Apps, topic: Topics, output_of: Outputs) -> None:
    source, sink = topic(3), topic(1)
    output = output_of(sink)
    app(ticking(source, sink), has_zookeeper=False).start()
    wait_for(partial(output.has_all, 9), START_S, what="three ticks of three tasks")
    for task in (b"0_0", b"0_1", b"0_2"):
        records = [record for record in output.records if record.key == task]
        assert [record.value for record in records[:3]] == [b"tick 1: 0", b"tick 2: 0", b"tick 3: 0"]
        first, second, third = (record.timestamp_ms for record in records[:3])
        assert first < second < third


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_restart_with_idle_source_continues(
    app: Apps, topic: Topics, admin: Admin, output_of: Outputs, guarantee: str
) -> None:
    first, idle, sink = topic(1), topic(1), topic(1)
    output = output_of(sink)
    topology = topologies.ticking_with_two_sources(first, idle, sink)
    for number in (1, 2, 3):
        write(admin, first, b"a")
        running = app(topology, processing_guarantee=guarantee, has_zookeeper=False)
        running.start()
        wait_for_counts(output, *(f"a = {count}" for count in range(1, number + 1)))
        assert running.close()
    write(admin, idle, b"a")
    app(topology, processing_guarantee=guarantee, has_zookeeper=False).start()
    wait_for_counts(output, "a = 1", "a = 2", "a = 3", "a = 4")


@pytest.mark.parametrize("has_zookeeper", [True, False], ids=["zookeeper", "kafka"])
def test_deleted_records_end_application_and_keep_state(
    app: Apps,
    topic: Topics,
    admin: Admin,
    zkconsumer_cluster: Cluster,
    output_of: Outputs,
    checkpoint: Path,
    has_zookeeper: bool,
) -> None:
    source, sink = topic(2), topic(1)
    output, topology = output_of(sink), ticking(source, sink)
    make = partial(app, topology, has_zookeeper=has_zookeeper, available_now=True)
    write(admin, source, b"a", b"b")
    run_to_end(make())
    before = list_state(checkpoint)
    write(admin, source, b"a", b"a", b"a", b"b")
    delete_records(zkconsumer_cluster, TopicPartition(source, 0), 4)

    for _ in range(2):
        start_and_fail(make(), rf"START_OFFSET_RESET\].*{source}.*to read is 2, but the log start offset is 4")
        assert list_state(checkpoint) == before
    run_to_end(make(properties={"failOnDataLoss": "false"}))
    assert counts_of(output) == ["a = 1", "b = 1", "a = 2", "b = 2"]


# ---- bad input ---------------------------------------------------------------------------------------------


def test_deleted_topic_ends_application(
    app: Apps, topic: Topics, admin: Admin, zkconsumer_cluster: Cluster, zk: KazooClient, output_of: Outputs
) -> None:
    source, sink = topic(1), topic(1)
    output = output_of(sink)
    write(admin, source, b"a")
    running = app(ticking(source, sink))
    running.start()
    wait_for_counts(output, "a = 1")
    admin.delete_topic(source)
    with pytest.raises(StreamsError, match=f"topic '{source}' was deleted"):
        running.wait(60)

    missing = app(ticking(source, sink))
    with pytest.raises(TopologyError, match=f"source topics do not exist: {source}"):
        missing.start()
    admin.create_topic(source, 1)
    write(admin, source, b"a", b"a")
    start_and_fail(app(ticking(source, sink)), f"topic '{source}' was deleted and re-created")
    app(ticking(source, sink), properties={"failOnDataLoss": "false"}).start()
    wait_for_counts(output, "a = 1", "a = 2", "a = 3")


def test_checkpoints_of_others_are_rejected(
    app: Apps, topic: Topics, admin: Admin, spark: Any, output_of: Outputs, folder: Path, checkpoint: Path
) -> None:
    source, sink = topic(1), topic(1)
    output, make = output_of(sink), partial(app, has_zookeeper=False, available_now=True)
    write(admin, source, b"a")
    run_to_end(make(ticking(source, sink)))
    before = list_state(checkpoint)

    start_and_fail(make(ticking(source, sink), group="another"), "belongs to application '.*', but .* is 'another'")
    start_and_fail(make(ticking(source, topic(1))), "was written with a different topology")
    assert list_state(checkpoint) == before
    write(admin, source, b"a")
    run_to_end(make(ticking(source, sink)))
    assert counts_of(output) == ["a = 1", "a = 2"]

    rates = spark.readStream.format("rate").load().writeStream.format("noop")
    query = rates.option("checkpointLocation", str(folder / "rates")).start()
    wait_for(lambda: query.lastProgress is not None, START_S, what="the query has a batch")
    query.stop()
    start_and_fail(
        make(ticking(source, sink), group="another", checkpoint=folder / "rates"), "was written by another query"
    )


def test_supplier_that_cannot_be_pickled_is_named(app: Apps, topic: Topics, admin: Admin, output_of: Outputs) -> None:
    source, sink = topic(1), topic(1)
    output = output_of(sink)
    write(admin, source, b"a")
    with pytest.raises(TopologyError, match="processor 'locked' cannot be pickled for the workers: cannot pickle"):
        app(topologies.ticking_without_pickle(source, sink), has_zookeeper=False).start()
    run_to_end(app(ticking(source, sink), has_zookeeper=False, available_now=True))
    assert counts_of(output) == ["a = 1"]


@PACKAGES
def test_missing_package_is_named(
    app: Apps,
    topic: Topics,
    admin: Admin,
    output_of: Outputs,
    monkeypatch: pytest.MonkeyPatch,
    module: str,
    package: str,
) -> None:
    source, sink = topic(1), topic(1)
    output, make = output_of(sink), partial(app, has_zookeeper=False, available_now=True)
    write(admin, source, b"a")
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, module, None)
        with pytest.raises(ConfigurationError, match=rf"requires {module} .*pip install .*'{package}"):
            make(ticking(source, sink)).start()
    run_to_end(make(ticking(source, sink)))
    assert counts_of(output) == ["a = 1"]


def hide_module(folder: Path, module: str) -> str:
    """Return a path of Python packages with which a module cannot be imported."""
    lines = [
        "import sys",
        "class Hider:",
        "    def find_spec(self, name, path=None, target=None):",
        f"        if name == {module!r}:",
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)",
        "sys.meta_path.insert(0, Hider())",
    ]
    (folder / "sitecustomize.py").write_text("\n".join(lines))
    return os.pathsep.join([str(folder), executor_conf()["spark.executorEnv.PYTHONPATH"]])


@pytest.mark.parametrize("place", ["driver", "worker"])
@PACKAGES
def test_package_missing_for_spark_is_named(
    topic: Topics,
    admin: Admin,
    run_driver: Callable[..., tuple[int, str]],
    folder: Path,
    place: str,
    module: str,
    package: str,
) -> None:
    source, path = topic(1), hide_module(folder, module)
    write(admin, source, b"a")
    run = partial(run_driver, source, topic(1), query={"available_now": True})
    missing = rf"ConfigurationError: .*requires {module} .* on host .*install .*'{package}"
    if place == "driver":  # in the Python that Spark starts
        code, log = run(conf={"spark.executorEnv.PYTHONPATH": path})
    else:
        with contextlib.ExitStack() as stack:
            cluster = StandaloneCluster(folder, stack)
            cluster.add_worker("without", 1, python_path=path)
            code, log = run(master=cluster.master, conf={"spark.executor.memory": "512m"})
            output = cluster.executor_output
        if VERSION == (4, 2) and module == "google.protobuf":
            # Spark 4.2 ends the executor if a worker fails before it connects to the state server, and loses the error.
            assert re.search(missing, output), output
            missing = "Missing an output location for shuffle"
    assert code == 1, log
    assert re.search(f"StreamsError: .*{missing}", log), log


def test_second_application_with_same_id_is_detected(
    app: Apps,
    topic: Topics,
    admin: Admin,
    output_of: Outputs,
    run_driver: Callable[..., tuple[int, str]],
    folder: Path,
    checkpoint: Path,
) -> None:
    source, sink = topic(1), topic(1)
    output = output_of(sink)
    make = partial(app, ticking(source, sink), has_zookeeper=False, processing_guarantee="exactly_once_v2")
    write(admin, source, b"a")
    run_to_end(make(available_now=True))
    start_and_fail(make(checkpoint=folder / "new"), "has no batches, but group .* has already committed offset 1")

    shutil.copytree(checkpoint, folder / "copy")
    first = make()
    first.start()
    write(admin, source, b"a")
    wait_for_counts(output, "a = 1", "a = 2")
    start_and_fail(make(checkpoint=checkpoint), f"uses checkpoint {checkpoint} or a copy of it")
    start_and_fail(make(checkpoint=folder / "copy"), "but this query is in batch .*: another application uses a copy")
    code, log = run_driver(
        source, sink, checkpoint=str(folder / "copy"), query={"processing_guarantee": "exactly_once_v2"}
    )
    assert code == 1
    error = "StreamsError: .*group .*: batch .* committed offset .*: another application uses a copy"
    assert re.search(error, log), log
    write(admin, source, b"a")
    wait_for_counts(output, "a = 1", "a = 2", "a = 3")
    assert first.state is ApplicationState.RUNNING


def test_driver_of_failed_application_ends(
    topic: Topics, admin: Admin, run_driver: Callable[..., tuple[int, str]]
) -> None:
    source, sink = topic(1), topic(1)
    write(admin, source, b"fail")
    code, log = run_driver(source, sink, topology="counting")
    assert code == 1
    assert "StreamsError: application" in log
    assert "ValueError: planned" in log


def test_checkpoint_path_that_is_a_file_is_named(app: Apps, topic: Topics, folder: Path) -> None:
    place = folder / "file"
    place.write_text("content")
    start_and_fail(app(ticking(topic(1), topic(1)), has_zookeeper=False, checkpoint=place / "checkpoint"), str(place))
    assert place.read_text() == "content"


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_full_disk_ends_application_and_keeps_state(
    app: Apps, topic: Topics, admin: Admin, output_of: Outputs, folder: Path, guarantee: str
) -> None:
    source, sink = topic(1), topic(1)
    output, disk = output_of(sink), folder / "disk"
    make = partial(app, ticking(source, sink), has_zookeeper=False, processing_guarantee=guarantee)
    with mounted(disk, "4m"):
        make = partial(make, checkpoint=disk / "checkpoint")
        running = make()
        running.start()
        write(admin, source, b"a")
        wait_for_counts(output, "a = 1")
        fill(disk / "ballast")
        write(admin, source, b"a")
        error = f"No space left on device.* checkpoint {disk / 'checkpoint'} is on storage that .* is not full"
        with pytest.raises(StreamsError, match=error):
            running.wait(START_S)
        start_and_fail(make(), error)

        (disk / "ballast").unlink()
        write(admin, source, b"a")
        run_to_end(make(available_now=True))
    assert sorted(set(counts_of(output))) == ["a = 1", "a = 2", "a = 3"]
    assert guarantee == "at_least_once" or len(counts_of(output)) == 3


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("mount", "error"),
    [
        ("size=64m", "file .*/checkpoint/zkconsumer-streams.json does not exist on worker"),
        ("size=64m,ro", "CANNOT_LOAD_STATE_STORE.* check that checkpoint .*/checkpoint is on storage that the driver"),
    ],
    ids=["another_directory", "read_only"],
)
def test_checkpoint_that_workers_cannot_reach_is_named(
    topic: Topics,
    admin: Admin,
    output_of: Outputs,
    run_driver: Callable[..., tuple[int, str]],
    folder: Path,
    checkpoint: Path,
    mount: str,
    error: str,
) -> None:
    source, sink = topic(1), topic(1)
    output = output_of(sink)
    run = partial(run_driver, source, sink, conf=executor_conf(), query={"available_now": True})
    write(admin, source, b"a")
    checkpoint.mkdir()
    with mounted(folder / "probe", "1m"):
        pass

    with contextlib.ExitStack() as stack:
        cluster = StandaloneCluster(folder, stack)
        cluster.add_worker("without", 1, checkpoint, mount)
        code, log = run(master=cluster.master)
        assert code == 1, log
        assert re.search(f"StreamsError: application .* failed: .*{error}", log), log
        cluster.workers["without"].kill()
        cluster.add_worker("with", 1)
        assert run(master=cluster.master)[0] == 0
    assert counts_of(output) == ["a = 1"]
