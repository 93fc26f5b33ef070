"""What an application id names in ZooKeeper, in Kafka and in topics belongs to the application alone."""

from __future__ import annotations

import importlib
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from helpers.aliases import Cluster, Topics
from kazoo.client import KazooClient

from zkconsumer.devcluster import Admin
from zkconsumer.devcluster.load import batch
from zkconsumer.errors import StreamsError
from zkconsumer.message import TopicPartition
from zkconsumer.spark.streams.app import StreamsApp
from zkconsumer.spark.streams.changes import AllowedChange
from zkconsumer.topology import Topology

from .neighbours import Plain
from .streams_output import Output

sys.path.append(str(Path(__file__).parent / "on_path"))

topologies: Any = importlib.import_module("streams_topologies")
counting: Callable[[str, str], Topology] = topologies.counting
repartitioning: Callable[[str, str], Topology] = topologies.repartitioning

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

Apps = Callable[..., StreamsApp]
Outputs = Callable[[str], Output]
Store = Callable[..., None]


def run_to_end(app: StreamsApp) -> None:
    app.start()
    assert app.wait(120)


def counts_of(output: Output) -> list[tuple[bytes, int]]:
    return [(key, int.from_bytes(value)) for key, value in output.read() if key != b"total"]


def read_offset(zk: KazooClient, group: str, topic: str) -> bytes:
    return bytes(zk.get(f"/consumers/{group}/offsets/{topic}/0")[0])


def test_offsets_of_group_with_members_are_kept(
    app: Apps, plain: Callable[..., Plain], topic: Topics, admin: Admin, zk: KazooClient, group: str, store: Store
) -> None:
    source = topic(1)
    admin.produce(TopicPartition(source, 0), batch([b"a"] * 3, timestamp_ms=1_000))
    store(source, {0: 3})
    member = plain(source)
    running = app(counting(source, topic(1)))
    with pytest.raises(StreamsError, match="is used by consumers in ZooKeeper"):
        running.start()
    with pytest.raises(StreamsError, match="is used by consumers in ZooKeeper"):
        running.clean_up()
    assert read_offset(zk, group, source) == b"3"

    member.leave()
    with pytest.raises(StreamsError, match="has already committed offset 3 for partition .* in ZooKeeper"):
        app(counting(source, topic(1))).start()
    assert read_offset(zk, group, source) == b"3"
    assert running.clean_up() == [f"committed offsets in ZooKeeper, /consumers/{group}/offsets"]


def test_checkpoint_of_another_application_is_not_deleted(
    app: Apps, topic: Topics, zk: KazooClient, group: str, store: Store, folder: Path
) -> None:
    source = topic(1)
    other = app(counting(source, topic(1)), group=f"{group}-other", checkpoint=folder / "other", available_now=True)
    run_to_end(other)
    store(source, {0: 3})
    (folder / "data").mkdir()
    for place, error in (("other", f"belongs to application '{group}-other'"), ("data", "has no file zkconsumer-st")):
        with pytest.raises(StreamsError, match=error):
            app(counting(source, topic(1)), checkpoint=folder / place).clean_up()
        assert (folder / place).exists()
    assert read_offset(zk, group, source) == b"3"


@pytest.mark.parametrize("keeps_offsets", [True, False], ids=["offsets", "records"])
def test_lost_checkpoint_does_not_count_internal_records_twice(
    app: Apps,
    topic: Topics,
    admin: Admin,
    zk: KazooClient,
    group: str,
    output_of: Outputs,
    checkpoint: Path,
    keeps_offsets: bool,
) -> None:
    source, sink = topic(1), topic(1)
    output, topology = output_of(sink), repartitioning(source, sink)
    admin.produce(TopicPartition(source, 0), batch([b"tea"] * 5, timestamp_ms=1_000))
    run_to_end(app(topology, available_now=True))
    assert counts_of(output)[-1] == (b"tea", 5)

    shutil.rmtree(checkpoint)
    if not keeps_offsets:
        zk.delete(f"/consumers/{group}/offsets", recursive=True)
        # The records of the first run may have been deleted already.
        admin.produce(TopicPartition(f"{group}-words", 0), batch([b"tea"], timestamp_ms=1_000))
    match = "committed offset 5 for partition" if keeps_offsets else "of an internal topic has records at offsets"
    again = app(topology, available_now=True)
    with pytest.raises(StreamsError, match=match):
        again.start()
    deleted = again.clean_up()
    assert [text for text in deleted if text.startswith("internal topic")] == [f"internal topic {group}-words"]
    run_to_end(app(topology, available_now=True))
    assert counts_of(output)[-1] == (b"tea", 5)


@pytest.mark.parametrize("batches", [1, 2], ids=["first batch", "later batch"])
def test_batch_is_not_repeated_without_markers(
    app: Apps,
    topic: Topics,
    admin: Admin,
    zkconsumer_cluster: Cluster,
    group: str,
    output_of: Outputs,
    batches: int,
) -> None:
    source, sink = topic(2), topic(1)
    output, topology = output_of(sink), counting(source, sink)
    settings: dict[str, Any] = {
        "has_zookeeper": False,
        "available_now": True,
        "processing_guarantee": "exactly_once_v2",
        "partitions": 1,
    }
    if batches == 2:
        run_to_end(app(topology, **settings))
    for number, value in enumerate((b"a", b"fail")):
        admin.produce(TopicPartition(source, number), batch([value], timestamp_ms=1_000))
    with pytest.raises(StreamsError, match="ValueError: planned"):
        run_to_end(app(topology, **settings))
    client = AdminClient({"bootstrap.servers": zkconsumer_cluster.bootstrap_servers})
    client.delete_consumer_groups([group])[group].result(30)

    with pytest.raises(StreamsError, match="no committed offsets in Kafka for tasks 0_0, 0_1"):
        app(topology, **settings).start()
    allowing = app(topology, allow=[AllowedChange.MARKERS_LOST], **settings)
    with pytest.raises(StreamsError, match="ValueError: planned"):
        run_to_end(allowing)
    assert set(counts_of(output)) <= {(b"a", 1)}
