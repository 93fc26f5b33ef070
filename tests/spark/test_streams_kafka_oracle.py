"""Random DSL pipelines in an application that reads and writes topics, compared with Kafka Streams 3.9.2."""

from __future__ import annotations

import importlib
import os
import random
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from helpers import batches
from helpers.aliases import Cluster
from helpers.teardown import started
from oracle import dsl_programs
from oracle.dsl_comparison import Outcome, compare
from oracle.oracle import Oracle

from zkconsumer.devcluster import Admin
from zkconsumer.message import TopicPartition

from .scenarios.steps import merge_events
from .streams_process import Driver
from .streams_replay import TopicReader

sys.path.append(str(Path(__file__).parent / "on_path"))

pipelines: Any = importlib.import_module("kafka_pipelines")
list_inputs: Callable[[list[Any]], list[str]] = importlib.import_module("dsl_pipelines").list_inputs

Json = Any

#: ``max.message.bytes`` of the output topics.
LIMIT = 600
#: Minimum number of pipelines of an application whose output can be compared with that of Kafka Streams.
_COMPARED = 2
#: Maximum seconds for the application to process all records.
_RUN_S = 300.0

pytestmark = pytest.mark.slow


@pytest.fixture
def oracle() -> Iterator[Oracle]:
    with Oracle("DslRunner") as running:
        yield running


@pytest.fixture
def rng() -> random.Random:
    """Random numbers, whose seed is printed."""
    seed = int(os.environ.get("ORACLE_SEED", secrets.randbits(32)))
    print(f"ORACLE_SEED={seed}")
    return random.Random(seed)


class OracleRun:
    """Random pipelines with events, and their results in Kafka Streams.

    Args:
        rng: source of all random choices.
        oracle: Kafka Streams.
        prefix: prefix of the names of all topics.

    Attributes:
        seed: selects the pipelines; see ``kafka_pipelines.generate``.
        requests: the pipelines with their events.
        expected: outputs of the pipelines that can be compared, by topic.
    """

    def __init__(self, rng: random.Random, oracle: Oracle, prefix: str) -> None:
        self._rng, self._oracle = rng, oracle
        self.expected: dict[str, list[Json]] = {}
        compared = 0
        while compared < _COMPARED:
            self.seed = str(rng.randrange(1 << 32))
            self.requests = [self._complete(one) for one in pipelines.generate(prefix, self.seed)]
            results = [compare(oracle, one) for one in self.requests]
            self.expected = {}
            is_valid = all("error" not in answer for _, answer, _ in results)
            compared = is_valid * sum(
                self._add(one, outcome, expected)
                for one, (outcome, _, expected) in zip(self.requests, results, strict=True)
            )

    def _complete(self, request: Json) -> Json:
        """Add events to a pipeline. Their timestamps have a defined order if a task reads several topics."""
        topics, rng = list_inputs([request]), self._rng
        now_ms = 0
        events = []
        for _ in range(40):
            topic = rng.choice(topics)
            now_ms = max(0, now_ms + rng.choice((0, 0, 30, 100, -60, -300)))
            if rng.random() < 0.05:
                now_ms += rng.choice((1_000, 100_000, 10_000_000))
            value = rng.choice(("a", "ab", "b d", "", None, "zaz"))
            events.append(
                {
                    "topic": topic,
                    "key": rng.choice(("a", "b", "cc", "", None)),
                    "value": "v" * rng.randint(LIMIT - 130, LIMIT) if rng.random() < 0.1 else value,
                    "ts": now_ms * len(topics) + topics.index(topic),
                    "headers": rng.choice(([], [], [["h", "1"]], [["h", ""], ["h", None], ["\u00e4", "2"]])),
                }
            )
        return {**request, "events": merge_events(events), "stores": [], "optimize": False, "cache": 0}

    def _add(self, request: Json, outcome: Outcome, answer: Json) -> bool:
        """Add the outputs of a pipeline if they do not depend on the names and the order of internal topics."""
        assert outcome is not Outcome.DIFFERENT, request
        if outcome is not Outcome.EQUAL or not _is_comparable(request):
            return False
        for topic in request["outputs"]:
            self.expected[topic] = []
        for topic, key_hex, value_hex, timestamp, pairs in (row for rows in answer["outputs"] for row in rows):
            key, value, headers = _decode(key_hex), _decode(value_hex), [(name, _decode(text)) for name, text in pairs]
            if _measure(key, value, timestamp or 1, headers) <= LIMIT:
                self.expected[topic].append([key, value, timestamp or 1, headers])
        return any(self.expected[topic] for topic in request["outputs"])


