"""The examples of topologies, and the programs of their guide and tutorial."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from zkconsumer.topology import (
    ApplicationConfig,
    ErrorContext,
    ErrorResponse,
    Processor,
    ProcessorContext,
    Record,
    Topology,
    TopologyTestDriver,
    serdes,
)

ROOT = Path(__file__).parents[2]

_CODE = re.compile(r"\.\. code-block:: python\n\n((?:    .*\n|\n)+)")
_PROGRAM = re.compile(r"[Ss]ave this as ``(\w+\.py)``.*\n\n" + _CODE.pattern)


def run_pytest(folder: Path, *names: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *names]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=60)

    assert done.returncode == 0, done.stdout


def guide_program(line: str) -> dict[str, Any]:
    """Return the names that the program with a line defines."""
    text = (ROOT / "docs" / "topologies.rst").read_text()
    [code] = [block for block in _CODE.findall(text) if line in block]
    names: dict[str, Any] = {}
    exec(textwrap.dedent(code), names)
    return names


def test_examples_pass_their_own_tests() -> None:
    with_servers = {ROOT / "examples" / "test_with_cluster.py"}
    examples = sorted({*(ROOT / "examples").glob("test_*.py")} - with_servers)
    assert len(examples) >= 5

    run_pytest(ROOT, *map(str, examples))


def test_programs_of_dsl_guide_have_described_results() -> None:
    programs = _CODE.findall((ROOT / "docs" / "streams-builder.rst").read_text())
    assert len(programs) == 2
    for program in programs:
        exec(textwrap.dedent(program), {})


def test_custom_store_of_guide_works() -> None:
    names = guide_program("class HighestStore")

    class Offer(Processor):
        def init(self, context: ProcessorContext) -> None:
            self._context, self._highest = context, context.get_state_store("highest")

        def process(self, record: Record) -> None:
            if self._highest.offer(record.key, int(record.value)):
                self._context.forward(record)

    topology = Topology().add_source("in", "in").add_processor("offer", Offer, "in", stores=[names["highest"]])
    topology.add_sink("out", "out", "offer")
    with TopologyTestDriver(topology) as driver:
        driver.create_input_topic("in").pipe_key_values([(b"a", b"5"), (b"a", b"4"), (b"b", b"1"), (b"a", b"300")])

        assert driver.create_output_topic("out").read_values() == [b"5", b"1", b"300"]


@pytest.mark.parametrize(
    ("times", "expected", "late"),
    [
        ((1, 59, 61, 20, 130), [("a", 3, 0), ("a", 1, 60)], 0),
        ((1, 59, 61, 20, 86_400), [("a", 3, 0), ("a", 1, 60)], 0),
        ((0, 69, 30, 70, 40, 129, 140), [("a", 2, 0), ("a", 2, 60)], 1),
    ],
)
def test_window_example_of_guide_forwards_all_windows(
    times: tuple[int, ...], expected: list[tuple[str, int, int]], late: int
) -> None:
    names = guide_program("class CountPerMinute")
    topology = Topology().add_source("in", "in")
    topology.add_processor("count", names["CountPerMinute"], "in", stores=[names["counts"]])
    topology.add_sink("out", "out", "count", value_serializer=serdes.LONG.serialize)
    with TopologyTestDriver(topology, ApplicationConfig(key_serde=serdes.STRING)) as driver:
        topic = driver.create_input_topic("in")
        for time in times:
            topic.pipe_input("a", b"", time * 1_000)

        records = driver.create_output_topic("out", value_deserializer=serdes.LONG.deserialize).read_records()
        assert [(record.key, record.value, record.timestamp // 1_000) for record in records] == expected
        assert driver.metrics.get("count/late", 0) == late


def test_handler_of_guide_works() -> None:
    config = guide_program("def drop_bad_values")["config"]
    context = ErrorContext("processing", "0_0", "p", None, 0)

    assert config.processing_handler(context, ValueError()) is ErrorResponse.CONTINUE
    assert config.processing_handler(context, KeyError()) is ErrorResponse.FAIL


def test_programs_of_guide_run(tmp_path: Path) -> None:
    programs = dict(_PROGRAM.findall((ROOT / "docs" / "topologies.rst").read_text()))
    assert list(programs) == ["counting.py", "test_counting.py"]
    for name, text in programs.items():
        (tmp_path / name).write_text(textwrap.dedent(text))
    command = [sys.executable, "counting.py"]

    described = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60)

    assert described.stdout.startswith("Topologies:\n   Sub-topology: 0\n    Source: words (topics: [words-in])\n")
    run_pytest(tmp_path, "test_counting.py")


def test_topology_of_tutorial_passes_its_test(tmp_path: Path) -> None:
    programs = dict(_PROGRAM.findall((ROOT / "docs" / "topology-tutorial.rst").read_text()))
    assert list(programs) == ["wordcount.py", "test_wordcount.py", "run_wordcount.py"]
    for name, text in programs.items():
        (tmp_path / name).write_text(textwrap.dedent(text))

    run_pytest(tmp_path, "test_wordcount.py")


def test_topology_of_dsl_tutorial_passes_its_test(tmp_path: Path) -> None:
    steps, test = read_dsl_tutorial()
    (tmp_path / "wordcount.py").write_text(steps)
    (tmp_path / "test_wordcount.py").write_text(test)

    run_pytest(tmp_path, "test_wordcount.py")
    described = subprocess.run(
        [sys.executable, "wordcount.py"], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60
    )

    assert "Sub-topology: 1" in described.stdout
    assert "topic: counts-repartition" in described.stdout


def read_dsl_tutorial() -> tuple[str, str]:
    """Return the program that a reader has appended to ``wordcount.py`` step by step, and its test."""
    programs = [
        textwrap.dedent(one) for one in _CODE.findall((ROOT / "docs" / "streams-builder-tutorial.rst").read_text())
    ]
    *steps, test, _ = programs
    assert len(steps) == 4
    return "\n".join(steps), test
