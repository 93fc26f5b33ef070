"""A right is withdrawn from queries, and given back: nothing is skipped, each record is read once, and they resume.

The offsets are in ZooKeeper where the brokers are in ZooKeeper mode, and in Kafka where they are in KRaft mode.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from helpers.configurations import consumer_config
from helpers.producing import numbers, produce
from helpers.rights import Brokers, Case, Moment, Right, Rights, cases, running_clusters
from helpers.threads import in_thread
from helpers.waiting import wait_for
from pyspark.streaming import StreamingContext

from zkconsumer.devcluster import DevCluster
from zkconsumer.spark.kafka_utils import KafkaUtils

from .neighbours import Plain
from .queries import START, Batch, Query, divides_available_now

pytestmark = [pytest.mark.timeout(240), pytest.mark.filterwarnings("ignore::FutureWarning")]

#: Records of each partition that are produced at a time.
COUNT = 10
#: Seconds for which a right is missing.
OUTAGE_S = 3.0
CLIENTS = {
    "stream": [Moment.START, Moment.RUN, Moment.REBALANCE, Moment.REPLAY],
    "available-now": [Moment.START, Moment.RUN, Moment.REPLAY],
    "batch": [Moment.START],  # planning requires the right to describe, and the tasks the right to read
    "dstream": [Moment.START, Moment.RUN],
}
#: The cases in ``make test``.
FAST = {"batch-read-start-kraft"}

clusters = pytest.fixture(scope="module")(running_clusters)


def of(client: str) -> list[Any]:
    """Return the cases of a client; those that are not in ``FAST`` are slow."""
    return [
        pytest.param(case, id=str(case), marks=[] if str(case) in FAST else pytest.mark.slow)
        for case in cases(CLIENTS)
        if case.client == client
    ]


class Scene:
    """A topic with two partitions, a group, the rights to both, and the queries of one checkpoint."""

    def __init__(
        self, cluster: DevCluster, case: Case, unique: Callable[[str], str], spark: Any, folder: Path, stack: ExitStack
    ) -> None:
        self.cluster, self.case, self.spark = cluster, case, spark
        self.topic, self.group = cluster.create_topic(unique("t"), 2), unique("g")
        self.rights = stack.enter_context(Rights(cluster, case, self.topic, self.group))
        self.produced = 0
        self._folder, self._stack = folder, stack
        self.produce()

    def produce(self) -> None:
        for partition in range(2):
            produce(self.cluster.admin, self.topic, partition, numbers(self.produced, self.produced + COUNT))
        self.produced += COUNT

    @property
    def everything(self) -> Counter[tuple[int, int]]:
        """Partition and offset of all records, once each."""
        return Counter((partition, offset) for partition in range(2) for offset in range(self.produced))

    def options(self) -> dict[str, str]:
        return {
            "zookeeper.connect": self.cluster.zookeeper_connect,
            "group.id": self.group,
            "auto.offset.reset": "smallest",
            "zookeeper.sync.time.ms": "200",
            "rebalance.backoff.ms": "200",
            "metadata.max.age.ms": "500",
            **self.rights.settings,
        }

    def query(self, **settings: Any) -> Query:
        """Start a query; see ``Query``."""
        options = {**self.options(), "subscribe": self.topic, "maxOffsetsPerTrigger": str(COUNT)}
        frame = self.spark.readStream.format("zkconsumer").options(**options).load()
        query = Query(frame, self._folder / "checkpoint", **settings)
        self._stack.callback(query.stop)
        return query

    def restore_later(self) -> None:
        """Give the right back after ``OUTAGE_S``."""
        timer = threading.Timer(OUTAGE_S, self.rights.restore)
        timer.start()
        self._stack.callback(timer.join)

    def withdraw_for_a_while(self) -> None:
        self.rights.withdraw(self.case.right)
        self.restore_later()

    def wait_until_committed(self) -> None:
        wait_for(lambda: not self.rights.is_withdrawn, what="the right is granted")
        ends = dict.fromkeys(range(2), self.produced)
        wait_for(lambda: self.rights.committed() == ends, 30, what="all offsets are committed")


@pytest.fixture
def scene(
    case: Case,
    clusters: Callable[[Brokers], DevCluster],
    unique: Callable[[str], str],
    spark: Any,
    folder: Path,
) -> Iterator[Scene]:
    with ExitStack() as stack:
        yield Scene(clusters(case.brokers), case, unique, spark, folder, stack)


def fail_once(scene: Scene, **settings: Any) -> None:
    """Run a query whose first batch fails after it has read its records."""

    def refuse(_batch: Batch) -> None:
        raise OSError("the sink is full")

    with pytest.raises(Exception, match="the sink is full"):
        scene.query(on_batch=refuse, **settings).finish()


@pytest.mark.parametrize("case", of("stream"))
def test_query_resumes_when_right_is_granted(case: Case, scene: Scene) -> None:
    if case.moment is Moment.START:
        scene.withdraw_for_a_while()
        query = scene.query()
    elif case.moment is Moment.REPLAY:
        fail_once(scene)
        scene.withdraw_for_a_while()
        query = scene.query()
    else:
        query = scene.query()
        query.wait_for_records(2 * COUNT)
    if case.moment is Moment.RUN:
        run_without_right(scene, query)
    if case.moment is Moment.REBALANCE:
        rebalance_without_right(scene, query)
        return
    query.wait_for(lambda: query.count >= 2 * scene.produced, START, what="all records are read")
    scene.produce()
    query.wait_for(lambda: query.count >= 2 * scene.produced, START, what="later records are read")
    assert query.offsets == scene.everything
    scene.wait_until_committed()
    query.wait_for(lambda: query.state["health"] == "healthy", 30, what="the query is healthy")


def run_without_right(scene: Scene, query: Query) -> None:
    """Withdraw the right from a running query, wait until it reports that, and give the right back."""
    right = scene.case.right
    scene.rights.withdraw(right)
    if right is not Right.DESCRIBE:
        scene.produce()
    if right is Right.GROUP:
        query.wait_for_records(2 * scene.produced)  # the batches continue, but their offsets cannot be committed
    if right is Right.READ:
        scene.restore_later()  # the task that is denied waits for it
        return
    code = "group_authorization_failed" if right is Right.GROUP else "topic_authorization_failed"
    query.wait_for(lambda: code in query.state["healthReasons"], 40, what=f"{code} is reported")
    scene.rights.restore()


def rebalance_without_right(scene: Scene, query: Query) -> None:
    """Let a plain consumer join while the right is missing; together, they read all records."""
    scene.rights.withdraw(scene.case.right)
    settings = {name.replace(".", "_"): value for name, value in scene.rights.settings.items()}
    config = consumer_config(scene.cluster, group_id=scene.group, rebalance_max_retries=200, **settings)
    joining = in_thread(lambda: Plain(config, {scene.topic: 1}))
    scene.restore_later()
    plain = joining.result(60)
    try:
        wait_for(lambda: len(plain.owned) == 1, 60, what="the consumer owns a partition")
        scene.produce()

        def read() -> set[tuple[int, int]]:
            return {*query.offsets} | {*plain.offsets}

        query.wait_for(lambda: read() == {*scene.everything}, START, what="all records are read")
    finally:
        plain.leave()
    scene.wait_until_committed()


@divides_available_now
@pytest.mark.parametrize("case", of("available-now"))
def test_available_now_waits_for_right(case: Case, scene: Scene) -> None:
    trigger = {"availableNow": True}
    scene.produce()
    if case.moment is Moment.REPLAY:
        fail_once(scene, trigger=trigger)
    before: Callable[[int], object] | None = None
    if case.moment is Moment.RUN:
        before = lambda number: scene.withdraw_for_a_while() if number == 1 else None  # noqa: E731
    else:
        scene.withdraw_for_a_while()
    query = scene.query(trigger=trigger, before=before)
    query.finish(90)
    assert query.offsets == scene.everything
    scene.wait_until_committed()


@pytest.mark.parametrize("case", of("batch"))
def test_batch_read_waits_for_right(case: Case, scene: Scene) -> None:
    scene.withdraw_for_a_while()
    frame = scene.spark.read.format("zkconsumer").options(**scene.options(), subscribe=scene.topic).load()
    assert Counter((row.partition, row.offset) for row in frame.collect()) == scene.everything


@pytest.mark.parametrize("case", of("dstream"))
def test_dstream_resumes_when_right_is_granted(case: Case, scene: Scene) -> None:
    seen: list[str] = []
    context = StreamingContext(scene.spark.sparkContext, 0.5)
    try:
        stream = KafkaUtils.createStream(
            context, scene.cluster.zookeeper_connect, scene.group, {scene.topic: 1}, scene.options()
        )
        stream.map(lambda pair: pair[1]).foreachRDD(lambda _time, rdd: seen.extend(rdd.collect()))
        if case.moment is Moment.START:
            scene.withdraw_for_a_while()
        context.start()
        if case.moment is Moment.RUN:
            wait_for(lambda: len(seen) >= 2 * COUNT, START)
            scene.withdraw_for_a_while()
            if case.right is not Right.DESCRIBE:
                scene.produce()
        wait_for(lambda: len(seen) >= 2 * scene.produced, START, what="all records are read")
        wait_for(lambda: not scene.rights.is_withdrawn)
        scene.produce()
        wait_for(lambda: len(seen) >= 2 * scene.produced, START, what="later records are read")
        assert Counter(seen) == Counter(value.decode() for value in 2 * numbers(0, scene.produced))
        scene.wait_until_committed()
    finally:
        context.stop(stopSparkContext=False)
