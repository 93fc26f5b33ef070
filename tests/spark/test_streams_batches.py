"""Batches of applications that must not end too early, or that cannot be finished as planned."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.aliases import Cluster, Topics
from helpers.waiting import wait_for

from zkconsumer.devcluster import Admin
from zkconsumer.devcluster.load import batch
from zkconsumer.errors import StreamsError
from zkconsumer.message import TopicPartition
from zkconsumer.spark.streams.app import StreamsApp
from zkconsumer.spark.streams.changes import AllowedChange
from zkconsumer.spark.streams.cluster import ApplicationCluster
from zkconsumer.spark.streams.markers import Marker
from zkconsumer.topology.handlers import log_and_continue

from .streams_output import Output

sys.path.append(str(Path(__file__).parent / "on_path"))

topologies: Any = importlib.import_module("streams_topologies")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

Apps = Callable[..., StreamsApp]
Outputs = Callable[[str], Output]

#: Maximum seconds for a bounded run.
RUN_S = 400


def test_bounded_run_processes_records_of_punctuator(
    app: Apps, topic: Topics, admin: Admin, output_of: Outputs
) -> None:
    source, middle, sink = topic(1), topic(1), topic(1, config={"max.message.bytes": "5000"})
    output = output_of(sink)
    values, too_large = [b"%d" % number for number in range(5)], b"x" * 10_000
    admin.produce(TopicPartition(source, 0), batch([*values, too_large], timestamp_ms=1_000))
    running = app(
        topologies.buffering(source, middle, sink),
        has_zookeeper=False,
        config={"production_handler": log_and_continue},
        available_now=True,
        partitions=1,
    )
    running.start()
    assert running.wait(RUN_S)
    assert sorted(value for _, value in output.read()) == values
    assert {task: counts["dropped"] for task, counts in running.task_metrics.items() if "dropped" in counts} == {
        "1_0": 1
    }
    assert running.progress is not None
    assert running.progress.dropped == 1


@pytest.mark.parametrize("policy", ["raise", "skip"])
def test_removed_subtopology_does_not_stop_unfinished_batch(
    app: Apps,
    topic: Topics,
    admin: Admin,
    output_of: Outputs,
    caplog: pytest.LogCaptureFixture,
    policy: str,
) -> None:
    source, failing, sink = topic(1), topic(1), topic(1)
    output, properties = output_of(sink), {"corrupt.record.policy": policy}
    for name in (source, failing):
        admin.produce(TopicPartition(name, 0), batch([b"a"], timestamp_ms=1_000))
    first = app(topologies.copying_and_failing(source, failing, sink), has_zookeeper=False, properties=properties)
    first.start()
    with pytest.raises(StreamsError, match="ValueError: planned"):
        first.wait(RUN_S)

    admin.produce(TopicPartition(source, 0), batch([b"b"], timestamp_ms=1_000))
    again = app(
        topologies.copying_and_failing(source, None, sink),
        has_zookeeper=False,
        properties=properties,
        allow=[AllowedChange.REMOVED_SUBTOPOLOGY],
        available_now=True,
    )
    again.start()
    assert again.wait(RUN_S)
    assert sorted({value for _, value in output.read()}) == [b"a", b"b"]


def test_offsets_are_committed_after_batches(
    app: Apps, topic: Topics, admin: Admin, zkconsumer_cluster: Cluster, group: str
) -> None:
    source = topic(2)
    cluster = ApplicationCluster({"bootstrap.servers": zkconsumer_cluster.bootstrap_servers, "group.id": group})
    admin.produce(TopicPartition(source, 1), batch([b"a", b"b"], timestamp_ms=1_000))
    running = app(topologies.counting(source, topic(1)), has_zookeeper=False)
    running.start()
    try:
        with cluster.open() as access:
            coordinator = access.coordinator()
            partition = TopicPartition(source, 1)

            def is_committed() -> bool:
                offset, metadata = coordinator.fetch_offsets_and_metadata([partition])[partition]
                return offset == 2 and Marker.from_metadata(metadata) is not None

            wait_for(is_committed, RUN_S, what="the offset is committed")
            other = Marker("other", 10**6).to_metadata()
            coordinator.commit_offsets({partition: 1}, {partition: other})
        with pytest.raises(StreamsError, match="committed offset 1 .* in query other, so query .* stops in batch"):
            running.wait(RUN_S)
    finally:
        running.close()


def test_running_task_is_named(app: Apps, topic: Topics, admin: Admin) -> None:
    source = topic(2)
    admin.produce(TopicPartition(source, 1), batch([b"a"], timestamp_ms=1_000))
    running = app(topologies.waiting(source), has_zookeeper=False)
    running.start()
    query: Any = running._query

    def find() -> str:
        return str(query.describe_running_tasks()) if query.status.message == "Processing new data" else ""

    def is_named() -> bool:
        return find().startswith("task 0_1 on ")

    wait_for(is_named, RUN_S, what="only the waiting task is running")
    assert query.status.is_active
    assert query.status.last_batch == -1
    assert running.health.is_healthy
    running.close(0)
