"""Queries that are interrupted and restarted from the same checkpoint with other options.

Each random case has two sets of options, a point of interruption, and a change between the runs. The expected result of
the second run is computed from the checkpoint and the group's offsets, by the rules of docs/spark.rst.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from helpers.aliases import Cluster, Topics
from helpers.configurations import plaintext
from helpers.producing import numbers, produce
from helpers.teardown import started
from helpers.topics import recreate_topic
from helpers.waiting import wait_for, wait_until_equal
from helpers.znodes import members

from zkconsumer import ConsumerConfig, TopicPartition
from zkconsumer.metadata.bootstrap import parse_bootstrap
from zkconsumer.offsets.coordinator import GroupCoordinator
from zkconsumer.retry import retrying
from zkconsumer.spark.data_loss import DataLossError
from zkconsumer.spark.offset import BatchOffset, from_offset

from .queries import ALL_AVAILABLE, Batch, Query, Spans, check_union, is_committing, kill, runners

pytestmark = pytest.mark.timeout(180)


#: Records per partition before the first run, during its batch 0, and after its end; in a re-created topic.
FIRST, SECOND, THIRD, RECREATED = 20, 10, 10, 30

#: Changes between two runs. ``moved ahead``, ``moved back`` and ``moved inside`` are offsets set by a tool.
SITUATIONS = (
    "unchanged",
    "moved ahead",
    "moved back",
    "moved inside",
    "offsets deleted",
    "widened",
    "re-created",
    "narrowed",
    "other group",
    "other topic",
)

#: Situations in which the second run is rejected, with the error, which names the remedy.
REJECTED = {
    "other group": r"the checkpoint belongs to group '.*'.* to change the group, use a new checkpointLocation",
    "other topic": r"subscribes to none of the topics in its checkpoint.*; to read only other topics, use a new",
}


#: Starting options. All of them start partition 1 at its first record, and partition 0 at offset 0 or 5.
STARTS: tuple[dict[str, object], ...] = (
    {},
    {"startingOffsets": "earliest"},
    {"startingOffsets": '{"NAME":{"0":5}}'},
    {"startingTimestamp": "1"},
    {"startingOffsetsByTimestamp": '{"NAME":{"0":1,"1":1}}'},
)


@dataclass(frozen=True)
class Case:
    """Two runs of a query: their options, the point of interruption, and what happens between them.

    ``interrupted`` is the number of the batch that fails, or None for a query that is killed while it is idle. With
    ``again``, the second run is killed in its first new batch, and a third run continues with the same options. Without
    ``kills``, only the sink fails, so the member leaves the group at once instead of after its session timeout.
    """

    before: Mapping[str, object]
    after: Mapping[str, object]
    interrupted: int | None
    situation: str = "unchanged"
    topics: tuple[str, ...] = field(default=("NAME",))
    again: bool = False
    kills: bool = True


def options_of_a_run(draw: random.Random) -> dict[str, object]:
    """Draw one valid set of options."""
    is_member = draw.random() < 0.65
    drawn: dict[str, object] = {
        "membership": "group" if is_member else "none",
        "resumeFrom": draw.choice(["furthest", "checkpoint", "group"]),
        "maxOffsetsPerTrigger": draw.choice([None, 7, 100]),
        "minPartitions": draw.choice([None, 1, 5]),
        "partition.assignment.strategy": draw.choice(["range", "roundrobin", "flink"]),
        "numStreams": draw.choice([1, 2]),
        "failOnDataLoss": draw.choice(["true", "false"]),
        "commitOffsets": draw.choice([None, "true", "false"]),
        "bootstrap.servers": draw.choice([None, "BOOTSTRAP"]),
    }
    if is_member:
        drawn["offsets.storage"] = draw.choice(["zookeeper", "zookeeper", "kafka"])
        drawn["dual.commit.enabled"] = draw.choice([None, "false"]) if drawn["offsets.storage"] == "kafka" else None
    elif drawn["bootstrap.servers"] and drawn["commitOffsets"] != "true":
        drawn["zookeeper.connect"] = draw.choice([None, "ZOOKEEPER"])
    subscriptions = [{"subscribe": "NAME"}, {"subscribePattern": "NAME"}, {"whitelist": "NAME"}]
    subscriptions += [] if is_member else [{"assign": '{"NAME":[0,1]}'}]
    drawn.update(draw.choice(subscriptions))
    drawn.update(draw.choice(STARTS))
    drawn.update(draw.choice([{}, {"includeHeaders": "true"}, {"columns": "offset,partition,topic"}, {"decoder": "D"}]))
    return drawn


def case_of(seed: int) -> Case:
    """Draw a case."""
    draw = random.Random(seed)
    case = Case(options_of_a_run(draw), options_of_a_run(draw), draw.choice([0, 1, None]), draw.choice(SITUATIONS))
    case = replace(case, again=draw.random() < 0.4 and case.situation != "re-created")
    if case.situation == "other group":
        return replace(case, after={**case.after, "group.id": "another-group"})
    if case.situation == "other topic":
        other = {"subscribe": "another-topic", "subscribePattern": None, "whitelist": None, "assign": None}
        return replace(case, after={**case.after, **other})
    if case.situation != "narrowed":
        return case
    both = {"subscribe": "NAME,OTHER", "subscribePattern": None, "whitelist": None, "assign": None}
    one = {**both, "subscribe": "NAME", "ignoreUnsubscribedTopics": draw.choice(["true", "false"])}
    return replace(case, before={**case.before, **both}, after={**case.after, **one}, topics=("NAME", "OTHER"))


class Restart:
    """One case on a real cluster."""

    def __init__(
        self,
        case: Case,
        cluster: Cluster,
        query: Callable[..., Query],
        checkpoint: Path,
        topic: Topics,
        config: Callable[..., ConsumerConfig],
        zk: Any,
    ) -> None:
        self.case = case
        self._cluster, self._query, self._checkpoint = cluster, query, checkpoint
        self._config, self._zk = config(), zk
        self._names = {placeholder: topic(partitions=2) for placeholder in case.topics}
        self.name = self._names["NAME"]
        self.ends = {TopicPartition(name, number): 0 for name in self._names.values() for number in range(2)}
        self._coordinator = GroupCoordinator(
            self._config.group_id, lambda: parse_bootstrap(cluster.bootstrap_servers), plaintext(10)
        )

    def close(self) -> None:
        self._coordinator.close()

    def produce(self, count: int) -> None:
        for partition, end in self.ends.items():
            produce(self._cluster.admin, partition.topic, partition.partition, numbers(0, count))
            self.ends[partition] = end + count

    # ---- the first run ----

    def run_until_interrupted(self) -> None:
        """Run the query, and kill the planning process during a batch or between two batches."""
        self.produce(FIRST)
        case = self.case

        def on_batch(batch: Batch) -> None:
            if batch.number == 0:
                self.produce(SECOND)
            if batch.number == case.interrupted:
                if case.kills:
                    kill(runners(os.getpid()))
                raise OSError("the sink fails")

        one = self._start(case.before, on_batch=on_batch)
        if case.interrupted is None:
            one.wait_for_records(sum(self.ends.values()) - self._skipped())
            one.handle.processAllAvailable()
            kill(runners(os.getpid()))
            self.produce(THIRD)  # the next plan fails
        self._wait_until_failed(one)
        if commits(case.before):  # the listener commits what the killed process did not
            done = {partition: start for partition, (start, _) in from_offset(self.planned()).items()}
            done = BatchOffset.from_json(self.planned()).ends if case.interrupted is None else done
            wait_until_equal(lambda: {p: o for p, o in self.group_offsets(case.before).items() if p in done}, done)
        if case.interrupted is not None:
            self.produce(THIRD)

    def _wait_until_failed(self, one: Query) -> None:
        with pytest.raises(Exception, match=r"the sink fails|Streaming|Broken pipe|runner|socket|EOF|Connection"):
            one.finish()
        # Until its session expires, the killed member owns partitions, which AvailableNow would not read.
        wait_until_equal(lambda: members(self._zk, self._config.group_id), [])

    def _skipped(self) -> int:
        return 5 if "NAME" in str(self.case.before.get("startingOffsets")) else 0

    def _start(self, settings: Mapping[str, object], **more: Any) -> Query:
        values = {"BOOTSTRAP": self._cluster.bootstrap_servers, "ZOOKEEPER": self._cluster.zookeeper_connect}
        values |= {"D": "positions:Positions", **self._names}
        wanted: dict[str, object] = {"subscribe": None, "zookeeper.session.timeout.ms": 2000}
        for name, value in settings.items():
            wanted[name] = value
            for placeholder, replacement in values.items():
                if isinstance(wanted[name], str):
                    wanted[name] = str(wanted[name]).replace(placeholder, replacement)
        return self._query("", **more, **{name.replace(".", "_"): value for name, value in wanted.items()})

    # ---- between the runs ----

    def planned(self) -> dict[str, Any]:
        """Return the last offset in Spark's offset log."""
        newest = self._checkpoint / "offsets" / str(self._number())
        return dict(json.loads(newest.read_text().splitlines()[2]))

    def _number(self) -> int:
        """Return the number of the last planned batch."""
        return max(int(file.name) for file in (self._checkpoint / "offsets").iterdir() if file.name.isdigit())

    def change(self) -> None:
        """Make the change between the runs."""
        admin, reached = self._cluster.admin, BatchOffset.from_json(self.planned()).ends
        targets = {
            "moved ahead": {p: until + 3 for p, until in reached.items()},
            "moved back": dict.fromkeys(reached, 1),
            "moved inside": {p: (start + until) // 2 for p, (start, until) in from_offset(self.planned()).items()},
        }
        if self.case.situation in targets:
            self._move(targets[self.case.situation])
        elif self.case.situation == "offsets deleted":
            if self._zk.exists(path := f"/consumers/{self._config.group_id}/offsets"):
                self._zk.delete(path, recursive=True)
        elif self.case.situation == "widened":
            admin.create_partitions(self.name, 3)
            produce(admin, self.name, 2, numbers(0, THIRD))
            if "assign" not in self.case.after:
                self.ends[TopicPartition(self.name, 2)] = THIRD
        elif self.case.situation == "re-created":
            recreate_topic(self._cluster, self._zk, self.name, 2)
            self.ends = dict.fromkeys(self.ends, 0)
            self.produce(RECREATED)

    def _move(self, offsets: Mapping[TopicPartition, int]) -> None:
        if in_kafka(self.case.after):
            assert not retrying(20)(self._coordinator.commit_offsets, dict(offsets))
        for (topic, number), offset in offsets.items() if in_zookeeper(self.case.after) else ():
            path = f"/consumers/{self._config.group_id}/offsets/{topic}/{number}"
            self._zk.ensure_path(path)
            self._zk.set(path, b"%d" % offset)

    def group_offsets(self, after: Mapping[str, object] | None = None) -> dict[TopicPartition, int]:
        """Return the group's offsets that a run with options ``after`` (default: the second run) finds; -1 for none."""
        after = after or self.case.after
        found = dict.fromkeys(self.ends, -1)
        if in_kafka(after):
            found.update(retrying(20)(self._coordinator.fetch_offsets, list(self.ends)))
        for partition in self.ends if in_zookeeper(after) else ():
            path = f"/consumers/{self._config.group_id}/offsets/{partition.topic}/{partition.partition}"
            if self._zk.exists(path):
                found[partition] = max(found[partition], int(self._zk.get(path)[0]))
        return found

    # ---- the later runs ----

    def replayed(self) -> dict[tuple[str, int], tuple[int, int]]:
        """Return the ranges that the next run must replay."""
        if self.case.interrupted is None or self.case.situation == "re-created":
            return {}
        return {p: span for p, span in from_offset(self.planned()).items() if span[0] < span[1]}

    def expected(self) -> dict[tuple[str, int], tuple[int, int]]:
        """Return the ranges that the next run must read after the replayed batch, by the rules of docs/spark.rst."""
        group, planned = self.group_offsets(), self.planned()
        reached, ranges = BatchOffset.from_json(planned).ends, from_offset(planned)
        found: dict[tuple[str, int], tuple[int, int]] = {}
        for partition, end in self.ends.items():
            if partition.topic != self.name and self.case.after.get("ignoreUnsubscribedTopics") == "true":
                continue
            start = self._start_of(group[partition], reached.get(partition), ranges.get(partition))
            if start < end:
                found[partition] = (start, end)
        return found

    def _start_of(self, group: int, reached: int | None, span: tuple[int, int] | None) -> int:
        if self.case.situation == "re-created":
            return 0
        if reached is None:
            return max(0, group)
        restart = self.case.after["resumeFrom"]
        if restart == "checkpoint" or group < 0:
            return reached
        if restart == "furthest":
            return max(reached, group)
        if self.case.interrupted is not None and span is not None and span[0] <= group <= span[1]:
            return reached
        return group

    def run_until_interrupted_again(self, spark: Any) -> list[Batch]:
        """Run the query, kill the planning process in the first new batch, and return the batches before it."""
        number = self._number() + 1
        self.case = replace(self.case, interrupted=number)

        def on_batch(batch: Batch) -> None:
            if batch.number == number:
                kill(runners(os.getpid()))
                raise OSError("the sink fails")

        one = self._start(self.case.after, trigger=ALL_AVAILABLE, on_batch=on_batch)
        self._wait_until_failed(one)
        wait_for(lambda: not is_committing(spark), 30, what="the listener has committed")
        return [batch for batch in one.batches if batch.number < number]

    def run_to_the_end(self) -> Query:
        one = self._start(self.case.after, trigger=ALL_AVAILABLE)
        one.finish()
        return one


def commits(options: Mapping[str, object]) -> bool:
    """Return whether a run with these options commits the group's offsets."""
    return (options["commitOffsets"] or ("true" if options["membership"] == "group" else "false")) == "true"


def in_kafka(options: Mapping[str, object]) -> bool:
    """Return whether a run with these options stores the group's offsets in Kafka."""
    return options.get("offsets.storage") == "kafka"


def in_zookeeper(options: Mapping[str, object]) -> bool:
    """Return whether a run stores them in ZooKeeper; with Kafka storage it stores them in both by default."""
    has_zookeeper = options.get("zookeeper.connect", "") is not None
    return has_zookeeper and not (in_kafka(options) and options.get("dual.commit.enabled") == "false")


@pytest.fixture
def restart(
    zkconsumer_cluster: Cluster,
    query: Callable[..., Query],
    checkpoint: Path,
    topic: Topics,
    config: Callable[..., ConsumerConfig],
    zk: Any,
) -> Iterator[Callable[[Case], Restart]]:
    """Prepare a case."""

    def make(case: Case) -> Restart:
        return Restart(case, zkconsumer_cluster, query, checkpoint, topic, config, zk)

    with started(make, Restart.close) as start:
        yield start


def check(case: Restart, spark: Any) -> None:
    """Run a case, and compare the records that the later runs read with the expected ranges."""
    print(case.case)
    case.run_until_interrupted()
    wait_for(lambda: not is_committing(spark), 30, what="the listener has committed")  # a change may delete the offsets
    case.change()
    if case.case.situation in REJECTED:
        with pytest.raises(Exception, match=REJECTED[case.case.situation]):
            case.run_to_the_end()
        return
    replayed, expected, group = case.replayed(), case.expected(), case.group_offsets()
    if case.case.situation == "re-created" and case.case.after["failOnDataLoss"] == "true":
        with pytest.raises(Exception, match=r"PARTITIONS_DELETED.*failOnDataLoss=false") as caught:
            case.run_to_the_end()
        assert DataLossError.__name__ in str(caught.value)
        return
    print(f"replayed {replayed}, group {group}, expected {expected}")
    if case.case.again and expected:
        assert after_replay(case.run_until_interrupted_again(spark), replayed) == []
        again, expected_again = case.replayed(), case.expected()
        print(f"replayed again {again}, group {case.group_offsets()}, expected {expected_again}")
        batches = after_replay(case.run_to_the_end().batches, again)
        check_union(batches, expected_again)
        check_coverage([again, *ranges_of(batches)], expected)
    else:
        check_union(after_replay(case.run_to_the_end().batches, replayed), expected)
    if commits(case.case.after):
        wanted = {p: case.ends[p] for p in case.ends if p in expected}
        wait_until_equal(lambda: {p: o for p, o in case.group_offsets().items() if p in expected}, wanted)
    else:
        assert {p: case.group_offsets()[p] for p in group} == group


def after_replay(batches: list[Batch], replayed: Mapping[tuple[str, int], tuple[int, int]]) -> list[Spans]:
    """Check that the first batch is the replayed one, if there is one, and return the others."""
    spans = [batch.spans for batch in batches]
    if replayed:
        assert ranges_of(spans[:1]) == [replayed]
    return spans[1:] if replayed else spans


def ranges_of(batches: list[Spans]) -> list[dict[tuple[str, int], tuple[int, int]]]:
    return [{partition: (start, until) for partition, (start, until, _) in spans.items()} for spans in batches]


def check_coverage(
    batches: list[dict[tuple[str, int], tuple[int, int]]], expected: Mapping[tuple[str, int], tuple[int, int]]
) -> None:
    """Check that the batches contain all offsets of the expected ranges."""
    for partition, (start, until) in expected.items():
        read = {offset for spans in batches for offset in range(*spans.get(partition, (0, 0)))}
        assert not set(range(start, until)) - read, partition


MEMBER = {
    "membership": "group",
    "subscribe": "NAME",
    "startingOffsets": None,
    "maxOffsetsPerTrigger": 7,
    "resumeFrom": "furthest",
    "commitOffsets": None,
    "failOnDataLoss": "true",
}
WITH_BROKERS = {**MEMBER, "bootstrap.servers": "BOOTSTRAP"}
ALONE = {**WITH_BROKERS, "membership": "none", "zookeeper.connect": None}
FROM_GROUP = {**MEMBER, "resumeFrom": "group"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(MEMBER, WITH_BROKERS, id="bootstrap servers added"),
        pytest.param(WITH_BROKERS, MEMBER, id="bootstrap servers removed"),
        pytest.param(MEMBER, ALONE, id="without group and ZooKeeper"),
        pytest.param(MEMBER, FROM_GROUP, id="from the group"),
    ],
)
def test_replay_after_option_change_loses_nothing(
    before: dict[str, object], after: dict[str, object], restart: Callable[[Case], Restart], spark: Any
) -> None:
    check(restart(Case(before, after, interrupted=1, kills=False)), spark)


