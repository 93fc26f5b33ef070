"""Pipelines of the DSL on Spark: random ones in one query, compared with Kafka Streams 3.9.2 and tasks in memory."""

from __future__ import annotations

import os
import random
import secrets
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from oracle import dsl_programs
from oracle.oracle import Oracle
from oracle.programs import decode_data

from zkconsumer.spark.streams.plan import TaskNumber

from .scenarios.comparison import compare, describe_difference
from .scenarios.dsl import PipelineCase, PipelineScenarios
from .scenarios.query import run_cases
from .scenarios.task import TaskInMemory

Json = Any


@pytest.fixture
def oracle() -> Iterator[Oracle]:
    with Oracle("DslRunner") as running:
        yield running


#: Numbers of pipelines, of events of each, and of batches in which these are processed.
PIPELINES, EVENTS, BATCHES = 40, 25, 25


@pytest.mark.slow  # test_streams_oracle.py has a sample of topologies on Spark, oracle/test_dsl_oracle.py of pipelines
@pytest.mark.timeout(600)
def test_query_equals_driver_and_tasks_in_memory(spark: Any, oracle: Oracle, folder: Path) -> None:
    seed = int(os.environ.get("ORACLE_SEED", secrets.randbits(32)))
    print(f"ORACLE_SEED={seed}: {PIPELINES} pipelines")
    rng = random.Random(seed)
    scenarios = PipelineScenarios(rng, oracle, BATCHES)
    scenarios.add(PIPELINES, EVENTS)
    print("  " + ", ".join(f"{number} {what}" for what, number in sorted(scenarios.counts.items())))

    results = run_cases(spark, scenarios.cases, folder, rng)

    totals: Counter[str] = Counter()
    differences: list[str] = []
    for case in scenarios.cases:
        result = results[TaskNumber(case.subtopology.number, 0)]
        differences += compare(case, 0, result, totals) + compare_with_driver(case, result.outputs)
    print("  " + ", ".join(f"{number} {what}" for what, number in totals.items()))
    assert not differences, f"{len(differences)} differences:\n" + "\n".join(differences[:3])
    assert len(results) == PIPELINES
    assert totals["outputs"] > PIPELINES


def compare_with_driver(case: PipelineCase, outputs: list[Json]) -> list[str]:
    """Return how outputs and stores differ from those of Kafka Streams.

    With caches, outputs depend on the time of flushes: after each batch on Spark, and after each record in the driver.
    """
    if case.request["cache"]:
        return []
    answer, topics = case.driver_answer, case.request["outputs"]
    found = {topic: [row[2:6] for rows in outputs for row in rows if row[0] == topic] for topic in topics}
    sent = [row for rows in answer["outputs"] for row in rows]
    wanted = {topic: [_decode_row(row) for row in sent if row[0] == topic] for topic in topics}
    task = TaskInMemory(case.subtopology, 0)
    for step in case.steps[0]:
        task.process(step)
    stores = {name: dsl_programs.contents(task.stores.get(name)) for name in case.request["stores"]}
    task.close()
    pairs = {"outputs of Kafka Streams": (found, wanted), "stores of Kafka Streams": (stores, answer["stores"])}
    return [
        describe_difference(case, 0, what, found, wanted) for what, (found, wanted) in pairs.items() if found != wanted
    ]


def _decode_row(row: Json) -> list[Json]:
    """Return key, value, timestamp and headers."""
    _, key, value, timestamp, headers = row
    return [*map(_decode_hex, (key, value)), timestamp, [[name, _decode_hex(data) or ""] for name, data in headers]]


def _decode_hex(data: str | None) -> str | None:
    return decode_data(None if data is None else bytes.fromhex(data))
