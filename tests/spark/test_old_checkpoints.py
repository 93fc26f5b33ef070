"""Checkpoints that earlier versions wrote, recovered with the current code; see ``data/README.rst``.

The tests recover complete checkpoints of a structured query and of a ``StreamsApp``. A ``StreamingContext`` is
recovered only with the versions of Spark and Python that wrote its checkpoint, because the checkpoint contains Java
objects and Python bytecode.

Addresses, folders and ids of topics differ from those in the checkpoints, so they are changed in a copy (``Old``).
"""

from __future__ import annotations

import io
import json
import pickle
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest
from helpers.aliases import Cluster
from helpers.old_versions import APPLICATION_VERSIONS, QUERY_VERSIONS, VERSIONS, find_data, import_topology
from helpers.pickled_names import PICKLED
from helpers.waiting import wait_for, wait_until_equal
from helpers.znodes import set_offsets, stored
from kazoo.client import KazooClient

from zkconsumer.config import ConsumerConfig
from zkconsumer.config.properties import PROPERTIES
from zkconsumer.devcluster import ExistingCluster
from zkconsumer.devcluster.java import java_home
from zkconsumer.devcluster.load import numbered_batch
from zkconsumer.message import TopicPartition
from zkconsumer.topology import TopologyTestDriver

from .data.jobs import Job, find_topic_id, produce
from .queries import Query, Spans, check_union, planned, runs_topology
from .stored_contexts import change_strings, pickles

if TYPE_CHECKING:
    from .streams_output import Output

pytestmark = pytest.mark.timeout(300)

Queries = Callable[..., Query]

#: Number of records per partition that are written after the application was killed.
LATER = 10


class Old:
    """A copy of the checkpoint of an application that was killed.

    Args:
        version: version of zkconsumer that wrote it.
        kind: ``structured``, ``dstreams`` or ``streams``.
    """

    def __init__(self, version: str, kind: str, folder: Path) -> None:
        source = find_data(version)
        written = json.loads((source / "written.json").read_text())
        self.kind = kind
        self.pyspark: str = written["pyspark"]
        self.python: str = written["python"]
        self.about: dict[str, Any] = written[kind]
        self.topic: str = self.about["topic"]
        self.group: str = self.about["group"]
        self.topics: dict[str, dict[str, Any]] = self.about["topics"]
        self.partitions: int = max(one["partitions"] for one in self.topics.values())
        self.per_batch: int = self.about["records_per_partition_and_batch"]
        self.end: int = self.about["records_per_partition"] + LATER
        self.folder = folder / kind
        self.checkpoint = self.folder / "checkpoint"
        shutil.copytree(source / kind, self.folder)
        self.seen: list[list[Any]] = [json.loads(line) for line in (self.folder / "seen").read_text().splitlines()]

    def outputs(self, name: str, batch: int) -> list[Any]:
        """Return what the application wrote in a batch before it was killed."""
        [line] = [line[2:] for line in self.seen if line[:2] == [name, batch]]
        return line

    def spans(self, name: str, batch: int) -> Spans:
        """Return the ranges of a batch that the application ran before it was killed."""
        return {(self.topic, p): (start, until, until - start) for p, start, until in self.outputs(name, batch)[0]}

    def values(self, ranges: list[list[int]]) -> list[str]:
        """Return the values of the records in ranges."""
        return [f"{1000 * partition + n:08d}" for partition, start, until in ranges for n in range(start, until)]

    def change_topic_ids(self, topic_ids: Mapping[str, str]) -> None:
        """Replace the ids of the topics in the offsets of a query.

        The topics of the test have other ids than the stored ones, so the query would treat them as re-created.
        """
        for file in (self.checkpoint / "offsets").iterdir():
            version, metadata, *sources = file.read_text().splitlines()
            offsets = [json.loads(text) for text in sources]
            for offset in offsets:
                if "ids" in offset:
                    offset["ids"] = self._replace_ids(offset["ids"], topic_ids)
                if "ends" in offset:  # the tick of an application with a global store
                    ends = json.loads(offset["ends"])
                    offset["ends"] = json.dumps({**ends, "ids": self._replace_ids(ends["ids"], topic_ids)})
            file.write_text("\n".join([version, metadata, *map(json.dumps, offsets)]))

    def _replace_ids(self, stored: Mapping[str, str], topic_ids: Mapping[str, str]) -> dict[str, str]:
        for topic, topic_id in stored.items():
            assert set(topic_id.split(",")) <= set(self.topics[topic]["id"].split(","))
        return {topic: _with_old_parts(topic_id, topic_ids[topic]) for topic, topic_id in stored.items()}

    def change_context(self, cluster: Cluster, topic_ids: Mapping[str, str]) -> None:
        """Replace folder, addresses and topic id in the checkpoint of a context; see ``change_topic_ids``."""
        before = self.topics[self.topic]["id"]
        whole = {
            self.about["zookeeper"]: cluster.zookeeper_connect,
            self.about["brokers"]: cluster.bootstrap_servers,
            before: _with_old_parts(before, topic_ids[self.topic]),
        }
        for file in self.checkpoint.glob("checkpoint-*"):
            change_strings(file, lambda text: whole.get(text, text.replace(self.about["folder"], str(self.folder))))

    def change_paths(self) -> None:
        """Replace the folder in the metadata of Spark's state."""
        for file in self.checkpoint.glob("state/*/_metadata/*/*"):
            file.write_text(file.read_text().replace(self.about["folder"], str(self.folder)))