def _is_comparable(request: Json) -> bool:
    if any(step["op"] in ("process", "process_values") for step in request["steps"]):  # names of topics in values
        return False
    resolved = dsl_programs.build(request).resolve(dict.fromkeys(list_inputs([request]), 1))
    internal = resolved.internal_topics
    return all(
        len(one.source_topics) == 1 or not internal.keys() & set(one.source_topics)
        for one in resolved.subtopologies.values()
    )


def _decode(data: str | None) -> bytes | None:
    return None if data is None else bytes.fromhex(data)


def _measure(key: bytes | None, value: bytes | None, timestamp: int, headers: list[Any]) -> int:
    """Return the size of a record batch with one record."""
    return len(batches.batch([batches.Record(0, timestamp, key, value, tuple(headers))]))


def produce(admin: Admin, requests: list[Json]) -> None:
    """Write the events of pipelines to their topics."""
    records: dict[str, list[batches.Record]] = {}
    for event in (event for request in requests for event in request["events"]):
        of_topic = records.setdefault(event["topic"], [])
        key, value = (None if event[name] is None else event[name].encode() for name in ("key", "value"))
        headers = tuple((name, None if text is None else text.encode()) for name, text in event["headers"])
        of_topic.append(batches.Record(len(of_topic), event["ts"], key, value, headers))
    for topic, of_topic in records.items():
        admin.produce(TopicPartition(topic, 0), batches.entry(2, of_topic))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_application_output_equals_kafka_streams(
    zkconsumer_cluster: Cluster,
    group: str,
    folder: Path,
    oracle: Oracle,
    rng: random.Random,
    unique: Any,
    guarantee: str,
) -> None:
    run = OracleRun(rng, oracle, prefix := unique("p"))
    inputs, outputs = list_inputs(run.requests), [topic for one in run.requests for topic in one["outputs"]]
    for topic in inputs:
        zkconsumer_cluster.create_topic(topic, 1)
    for topic in outputs:
        zkconsumer_cluster.create_topic(topic, 1, config={"max.message.bytes": str(LIMIT)})
    produce(zkconsumer_cluster.admin, run.requests)
    settings: Mapping[str, Any] = {
        "module": "kafka_pipelines",
        "topology": "create",
        "source": prefix,
        "sink": run.seed,
        "group": group,
        "checkpoint": str(folder / "checkpoint"),
        "properties": {"bootstrap.servers": zkconsumer_cluster.bootstrap_servers},
        "query": {"processing_guarantee": guarantee, "available_now": True, "sequence_headers": False},
    }
    with started(Driver, Driver.kill) as start:
        driver = start(folder / "driver", dict(settings))
        assert driver.wait(_RUN_S) == 0, driver.log
    with started(TopicReader, TopicReader.close) as read:
        reader = read(zkconsumer_cluster, dict.fromkeys(outputs, 1))
        reader.finish()

    written = {
        topic: [[one.key, one.value, one.timestamp, list(one.headers)] for one in reader.records[topic, 0]]
        for topic in run.expected
    }
    print(f"{sum(map(len, written.values()))} records in {len(written)} of {len(outputs)} topics")
    assert written == run.expected, run.requests
