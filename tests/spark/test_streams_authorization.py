"""An application without the WRITE permission on its output topic fails, and resumes when it is granted."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.rights import allow_only, authorizing_cluster, find_committed
from kafka.admin import ACLOperation, ResourcePattern, ResourceType

from zkconsumer.devcluster import DevCluster
from zkconsumer.devcluster.load import batch
from zkconsumer.errors import StreamsError
from zkconsumer.message import TopicPartition
from zkconsumer.spark.streams.app import StreamsApp
from zkconsumer.topology.handlers import log_and_continue

from .streams_output import Output

sys.path.append(str(Path(__file__).parent / "on_path"))

topologies: Any = importlib.import_module("streams_topologies")

#: Maximum seconds for a bounded run.
RUN_S = 300

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def authorizing() -> Iterator[DevCluster]:
    with authorizing_cluster(kraft=True) as cluster:
        yield cluster


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_output_is_written_after_permission_is_granted(
    app: Callable[..., StreamsApp],
    authorizing: DevCluster,
    unique: Callable[[str], str],
    group: str,
    guarantee: str,
) -> None:
    source, sink = (authorizing.create_topic(unique(name), 1) for name in ("source", "sink"))
    values, partition = [b"%d" % number for number in range(20)], TopicPartition(source, 0)
    authorizing.admin.produce(partition, batch(values, timestamp_ms=1_000))
    resource = ResourcePattern(ResourceType.TOPIC, sink)
    allow_only(authorizing, resource, [ACLOperation.READ, ACLOperation.DESCRIBE])

    def start() -> StreamsApp:
        running = app(
            topologies.copying(source, sink),
            has_zookeeper=False,
            properties={"bootstrap.servers": authorizing.bootstrap_servers},
            config={"production_handler": log_and_continue},
            available_now=True,
            processing_guarantee=guarantee,
        )
        running.start()
        return running

    for _ in range(2):
        with pytest.raises(StreamsError, match=f"topic '{sink}'.*grant WRITE on the topic to the principal of the app"):
            start().wait(RUN_S)
        assert find_committed(authorizing, group, partition) <= 0  # the first marker has the starting offset
    allow_only(authorizing, resource, [ACLOperation.WRITE])
    assert start().wait(RUN_S)

    output = Output(authorizing, sink)
    try:
        assert [value for _, value in output.read()] == values
    finally:
        output.close()
    assert find_committed(authorizing, group, partition) == len(values)