def _with_old_parts(before: str, now: str) -> str:
    """Return a topic id with only the kinds of parts that the old one has.

    If ZooKeeper has no topics, the result is the old zxid, which is not compared with the ids of brokers.
    """
    old_parts, parts = ([part for part in one.split(",") if part] for one in (before, now))
    kinds = {part.partition("-")[0] for part in old_parts}
    found = [part for part in parts if part.partition("-")[0] in kinds]
    return ",".join(found or [part for part in old_parts if part.startswith("zk-")])


#: Returns the ids of the topics.
Restore = Callable[[Old], dict[str, str]]


def versions(first: str, *others: str) -> list[Any]:
    """Return the parameters of ``old``. The tests of all but the first are slow."""
    return [first, *(pytest.param(name, marks=pytest.mark.slow) for name in others)]


@pytest.fixture(params=versions(*VERSIONS))
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], Old]:
    """Copy a checkpoint: ``old("structured")``."""
    return lambda kind: Old(request.param, kind, tmp_path)


@pytest.fixture
def restore(zkconsumer_cluster: Cluster, zk: KazooClient) -> Iterator[Restore]:
    """Create the topics and the group's offsets as they were when the application was killed, and write later records.

    The function returns the ids of the topics, which are empty if the cluster has no topics in ZooKeeper.
    """
    restored: list[Old] = []

    def make(old: Old) -> dict[str, str]:
        restored.append(old)
        for topic, described in old.topics.items():
            zkconsumer_cluster.create_topic(topic, described["partitions"])
        if old.kind == "streams":
            produce(zkconsumer_cluster.bootstrap_servers, old.topic, import_topology("state_stores").list_stored())
        else:
            for number in range(old.partitions):
                records = numbered_batch(1000 * number, old.end, size=8)
                zkconsumer_cluster.admin.produce(TopicPartition(old.topic, number), records)
        for topic, offsets in old.about["group_offsets"].items():
            set_offsets(zk, old.group, topic, {int(number): offset for number, offset in offsets.items()})
        return {topic: find_topic_id(zk, topic) for topic in old.topics}

    yield make
    for old in restored:
        if isinstance(zkconsumer_cluster, ExistingCluster):
            zk.delete(f"/consumers/{old.group}", recursive=True)
        for topic in old.topics:
            zkconsumer_cluster.admin.delete_topic(topic)
        paths = [f"{root}/{topic}" for root in ("/brokers/topics", "/admin/delete_topics") for topic in old.topics]
        wait_for(lambda: not any(map(zk.exists, paths)), what="the topics are deleted")


@pytest.fixture
def same_python(old: Callable[[str], Old]) -> Callable[[str], Old]:
    """As ``old``; skips the test if another Python version wrote the checkpoint."""

    def make(kind: str) -> Old:
        found = old(kind)
        if [int(part) for part in found.python.split(".")[:2]] != [*sys.version_info[:2]]:
            pytest.skip(f"the byte code in the checkpoint requires Python {found.python}")
        return found

    return make


