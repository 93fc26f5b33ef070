"""Random pipelines of the DSL, as tasks of one streaming query with their batches and expected results."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Self

from oracle import dsl_programs
from oracle.dsl_comparison import Outcome, compare
from oracle.dsl_generator import PipelineGenerator
from oracle.oracle import Oracle

from zkconsumer.errors import TopologyError
from zkconsumer.message import TopicPartition
from zkconsumer.topology import SourceRecord, Topology, stores
from zkconsumer.topology.dsl.join_buffer import JoinBuffer
from zkconsumer.topology.dsl.join_store import JoinStore
from zkconsumer.topology.dsl.suppress_buffer import SuppressBuffer
from zkconsumer.topology.stores.builder import StoreBuilder
from zkconsumer.topology.subtopology import name_internal_topic

from .cases import Case, create_subtopology
from .steps import Step, cut_in_order

Json = Any

_CACHE_BYTES = 10 * 1024 * 1024
#: Keys and times at which versioned stores are read.
PROBES = {"keys": ["a", "b", "cc", "dd", ""], "times": list(range(0, 2_000, 100))}


@dataclass(frozen=True, kw_only=True)
class PipelineCase(Case):
    """A pipeline with one task, for partition 0.

    Attributes:
        driver_answer: outputs and stores of the test driver of Kafka Streams.
    """

    driver_answer: Json


class PipelineScenarios:
    """Generates pipelines, and counts those that are skipped.

    Args:
        rng: source of all random choices.
        oracle: Kafka Streams.
        max_batches: maximum number of batches; pipelines that need more are shortened.

    Attributes:
        cases: the pipelines.
        counts: number of pipelines by outcome.
    """

    def __init__(self, rng: random.Random, oracle: Oracle, max_batches: int) -> None:
        self._rng, self._oracle, self._max_batches = rng, oracle, max_batches
        self.cases: list[PipelineCase] = []
        self.counts: Counter[str] = Counter()

    def add(self, count: int, events: int) -> None:
        """Add pipelines; every third one has caches, and half of them have repartition topics."""
        added = 0
        while added < count:
            cache_bytes = _CACHE_BYTES if added % 3 == 0 else 0
            request = PipelineGenerator(self._rng, cache_bytes).generate(events)
            found = self._create(request, needs_repartition=added % 2 == 0)
            if isinstance(found, str):
                self.counts[f"skipped: {found}"] += 1
                continue
            self.cases.append(found)
            self.counts["with caches" if cache_bytes else "without caches"] += 1
            self.counts["with repartition topics"] += bool(found.subtopology.internal_topics)
            added += 1

    def _create(self, request: Json, *, needs_repartition: bool) -> PipelineCase | str:
        """Return a pipeline, or why it is skipped."""
        if any(step["op"] == "global_table" for step in request["steps"]):
            return "global table"
        try:
            topology = dsl_programs.build(request)
        except TopologyError:
            return "invalid"
        if needs_repartition and not topology.combine().internal_topics:
            return "has no repartition topic"
        while request["events"]:
            outcome, _, answer = compare(self._oracle, request)
            if outcome is not Outcome.EQUAL:
                assert outcome is not Outcome.DIFFERENT, request
                return str(outcome.value)
            # The task of the test driver starts at time 0.
            items = [0, *_list_processed(request)]
            steps = cut_in_order(items, self._rng, self._rng.choice((0.0, 0.1, 0.4)), has_clock=False)
            if len(steps) <= self._max_batches:
                return self._create_case(request, topology, steps, answer)
            del request["events"][len(request["events"]) * self._max_batches // len(steps) :]
        return "needs too many batches"

    def _create_case(self, request: Json, topology: Topology, steps: list[Step], answer: Json) -> PipelineCase:
        config = replace(dsl_programs.create_config(request), emit_interval_ms=0)  # as in the test driver
        one = topology.combine()
        names = {topic: name_internal_topic(config.application_id, topic) for topic in one.internal_topics}
        topics = [names.get(topic, topic) for topic in one.source_topics]
        one = replace(one, partition_counts=dict.fromkeys(one.source_topics, 1))
        return PipelineCase(
            request={**request, "probes": PROBES},
            subtopology=create_subtopology(one, len(self.cases), config),
            kinds={builder.name: find_kind(builder) for builder in one.stores},
            steps=[[step._replace(lags=dict.fromkeys(topics, 0)) for step in steps]],
            driver_answer=answer,
        )


def find_kind(builder: StoreBuilder) -> str:
    """Return the kind of a store; see ``store_calls.contents``."""
    kinds: dict[type, str] = {
        stores.VersionedKeyValueStore: "versioned",
        stores.SessionStore: "session",
        JoinBuffer: "bytes",
        JoinStore: "bytes",
        SuppressBuffer: "bytes",
    }
    assert isinstance(builder.kind, type)
    return next((kind for base, kind in kinds.items() if issubclass(builder.kind, base)), "")


def _list_processed(request: Json) -> list[SourceRecord | int]:
    """Return the records in the order in which the task of the test driver processes them, with ticks between them."""
    with _RecordingDriver(dsl_programs.build(request), dsl_programs.create_config(request)) as driver:
        now_ms = 0
        for event in request["events"]:
            if "advance" in event:
                now_ms += event["advance"]
                driver.processed.append(now_ms)
            driver.feed(event, [])
        return driver.processed


class _RecordingDriver(dsl_programs.PipelineDriver):
    """Records what its task processes."""

    def __enter__(self) -> Self:
        super().__enter__()
        self.processed: list[SourceRecord | int] = []
        added: dict[TopicPartition, list[SourceRecord]] = {}
        task: Any = self._tasks.main
        add, run = task.add_records, task.run

        def add_records(partition: TopicPartition, records: Iterable[SourceRecord]) -> None:
            new = list(records)
            added.setdefault(partition, []).extend(new)
            add(partition, new)

        def run_one(count: int) -> int:
            before = task.committable()
            number: int = run(count)
            for partition, offset in task.committable().items():
                self.processed += added[partition][before.get(partition, 0) : offset]
            return number

        task.add_records, task.run = add_records, run_one
        return self