@pytest.mark.parametrize("situation", ["moved back", "moved ahead", "offsets deleted"])
@pytest.mark.parametrize("interrupted", [1, None])
@pytest.mark.slow
def test_resume_from_group_follows_the_group(
    situation: str, interrupted: int | None, restart: Callable[[Case], Restart], spark: Any
) -> None:
    check(restart(Case(MEMBER, FROM_GROUP, interrupted, situation)), spark)


@pytest.mark.slow
def test_second_restart_continues_below_the_first_replay(restart: Callable[[Case], Restart], spark: Any) -> None:
    """The first new batch ends before the replayed one starts."""
    large = {**MEMBER, "maxOffsetsPerTrigger": 100}
    check(restart(Case(large, FROM_GROUP, 1, "moved back", again=True)), spark)


@pytest.mark.slow
@pytest.mark.parametrize(("before", "after"), [(MEMBER, ALONE), (ALONE, MEMBER)], ids=["to brokers", "to ZooKeeper"])
def test_re_created_topic_is_detected_after_option_change(
    before: dict[str, object], after: dict[str, object], restart: Callable[[Case], Restart], spark: Any
) -> None:
    check(restart(Case(before, after, 1, "re-created")), spark)


@pytest.mark.parametrize("seed", [pytest.param(n, marks=[pytest.mark.slow] if n else []) for n in range(60)])
def test_restart_with_random_options_matches_documentation(
    seed: int, restart: Callable[[Case], Restart], spark: Any
) -> None:
    check(restart(case_of(seed)), spark)
