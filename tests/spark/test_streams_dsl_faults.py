"""Random pipelines of the DSL, with their repartition topics, whose driver is killed at random moments."""

from __future__ import annotations

import importlib
import itertools
import os
import random
import secrets
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from helpers import batches
from helpers.aliases import Cluster
from helpers.operator_input import GivenRecords
from helpers.teardown import started
from helpers.waiting import wait_for
from oracle.programs import decode_data

from zkconsumer.message import TopicPartition
from zkconsumer.spark.streams.checkpoint import StoredApplication
from zkconsumer.spark.streams.checkpoint_directory import FILE
from zkconsumer.spark.streams.output import SEQUENCE_HEADER
from zkconsumer.spark.streams.plan import ApplicationPlan, TaskNumber, select_subtopologies
from zkconsumer.topology import ApplicationConfig, SourceRecord
from zkconsumer.topology.resolved import ResolvedTopology
from zkconsumer.topology.subtopology import Subtopology, name_internal_topic

from .scenarios.cases import Case, create_subtopology
from .scenarios.dsl import PROBES, find_kind
from .scenarios.query import TaskResult, open_session, read_states
from .streams_feed import FeedThread
from .streams_process import Driver
from .streams_replay import KEEP_BATCHES, TopicReader, create_steps, read_log

sys.path.append(str(Path(__file__).parent / "on_path"))

pipelines: Any = importlib.import_module("dsl_pipelines")

Json = Any

PARTITIONS = 2
#: Fraction of kills that wait for the end of a batch, so that the application makes progress.
_AFTER_BATCH = 0.7

pytestmark = pytest.mark.slow


class PipelineFeed(FeedThread):
    """Writes to random topics.

    Args:
        cluster: the cluster.
        topics: names of the topics.
        rng: selects topics, partitions, keys and values.
    """

    _KEYS, _VALUES = ("a", "b", "cc", "dd", "e", "", None), ("a", "ab", "b d", "xyz", "", None, "hello", "zaz")
    _HEADERS: tuple[batches.Headers, ...] = ((), (), (("h", b"1"),), (("h", b""), ("h", None), ("\u00e4", b"2")))

    def __init__(self, cluster: Cluster, topics: list[str], rng: random.Random) -> None:
        self._admin = cluster.new_admin()
        self._producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers})
        self._topics, self._rng = topics, rng
        super().__init__()

    def close(self) -> None:
        """Wait until all records are delivered."""
        assert self._producer.flush(60) == 0
        self._admin.close()

    def write(self) -> None:
        """Write keys and values, some of them None, with timestamps from 0 that are not in order."""
        rng, now_ms = self._rng, 1
        for topic in self._topics:  # the producer cannot send the timestamp 0
            records = [batches.Record(number, 0, b"a", value) for number, value in enumerate((b"ab", None, b""))]
            self._admin.produce_all(
                {TopicPartition(topic, number): batches.entry(2, records) for number in range(PARTITIONS)}
            )
        while not self._stop.wait(0.05):
            now_ms += rng.choice((0, 20, 100))
            for _ in range(rng.randint(1, 6)):
                key, value = rng.choice(self._KEYS), rng.choice(self._VALUES)
                self._producer.produce(
                    rng.choice(self._topics),
                    None if value is None else value.encode(),
                    None if key is None else key.encode(),
                    rng.randrange(PARTITIONS),
                    timestamp=max(1, now_ms - rng.choice((0, 0, 60, 300))),
                    headers=list(rng.choice(self._HEADERS)),
                )
            self._producer.poll(0)


class Results:
    """What the tasks of a stopped application did, compared with tasks in memory.

    Args:
        topology: the topology.
        settings: settings of the driver; see ``drivers/streams.py``.
        reader: has read the records of all topics.
        counts: number of partitions by topic.
    """

    def __init__(
        self, topology: ResolvedTopology, settings: dict[str, Any], reader: TopicReader, counts: Mapping[str, int]
    ) -> None:
        self._checkpoint, self._counts = Path(settings["checkpoint"]), counts
        self._config = ApplicationConfig(application_id=settings["group"], **pipelines.CONFIG)
        self._subtopologies = select_subtopologies(topology, self._config, counts)
        self._batches = read_log(self._checkpoint)
        self.records = reader.records
        self._internal = {
            name_internal_topic(self._config.application_id, topic)
            for one in self._subtopologies.values()
            for topic in one.internal_topics
        }
        self._inputs = set(pipelines.list_inputs(pipelines.generate(settings["source"], settings["sink"])))
        self.cases = {number: self._create_case(one) for number, one in self._subtopologies.items()}

    def _create_case(self, one: Subtopology) -> Case:
        names = {topic: name_internal_topic(self._config.application_id, topic) for topic in one.internal_topics}
        topics = [names.get(topic, topic) for topic in sorted(one.source_topics)]
        return Case(
            request={"probes": PROBES},
            subtopology=create_subtopology(one, one.number, self._config),
            kinds={builder.name: find_kind(builder) for builder in one.stores},
            steps=[
                create_steps({topic: self.records.get((topic, number), []) for topic in topics}, number, self._batches)
                for number in range(one.task_count)
            ],
        )

    def check(self, spark: Any, *, is_exactly_once: bool) -> None:
        """Compare the outputs and the states of all tasks."""
        expected: dict[str, Counter[Any]] = {}
        stored = StoredApplication.from_json((self._checkpoint / FILE).read_text(), str(self._checkpoint))
        plan = ApplicationPlan.create(
            self._subtopologies, self._config, self._counts, stored.tasks, stored.partitions, GivenRecords()
        )
        found = {number: TaskResult() for number in stored.tasks}
        read_states(open_session(spark), plan, self._checkpoint, found)
        for number, case in self.cases.items():
            for partition in range(case.subtopology.task_count):
                task = case.expect(partition)
                for topic, _partition, key, value, time_ms, headers in itertools.chain.from_iterable(task.outputs):
                    written_ms = time_ms or int(topic not in self._internal)
                    expected.setdefault(topic, Counter())[key, value, written_ms, str(headers)] += 1
                result = found[TaskNumber(number, partition)]
                state = result.restore(case, partition)._replace(batches=task.state.batches)
                for name in state._fields:
                    assert getattr(state, name) == getattr(task.state, name), f"task {number}_{partition}, {name}"
                assert result.list_unused_pages(case) == []
        assert all(
            any(of_topic == topic and found for (of_topic, _), found in self.records.items()) for topic in self._inputs
        )
        assert sum(map(Counter.total, expected.values())) > 100
        self._check_outputs(expected, is_exactly_once)

    def _check_outputs(self, expected: Mapping[str, Counter[Any]], is_exactly_once: bool) -> None:
        written_topics = {topic for topic, _ in self.records} - self._inputs
        assert expected.keys() <= written_topics
        for topic in sorted(written_topics):
            wanted = expected.get(topic, Counter())
            records = [one for (name, _), found in self.records.items() if name == topic for one in found]
            written = Counter(map(_describe, records))
            print(f"{topic}: {written.total()} records, {wanted.total()} without repeated ones")
            assert written.keys() == wanted.keys(), topic
            assert written == wanted if is_exactly_once else written >= wanted, topic


