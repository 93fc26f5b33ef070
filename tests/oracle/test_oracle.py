"""Random topologies and scenarios, compared with two releases of Kafka Streams."""

from __future__ import annotations

import os
import random
import re
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from zkconsumer.errors import TopologyError

from . import cached_generator, cached_programs, generator, programs, topology_generator
from . import oracle as runner
from .comparison import error_classes, essence, have_same_kind
from .oracle import RELEASES, Oracle, pinned_checksum, source_checksum

#: Numbers of topologies, invalid topologies and scenarios for each seed.
TOPOLOGIES, INVALID, SCENARIOS = 20, 15, 20

#: Messages about topologies that zkconsumer and Kafka Streams 3.9.2 reject, but later releases do not.
ACCEPTED_SINCE_4 = {"logging must be False"}

SEEDS = [
    pytest.param(1, id="sample"),
    pytest.param(30, id="all", marks=[pytest.mark.slow, pytest.mark.timeout(900)]),
]


@pytest.fixture(scope="module", params=RELEASES)
def oracle(request: pytest.FixtureRequest) -> Iterator[Oracle]:
    with Oracle(release=request.param) as running:
        yield running


@pytest.fixture(params=SEEDS)
def seeds(request: pytest.FixtureRequest) -> list[int]:
    """New seeds, or that in ORACLE_SEED. The last one that was printed is that of a failure."""
    if "ORACLE_SEED" in os.environ:
        return [int(os.environ["ORACLE_SEED"])]
    return [secrets.randbits(32) for _ in range(request.param)]


def test_descriptions_and_topic_groups_are_equal(oracle: Oracle, seeds: list[int]) -> None:
    for rng in generators(seeds, f"{TOPOLOGIES} topologies"):
        requests = [{"steps": topology_generator.topology(rng)} for _ in range(TOPOLOGIES)]
        for request, expected in zip(requests, oracle.send(requests), strict=True):
            assert programs.describe(request) == expected, request


def test_invalid_topologies_are_rejected(oracle: Oracle, seeds: list[int]) -> None:
    for rng in generators(seeds, f"{INVALID} invalid topologies"):
        cases = [topology_generator.invalid(rng) for _ in range(INVALID)]
        for case, answer in zip(cases, oracle.send([case.request for case in cases]), strict=True):
            with pytest.raises(TopologyError) as refused:
                programs.describe(case.request)
            assert re.search(case.message, str(refused.value)), case
            if case.message in ACCEPTED_SINCE_4 and oracle.release != "3.9.2":
                assert "error" not in answer, (case, answer)
                continue
            assert have_same_kind({"error": error_classes(refused.value)}, answer), (case, answer)


@pytest.mark.parametrize(
    "create", [generator.scenario, pytest.param(generator.waiting_scenario, marks=pytest.mark.slow)]
)
def test_scenarios_have_equal_results(
    oracle: Oracle, seeds: list[int], create: Callable[[random.Random], dict[str, Any]]
) -> None:
    for rng in generators(seeds, f"{SCENARIOS} scenarios of {create.__name__}"):
        requests = [create(rng) for _ in range(SCENARIOS)]
        answers = oracle.send(requests)
        for request, expected in zip(requests, answers, strict=True):
            assert_equal(programs.run(request), expected, request)
        print(f"  {sum('error' in answer for answer in answers)} of them failed on both sides")


def test_cached_scenarios_have_equal_results(oracle: Oracle, seeds: list[int]) -> None:
    for rng in generators(seeds, f"{SCENARIOS} cached scenarios"):
        requests = [cached_generator.scenario(rng) for _ in range(SCENARIOS)]
        for request, expected in zip(requests, oracle.send(requests), strict=True):
            assert_equal(cached_programs.run_cached(request), expected, request)


def generators(seeds: list[int], what: str) -> Iterator[random.Random]:
    """Print each seed and what is generated with it, and return its random number generator."""
    for seed in seeds:
        print(f"ORACLE_SEED={seed}: {what}")
        yield random.Random(seed)


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