# ---- queries ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("old", versions(*QUERY_VERSIONS), indirect=True)
def test_old_query_replays_its_interrupted_batch(
    restore: Restore, query: Queries, old: Callable[[str], Old], zk: KazooClient
) -> None:
    before = old("structured")
    before.change_topic_ids(restore(before))
    logged = planned(before.checkpoint)
    most = before.partitions * before.per_batch

    after = query(before.topic, checkpoint=before.checkpoint, group_id=before.group, maxOffsetsPerTrigger=most)
    after.wait_for_records(before.partitions * before.end - most)
    assert [batch.number for batch in after.batches] == [1, 2]
    assert after.batches[0].spans == before.spans("query", 1)
    assert sorted(value.decode() for value in after.batches[0].column("value")) == before.outputs("query", 1)[1]
    assert {number: planned(before.checkpoint)[number] for number in logged} == logged
    ends = {(before.topic, number): (0, before.end) for number in range(before.partitions)}
    check_union([before.spans("query", 0), *(batch.spans for batch in after.batches)], ends)
    wait_until_equal(
        lambda: stored(zk, before.group, before.topic), dict.fromkeys(range(before.partitions), str(before.end))
    )


@pytest.mark.parametrize("old", versions(*QUERY_VERSIONS), indirect=True)
def test_old_query_detects_a_recreated_topic(restore: Restore, query: Queries, old: Callable[[str], Old]) -> None:
    before = old("structured")
    if not all(restore(before).values()):
        pytest.skip("the cluster has no topics in ZooKeeper")
    before.change_topic_ids({before.topic: "zk-1"})  # no topic has this id

    after = query(before.topic, checkpoint=before.checkpoint, group_id=before.group)
    with pytest.raises(Exception, match=r"KAFKA_DATA_LOSS\.PARTITIONS_DELETED"):
        after.finish()
    assert after.begun == []


# ---- applications ------------------------------------------------------------------------------------------


@runs_topology
@pytest.mark.slow
@pytest.mark.parametrize("old", APPLICATION_VERSIONS, indirect=True)
def test_old_application_replays_its_interrupted_batch(
    restore: Restore, old: Callable[[str], Old], zkconsumer_cluster: Cluster, output_of: Callable[[str], Output]
) -> None:
    """Each output depends on all stores, and on the records before it."""
    before = old("streams")
    before.change_topic_ids(restore(before))
    before.change_paths()
    settings = {**before.about, "folder": str(before.folder), "properties": zkconsumer_cluster.consumer_properties}
    output = output_of(f"{before.topic}-output")

    job = Job("streams", {**settings, "available_now": True}, java_home())
    try:
        job.finish()
    finally:
        job.kill()

    for number in range(before.partitions):
        finished, rest = expect_output(number, before.per_batch)
        records = [record for record in output.fetch() if record.task == f"0_{number}"]
        assert [record.sequence for record in records] == [*range(len(finished), len(finished) + len(records))]
        found = [[record.key.decode(), json.loads(record.value), record.timestamp_ms] for record in records]
        # The number of calls of the wall-clock punctuator depends on the time.
        assert [one for one in found if one[0] != "clock"] == rest


def expect_output(partition: int, finished: int) -> tuple[list[Any], list[Any]]:
    """Return the output of a task for the first events of a partition, and for the rest."""
    module = import_topology("state_stores")
    records = module.list_stored(partition)
    events = [record for record in records if record.topic == "events"]
    with TopologyTestDriver(module.build_topology(), module.CONFIG) as driver:
        module.process_records(driver, [record for record in records if record.topic != "events"])
        module.process_records(driver, events[:finished])
        before = module.read_output(driver)
        module.process_records(driver, events[finished:])
        return before, module.read_output(driver)


# ---- contexts --------------------------------------------------------------------------------------------


class Recorder(pickle.Unpickler):
    """An unpickler that records the names that it resolves."""

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data))
        self.names: set[tuple[str, str]] = set()

    def find_class(self, module: str, name: str) -> Any:
        """Record and resolve a name."""
        self.names.add((module, name))
        return super().find_class(module, name)