def _describe(record: SourceRecord) -> tuple[Any, ...]:
    """Return a record as the outputs of tasks in memory."""
    headers = [[name, decode_data(value or b"")] for name, value in record.headers if name != SEQUENCE_HEADER]
    return decode_data(record.key), decode_data(record.value), record.timestamp, str(headers)


@pytest.fixture
def seed() -> int:
    """A new seed, or that in KILLS_SEED."""
    found = int(os.environ.get("KILLS_SEED", secrets.randbits(32)))
    print(f"KILLS_SEED={found}")
    return found


@pytest.fixture
def start_driver(folder: Path) -> Iterator[Callable[[dict[str, Any]], Driver]]:
    numbers = itertools.count()

    def make(settings: dict[str, Any]) -> Driver:
        return Driver(folder / f"driver-{next(numbers)}", settings)

    with started(make, Driver.kill) as start:
        yield start


@pytest.fixture
def read_topics() -> Iterator[Callable[..., TopicReader]]:
    with started(TopicReader, TopicReader.close) as start:
        yield start


@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_pipelines_survive_kills(
    zkconsumer_cluster: Cluster,
    unique: Callable[[str], str],
    group: str,
    checkpoint: Path,
    start_driver: Callable[[dict[str, Any]], Driver],
    read_topics: Callable[..., TopicReader],
    seed: int,
    spark: Any,
    guarantee: str,
) -> None:
    prefix, rng = unique("pipelines"), random.Random(seed)
    requests = pipelines.generate(prefix, str(seed))
    inputs: list[str] = pipelines.list_inputs(requests)
    outputs = [topic for one in requests for topic in one["outputs"]]
    counts = {**dict.fromkeys(inputs, PARTITIONS), **dict.fromkeys(outputs, 1)}
    topology = pipelines.create(prefix, str(seed)).resolve(counts)
    counts |= {name_internal_topic(group, name): number for name, number in topology.internal_topics.items()}
    for topic, number in counts.items():
        zkconsumer_cluster.create_topic(topic, number)
    settings: dict[str, Any] = {
        "module": "dsl_pipelines",
        "topology": "create",
        "source": prefix,
        "sink": str(seed),
        "group": group,
        "checkpoint": str(checkpoint),
        "properties": {"bootstrap.servers": zkconsumer_cluster.bootstrap_servers},
        "query": {"processing_guarantee": guarantee},
        "conf": KEEP_BATCHES,
    }
    reader = read_topics(zkconsumer_cluster, counts)
    driver, feed = start_driver(settings), PipelineFeed(zkconsumer_cluster, inputs, rng)
    try:
        for _ in range(int(os.environ.get("KILLS", "10"))):
            wait_for_moment(driver, checkpoint, rng)
            driver.kill()
            print(f"killed after {count_batches(checkpoint)} batches")
            driver = start_driver(settings)
    finally:
        feed.stop()
    driver.kill()
    driver = start_driver({**settings, "query": {**settings["query"], "available_now": True}})
    assert driver.wait(300) == 0, driver.log
    reader.finish()
    results = Results(topology, settings, reader, counts)
    results.check(spark, is_exactly_once=guarantee == "exactly_once_v2")


def count_batches(checkpoint: Path) -> int:
    """Return the number of batches that were committed."""
    commits = checkpoint / "commits"
    return sum(file.name.isdigit() for file in commits.iterdir()) if commits.exists() else 0


def wait_for_moment(driver: Driver, checkpoint: Path, rng: random.Random) -> None:
    """Wait until a random moment, mostly one after a batch."""
    if rng.random() >= _AFTER_BATCH:
        time.sleep(rng.random() * 12)
        return
    before = count_batches(checkpoint)

    def has_progress() -> bool:
        driver.check_running()
        return count_batches(checkpoint) > before

    wait_for(has_progress, 150, what="a batch ends")
    time.sleep(rng.random() * 3)
