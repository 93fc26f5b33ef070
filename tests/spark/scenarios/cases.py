"""Random scenarios of the oracle, as tasks of one streaming query with their batches and expected results."""

from __future__ import annotations

import importlib
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

from oracle import cached_generator, generator
from oracle.declarations import Declarations
from oracle.oracle import Oracle
from oracle.programs import create_config, pickled

from zkconsumer.errors import StreamsError
from zkconsumer.topology import ApplicationConfig, SourceRecord, Topology
from zkconsumer.topology.subtopology import Subtopology, name_internal_topic

from .steps import Step, cut_anywhere, cut_chunks, cut_in_order, merge_events
from .task import TaskInMemory, TaskState

sys.path.append(str(Path(__file__).parents[1] / "on_path"))

_ScenarioSubtopology: Any = importlib.import_module("oracle_scenarios").ScenarioSubtopology

Json = Any

#: Fraction of scenarios of cached stores.
_CACHED = 0.2


@dataclass(frozen=True, kw_only=True)
class ExpectedTask:
    """What a task must do.

    Attributes:
        outputs: its output in each batch.
        state: its state after the last batch.
    """

    outputs: list[Json]
    state: TaskState


@dataclass(frozen=True, kw_only=True)
class Case:
    """A sub-topology of a scenario with what its tasks receive.

    Attributes:
        request: the scenario, to be printed.
        subtopology: the sub-topology.
        kinds: kinds of its stores by name.
        steps: the batches of each of its tasks, by partition number.
        answer: outputs and stores of Kafka Streams; None if batches are compared with tasks in memory only.
    """

    request: Json
    subtopology: Subtopology
    kinds: dict[str, str]
    steps: list[list[Step]]
    answer: Json = None

    @property
    def probes(self) -> Json:
        """Keys and times at which versioned stores are read."""
        return self.request.get("probes")

    @property
    def config(self) -> ApplicationConfig:
        """Settings of its tasks."""
        found: ApplicationConfig = self.subtopology.config  # type: ignore[attr-defined]  # of ``ScenarioSubtopology``
        return found

    @property
    def sink_topics(self) -> set[str]:
        """Topics that it writes, with the names that they have in Kafka."""
        one, application = self.subtopology, self.config.application_id
        return {
            name_internal_topic(application, name) if name in one.internal_topics else name for name in one.sink_topics
        }

    def expect(self, partition: int) -> ExpectedTask:
        """Run the task of a partition in memory."""
        task = TaskInMemory(self.subtopology, partition)
        outputs = [task.process(step) for step in self.steps[partition]]
        state = task.save(self.kinds, self.probes)
        task.close()
        return ExpectedTask(outputs=outputs, state=state)


