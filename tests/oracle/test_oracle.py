"""Random topologies and scenarios, compared with Kafka Streams 3.9.2."""

from __future__ import annotations

import os
import random
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from zkconsumer.errors import TopologyError

from . import cached_generator, cached_programs, generator, programs, topology_generator
from . import oracle as runner
from .comparison import error_classes, essence, have_same_kind
from .oracle import Oracle, pinned_checksum, source_checksum

#: Numbers of topologies, invalid topologies and scenarios: a sample, and all.
SAMPLE, ALL = (60, 40, 60), (300, 100, 300)

COUNTS = [
    pytest.param(SAMPLE, id="sample"),
    pytest.param(ALL, id="all", marks=[pytest.mark.slow, pytest.mark.timeout(600)]),
]


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    with Oracle() as running:
        yield running


@pytest.fixture
def seed() -> int:
    """A new seed, or that in ORACLE_SEED; pytest prints it if the test fails."""
    number = int(os.environ.get("ORACLE_SEED") or secrets.randbits(32))
    print(f"ORACLE_SEED={number}")
    return number


@pytest.mark.parametrize("counts", COUNTS)
def test_descriptions_and_topic_groups_are_equal(oracle: Oracle, seed: int, counts: tuple[int, int, int]) -> None:
    rng = random.Random(seed)
    requests = [{"steps": topology_generator.topology(rng)} for _ in range(counts[0])]

    for request, expected in zip(requests, oracle.send(requests), strict=True):
        assert programs.describe(request) == expected, request


@pytest.mark.parametrize("counts", COUNTS)
def test_invalid_topologies_are_rejected(oracle: Oracle, seed: int, counts: tuple[int, int, int]) -> None:
    rng = random.Random(seed)
    cases = [topology_generator.invalid(rng) for _ in range(counts[1])]

    for case, answer in zip(cases, oracle.send([case.request for case in cases]), strict=True):
        with pytest.raises(TopologyError) as refused:
            programs.describe(case.request)
        assert re.search(case.message, str(refused.value)), case
        assert have_same_kind({"error": error_classes(refused.value)}, answer), (case, answer)


@pytest.mark.parametrize("counts", COUNTS)
def test_scenarios_have_equal_results(oracle: Oracle, seed: int, counts: tuple[int, int, int]) -> None:
    rng = random.Random(seed)
    requests = [generator.scenario(rng) for _ in range(counts[2])]

    for request, expected in zip(requests, oracle.send(requests), strict=True):
        assert_equal(programs.run(request), expected, request)


@pytest.mark.parametrize("counts", COUNTS)
def test_cached_scenarios_have_equal_results(oracle: Oracle, seed: int, counts: tuple[int, int, int]) -> None:
    rng = random.Random(seed)
    requests = [cached_generator.scenario(rng) for _ in range(counts[2])]

    for request, expected in zip(requests, oracle.send(requests), strict=True):
        assert_equal(cached_programs.run_cached(request), expected, request)


def assert_equal(answer: Any, expected: Any, request: Any) -> None:
    """Fail unless the essence of both answers is equal."""
    assert essence(answer) == essence(expected), request
    assert have_same_kind(answer, expected), (answer["text"], expected["text"], request)


def test_pinned_classes_belong_to_source() -> None:
    assert pinned_checksum() == source_checksum(), "run make oracle-jar"


def test_pinned_classes_answer_without_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(runner, "compiler", lambda: tmp_path / "javac")
    with Oracle() as pinned:
        [answer] = pinned.send([{"steps": [{"call": "source", "name": "a", "topics": ["t"]}]}])

    assert answer["groups"] == {"0": {"sources": ["t"], "sinks": []}}