def pickled(old: Old) -> list[bytes]:
    [file] = old.checkpoint.glob("checkpoint-*")
    return pickles(file)


def test_names_in_old_pickles_are_frozen(same_python: Callable[[str], Old]) -> None:
    found: set[tuple[str, str]] = set()
    for data in pickled(same_python("dstreams")):
        recorder = Recorder(data)
        recorder.load()
        found |= recorder.names

    ours = {(module, name) for module, name in found if module.partition(".")[0] == "zkconsumer"}
    assert "Ledger" in {name for _module, name in ours}
    assert sorted((module, name) for module, name in ours if name not in PICKLED.get(module, [])) == []


def test_old_pickles_have_the_ranges_of_their_batches(same_python: Callable[[str], Old]) -> None:
    before = same_python("dstreams")
    found: dict[str, Any] = {}
    for data in pickled(before):
        function, _wrapper, _deserializers = pickle.loads(data)
        for cell in function.__closure__ or ():
            found[type(cell.cell_contents).__name__] = cell.cell_contents

    for kind, name in (("GroupSource", "group"), ("DirectSource", "direct")):
        for batch in (1, 2):
            spans = {
                tuple(partition): (start, until, until - start)
                for partition, (start, until) in found[kind].ranges_at(batch * 1000).items()
            }
            assert spans == before.spans(name, batch)


def test_old_pickles_have_the_properties_of_their_consumers(
    same_python: Callable[[str], Old], monkeypatch: pytest.MonkeyPatch
) -> None:
    before, found = same_python("dstreams"), []
    unpickle = ConsumerConfig.__setstate__

    def record(config: ConsumerConfig, state: Any) -> None:
        unpickle(config, state)
        found.append(config)

    monkeypatch.setattr(ConsumerConfig, "__setstate__", record)
    for data in pickled(before):
        pickle.loads(data)

    [config] = found
    assert (config.group_id, config.zookeeper_connect) == (before.group, before.about["zookeeper"])
    for declared in PROPERTIES:
        value = getattr(config, declared.name.replace(".", "_"))
        assert value is None or declared.parse(value) == value


@pytest.mark.slow
@pytest.mark.parametrize("planned_after", ["started", "completed"])
def test_old_context_replays_its_interrupted_batch(
    restore: Restore,
    same_python: Callable[[str], Old],
    zkconsumer_cluster: Cluster,
    zk: KazooClient,
    planned_after: str,
) -> None:
    """Batch 3, the first new one, is planned while batch 2 is replayed or after that."""
    before = same_python("dstreams")
    if before.pyspark != pyspark.__version__:
        pytest.skip(f"the checkpoint requires Spark {before.pyspark}")
    before.change_context(zkconsumer_cluster, restore(before))
    (before.folder / "seen").unlink()

    job = Job("dstreams", {"folder": str(before.folder)}, java_home())
    try:
        if planned_after == "started":
            job.hold("latest", 2)
            job.wait_for("latest", 2)
            job.advance()
            wait_for((before.checkpoint / "checkpoint-3000").exists, what="batch 3 is planned")
            job.release("latest", 2)
        else:
            job.wait_for("latest", 2)
            wait_for((before.checkpoint / "checkpoint-2000.bk").exists, what="batch 2 is completed")
            job.advance()
        lines = job.wait_for("latest", 3)
        wait_until_equal(
            lambda: stored(zk, before.group, before.topic), dict.fromkeys(range(before.partitions), str(before.end))
        )
    finally:
        job.kill()
    assert [line for line in lines if line[1] == 2] == [line for line in before.seen if line[1] == 2]
    ranges = [[number, 2 * before.per_batch, before.end] for number in range(before.partitions)]
    last = [
        [number, before.end, before.end - 1, *before.values([[number, before.end - 1, before.end]])]
        for number, _, _ in ranges
    ]
    assert [line for line in lines if line[1] != 2] == [
        ["group", 3, ranges, before.values(ranges)],
        ["direct", 3, ranges, before.values(ranges)],
        ["latest", 3, last],
    ]