class Scenarios:
    """Generates scenarios, and counts those that are skipped.

    Args:
        rng: selects everything.
        oracle: Kafka Streams.
        max_batches: maximum number of batches of a task; scenarios that need more are shortened.

    Attributes:
        cases: the sub-topologies of all scenarios in the order of their numbers.
        counts: numbers of scenarios by what was done with them.
    """

    def __init__(self, rng: random.Random, oracle: Oracle, max_batches: int) -> None:
        self._rng, self._oracle, self._max_batches = rng, oracle, max_batches
        self.cases: list[Case] = []
        self.counts: Counter[str] = Counter()

    def add_cut_in_order(self, count: int) -> None:
        """Add scenarios with one partition of each topic, cut along the order in which records are merged."""
        added = 0
        while added < count:
            is_cached = self._rng.random() < _CACHED
            found = self._cut_cached() if is_cached else self._cut_in_order()
            if isinstance(found, str):
                self.counts[f"skipped: {found}"] += 1
                continue
            self.cases.append(found)
            self.counts["cut in order, with cached stores" if is_cached else "cut in order"] += 1
            added += 1

    def add_cut_anywhere(self, count: int) -> None:
        """Add scenarios with several partitions of each topic, cut anywhere."""
        added = 0
        while added < count:
            is_cached = self._rng.random() < _CACHED
            request = cached_generator.scenario(self._rng) if is_cached else generator.scenario(self._rng)
            if _has_global_store(request):
                self.counts["skipped: global store"] += 1
                continue
            self.cases += self._cut_anywhere(request)
            self.counts["cut anywhere, with cached stores" if is_cached else "cut anywhere"] += 1
            added += 1

    # ---- cut in order ----

    def _cut_in_order(self) -> Case | str:
        """Return a scenario, or why it is skipped."""
        rng = self._rng
        request = generator.scenario(rng)
        if _has_global_store(request):
            return "global store"
        if request["config"]["idle"] > 0 and len(_list_topics(request)) > 1:
            return "waits for empty partitions"
        if _has_time_of_pattern(request):  # the test driver has one partition for all topics of a pattern
            return "time of a partition of a pattern"
        request["events"] = merge_events(request["events"])
        cuts = rng.choice((0.0, 0.1, 0.4, 0.8))
        has_clock = "WALL_CLOCK_TIME" in str(request["steps"])
        while request["events"]:
            [answer] = self._oracle.send([request])
            if "error" in answer:
                if not answer.get("outputs"):
                    return "fails at the start"
                self.counts["of these, shortened before an error"] += 1
                del request["events"][len(answer["outputs"]) - 1 :]
                continue
            items = _list_items(request, answer)
            if rng.random() < 0.5 or isinstance(items[0], int):
                items.insert(0, 0)  # the task starts at this time, as in the test driver
            steps = cut_in_order(items, rng, cuts, has_clock)
            if len(steps) <= self._max_batches:
                return self._create_case(request, [steps], answer)
            del request["events"][len(request["events"]) * self._max_batches // len(steps) :]
        return "fails at the first event"

    def _cut_cached(self) -> Case | str:
        """Return a scenario of cached stores whose batches are the commits of Kafka Streams."""
        request = cached_generator.scenario(self._rng)
        every = request["commit_every"]
        if request["cache_bytes"] not in (0, max(cached_generator.CACHE_BYTES)):
            return "cache that is too small for all entries"
        del request["events"][every * self._max_batches :]
        # Records with equal timestamps are processed in the order of the partitions.
        starts = range(0, len(request["events"]), every)
        groups = [
            sorted(request["events"][first : first + every], key=lambda event: event["topic"]) for first in starts
        ]
        request |= {"events": [event for group in groups for event in group], "reads": []}
        [answer] = self._oracle.send([request])
        assert "error" not in answer, (answer, request)
        offsets: Counter[str] = Counter()
        steps = [Step([_create_record(event, event["topic"], 0, offsets) for event in group]) for group in groups]
        return self._create_case(request, [cut_chunks(steps, self._rng)], answer)

    # ---- cut anywhere ----

    def _cut_anywhere(self, request: Json) -> list[Case]:
        rng = self._rng
        partitions = rng.randint(1, 3)
        topics = _list_topics(request)
        declared = Declarations(request["steps"])
        resolved = pickled(declared.topology).resolve(dict.fromkeys(topics, partitions))
        records = self._spread(request, topics, partitions)
        ticks = list(accumulate(event["advance"] for event in request["events"] if "advance" in event))
        if "config" in request:
            request["config"]["idle"] = rng.choice((-1, 0, 50, 5_000))
        found: list[Case] = []
        for one in resolved.subtopologies.values():
            if not one.source_topics:
                continue
            steps = [
                cut_anywhere(
                    [record for record in records if record.topic in one.source_topics and record.partition == number],
                    ticks,
                    rng,
                    rng.randint(1, self._max_batches // 2),
                )
                for number in range(partitions)
            ]
            case = Case(
                request=request,
                subtopology=self._create_subtopology(one, len(self.cases) + len(found), request),
                kinds=declared.kinds,
                steps=steps,
            )
            for number, of_task in enumerate(steps):
                self._shorten_before_error(case, number, of_task)
            found.append(case)
        return found

    def _spread(self, request: Json, topics: list[str], partitions: int) -> list[SourceRecord]:
        """Return the events several times, in random partitions; some of them are records of the topic ``mid``."""
        rng = self._rng
        offsets: Counter[str] = Counter()
        records = []
        # Times of cached stores stay below the retention; see ``cached_generator``.
        step_ms = 0 if "cache_bytes" in request else rng.choice((0, 1_000, 20_000, 200_000))
        for number in range(rng.choice((1, 2, 5))):
            for event in request["events"]:
                if "advance" in event:
                    continue
                topic = "mid" if "mid" in topics and rng.random() < 0.2 else event["topic"]
                partition = rng.randrange(partitions)
                queue = f"{topic}/{partition}"
                offsets[queue] += rng.choice((0, 0, 3))  # some offsets have no records
                moved = {**event, "ts": event["ts"] + number * step_ms}
                records.append(_create_record(moved, topic, partition, offsets, queue))
        return records

    def _shorten_before_error(self, case: Case, number: int, steps: list[Step]) -> None:
        task = TaskInMemory(case.subtopology, number)
        done = 0
        try:
            for step in steps:
                task.process(step)
                done += 1
        except StreamsError:
            self.counts["of their tasks, shortened before an error"] += 1
            del steps[done:]
        task.close()

    # ---- sub-topologies ----

    def _create_case(self, request: Json, steps: list[list[Step]], answer: Json) -> Case:
        """Return a scenario with all sub-topologies as one, as the test driver runs them."""
        declared = Declarations(request["steps"])
        topology = pickled(declared.topology)
        topics_of = _find_topics(topology, _list_topics(request))
        counts = {topic: 1 for of_source in topics_of.values() for topic in of_source}
        steps = [[step._replace(lags=dict.fromkeys(counts, 0)) for step in of_task] for of_task in steps]
        one = replace(topology.combine(), topics_of=topics_of, partition_counts=counts)
        subtopology = self._create_subtopology(one, len(self.cases), request)
        return Case(request=request, subtopology=subtopology, kinds=declared.kinds, steps=steps, answer=answer)

    def _create_subtopology(self, one: Subtopology, number: int, request: Json) -> Subtopology:
        return create_subtopology(one, number, self._create_config(request))

    def _create_config(self, request: Json) -> ApplicationConfig:
        config = replace(create_config(request.get("config", {})), page_bytes=self._rng.choice((1_024, 65_536)))
        if "cache_bytes" in request:
            config = replace(config, statestore_cache_max_bytes=request["cache_bytes"])
        return config


def create_subtopology(one: Subtopology, number: int, config: ApplicationConfig) -> Subtopology:
    """Return a sub-topology with another number and with settings of its own."""
    values = {field.name: getattr(one, field.name) for field in fields(Subtopology)}
    subtopology: Subtopology = _ScenarioSubtopology(**{**values, "number": number}, config=config)
    return subtopology


# ---- requests ----------------------------------------------------------------------------------------------


def _has_global_store(request: Json) -> bool:
    return any(step["call"] == "global" for step in request["steps"])


def _list_sources(request: Json) -> list[Json]:
    return [step for step in request["steps"] if step["call"] == "source"]


def _list_topics(request: Json) -> list[str]:
    """Return the topics of sources, and those of events that match a pattern."""
    topics = {topic for source in _list_sources(request) for topic in source.get("topics", ())}
    topics |= {event["topic"] for event in request["events"] if "topic" in event}
    if any(source["name"] == "src-mid" for source in _list_sources(request)):
        topics.add("mid")
    return sorted(topics)


def _find_topics(topology: Topology, topics: list[str]) -> dict[str, tuple[str, ...]]:
    """Return the topics of each source by its name."""
    resolved = topology.resolve(dict.fromkeys(topics, 1))
    return {name: found for one in resolved.subtopologies.values() for name, found in one.topics_of.items()}


def _has_time_of_pattern(request: Json) -> bool:
    return any("!prev" in (event.get("value") or "") and _find_pattern(request, event) for event in request["events"])


def _find_pattern(request: Json, event: Json) -> str | None:
    patterns = [source["pattern"] for source in _list_sources(request) if "pattern" in source]
    return next((pattern for pattern in patterns if re.fullmatch(pattern, event["topic"])), None)


def _list_items(request: Json, answer: Json) -> list[SourceRecord | int]:
    """Return the records of a task with the times of ticks between them.

    Records that sinks wrote to the topic of a source follow the event that caused them, as in the test driver.
    """
    items: list[SourceRecord | int] = []
    offsets: Counter[str] = Counter()
    topics, now_ms = _list_topics(request), 0
    for event, outputs in zip(request["events"], answer["outputs"], strict=True):
        if "advance" in event:
            now_ms += event["advance"]
            items.append(now_ms)
        else:
            queue = _find_pattern(request, event) or event["topic"]
            items.append(_create_record(event, event["topic"], 0, offsets, queue))
        for topic, _partition, key, value, time, headers in outputs:
            if topic in topics:
                sent = {"key": key, "value": value, "ts": time, "headers": headers}
                items.append(_create_record(sent, topic, 0, offsets))
    return items


def _create_record(
    event: Json, topic: str, partition: int, offsets: Counter[str], queue: str | None = None
) -> SourceRecord:
    """Return the record of an event.

    Args:
        event: the event.
        topic: its topic.
        partition: its partition number.
        offsets: next offset by queue.
        queue: None for the topic.
    """
    queue = topic if queue is None else queue
    key, value = (None if event[name] is None else event[name].encode() for name in ("key", "value"))
    headers = tuple((name, text.encode()) for name, text in event.get("headers", ()))
    record = SourceRecord(topic, partition, offsets[queue], event["ts"], key, value, headers)
    offsets[queue] += 1
    return record


def list_tasks(cases: list[Case]) -> Iterator[tuple[Case, int]]:
    """Return the tasks that receive something: their sub-topology and partition number."""
    for case in cases:
        for number, steps in enumerate(case.steps):
            if steps:
                yield case, number
