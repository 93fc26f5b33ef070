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
        assert "error" in answer, case
        with pytest.raises(TopologyError) as refused:
            programs.describe(case.request)
        assert re.search(case.message, str(refused.value)), case


@pytest.mark.parametrize("counts", COUNTS)
def test_scenarios_have_equal_results(oracle: Oracle, seed: int, counts: tuple[int, int, int]) -> None:
    rng = random.Random(seed)
    requests = [generator.scenario(rng) for _ in range(counts[2])]

    for request, expected in zip(requests, oracle.send(requests), strict=True):
        assert essence(programs.run(request)) == essence(expected), request


@pytest.mark.parametrize("counts", COUNTS)
def test_cached_scenarios_have_equal_results(oracle: Oracle, seed: int, counts: tuple[int, int, int]) -> None:
    rng = random.Random(seed)
    requests = [cached_generator.scenario(rng) for _ in range(counts[2])]

    for request, expected in zip(requests, oracle.send(requests), strict=True):
        assert essence(cached_programs.run_cached(request)) == essence(expected), request


def essence(answer: Any) -> Any:
    """Return what must be equal: the text of an error is not, and after an error the JVM does not show its stores."""
    answer = dict(answer)
    answer.pop("text", None)
    answer.pop("close", None)
    if "error" in answer:
        answer["error"] = True
    if "stores" in answer:
        answer["stores"] = {name: lines for name, lines in answer["stores"].items() if lines}
    return answer


def test_pinned_classes_belong_to_source() -> None:
    assert pinned_checksum() == source_checksum(), "run make oracle-jar"


def test_pinned_classes_answer_without_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(runner, "compiler", lambda: tmp_path / "javac")
    with Oracle() as pinned:
        [answer] = pinned.send([{"steps": [{"call": "source", "name": "a", "topics": ["t"]}]}])

    assert answer["groups"] == {"0": {"sources": ["t"], "sinks": []}}
