"""Random pipelines of the DSL, compared with two releases of Kafka Streams."""

from __future__ import annotations

import os
import random
import re
import secrets
from collections import Counter
from collections.abc import Iterator

import pytest

from zkconsumer.errors import TopologyError

from . import dsl_programs
from .dsl_comparison import Outcome, compare, is_equal_if_rebuilt
from .dsl_generator import PipelineGenerator
from .dsl_invalid import invalid
from .oracle import RELEASES, Oracle

#: Bytes of record caches of every third pipeline.
_CACHE_BYTES = 10 * 1024 * 1024
_EVENTS = 25

#: Number of pipelines, and how many of them must at least run without an error.
SIZES = [
    pytest.param(15, 9, id="sample"),
    pytest.param(300, 240, id="all", marks=[pytest.mark.slow, pytest.mark.timeout(900)]),
]


@pytest.fixture(scope="module", params=RELEASES)
def oracle(request: pytest.FixtureRequest) -> Iterator[Oracle]:
    with Oracle("DslRunner", request.param) as running:
        yield running


@pytest.fixture
def seed() -> int:
    """A new seed, or that in ORACLE_SEED."""
    return int(os.environ.get("ORACLE_SEED", secrets.randbits(32)))


@pytest.mark.parametrize(("count", "least"), SIZES)
def test_pipelines_have_equal_results(oracle: Oracle, seed: int, count: int, least: int) -> None:
    print(f"ORACLE_SEED={seed}: {count} pipelines")
    rng, outcomes, rebuilt = random.Random(seed), Counter[Outcome](), 0
    for number in range(count):
        request = PipelineGenerator(rng, _CACHE_BYTES if number % 3 == 0 else 0).generate(_EVENTS)
        outcome, answer, expected = compare(oracle, request)
        outcomes[outcome] += 1
        assert outcome is not Outcome.DIFFERENT, (request, answer, expected)
        if "error" not in answer:
            assert is_equal_if_rebuilt(request, answer, random.Random(number)), request
            rebuilt += 1
    print("  " + ", ".join(f"{outcome.value}: {number}" for outcome, number in outcomes.items()))
    print(f"  {rebuilt} pipelines also with rebuilt tasks")
    assert outcomes[Outcome.EQUAL] + outcomes[Outcome.CHANGED_AFTER_3_9] > least


def test_invalid_pipelines_are_rejected(oracle: Oracle, seed: int) -> None:
    print(f"ORACLE_SEED={seed}: 60 invalid pipelines")
    rng = random.Random(seed)
    for _ in range(60):
        request, pattern = invalid(rng)
        [expected] = oracle.send([request])
        assert "error" in expected, request
        with pytest.raises(TopologyError) as refused:
            dsl_programs.build(request)
        assert re.search(pattern, str(refused.value)), (request, str(refused.value))
