"""Topologies on Spark: random scenarios in one query, compared with Kafka Streams 3.9.2 and with tasks in memory."""

from __future__ import annotations

import os
import random
import secrets
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from oracle.oracle import Oracle

from zkconsumer.spark.streams.plan import TaskNumber

from .scenarios.cases import Scenarios, list_tasks
from .scenarios.comparison import compare
from .scenarios.query import run_cases

#: Maximum number of differences that are printed.
_PRINTED = 3


@pytest.fixture
def oracle() -> Iterator[Oracle]:
    with Oracle() as running:
        yield running


@pytest.mark.parametrize(
    ("count", "max_batches"),
    [
        pytest.param(4, 10, id="sample"),
        pytest.param(60, 20, id="all", marks=[pytest.mark.slow, pytest.mark.timeout(600)]),
    ],
)
def test_query_equals_driver_and_tasks_in_memory(
    spark: Any, oracle: Oracle, folder: Path, count: int, max_batches: int
) -> None:
    seed = int(os.environ.get("ORACLE_SEED", secrets.randbits(32)))
    print(f"ORACLE_SEED={seed}: twice {count} scenarios")
    rng = random.Random(seed)
    scenarios = Scenarios(rng, oracle, max_batches)
    scenarios.add_cut_in_order(count)
    scenarios.add_cut_anywhere(count)
    for what, number in sorted(scenarios.counts.items()):
        print(f"  {number} {what}")

    results = run_cases(spark, scenarios.cases, folder, rng)

    totals: Counter[str] = Counter()
    differences: list[str] = []
    for case, partition in list_tasks(scenarios.cases):
        result = results[TaskNumber(case.subtopology.number, partition)]
        differences += compare(case, partition, result, totals)
    print("  " + ", ".join(f"{number} {what}" for what, number in totals.items()))
    assert not differences, f"{len(differences)} differences:\n" + "\n".join(differences[:_PRINTED])
    assert set(results) == {TaskNumber(case.subtopology.number, number) for case, number in list_tasks(scenarios.cases)}
    assert count < 50 or all(totals.values()), totals
