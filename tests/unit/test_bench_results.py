"""Raw results of benchmarks in JSON files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.report import FOLDER, to_json

RUNS: list[dict[str, Any]] = [{"seconds": 1.5, "curve": [[0, 1], [2, 3]]}, {"seconds": 2.5, "curve": []}]


def test_runs_have_one_line_each() -> None:
    results = {"count": [{"who": "zkconsumer", "median": 2.0, "runs": RUNS}], "measured": {}}
    assert to_json(results).splitlines() == [
        "{",
        ' "count": [',
        "  {",
        '   "who": "zkconsumer",',
        '   "median": 2.0,',
        '   "runs": [',
        f"    {json.dumps(RUNS[0])},",
        f"    {json.dumps(RUNS[1])}",
        "   ]",
        "  }",
        " ],",
        ' "measured": {}',
        "}",
    ]


def test_runs_of_each_client_have_one_line_each() -> None:
    lines = to_json({"cases": {"gzip": {"runs": {"zkconsumer": RUNS, "other": RUNS}}}}).splitlines()
    assert [line.strip().rstrip(",") for line in lines].count(json.dumps(RUNS[0])) == 2


def test_rows_without_runs_have_one_line_each() -> None:
    assert to_json({"decoder": RUNS, "memory": {"all": RUNS[0]}}).splitlines() == [
        "{",
        ' "decoder": [',
        f"  {json.dumps(RUNS[0])},",
        f"  {json.dumps(RUNS[1])}",
        " ],",
        ' "memory": {',
        f'  "all": {json.dumps(RUNS[0])}',
        " }",
        "}",
    ]


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.name)
def test_stored_results_are_written_unchanged(path: Path) -> None:
    text = path.read_text()
    assert to_json(json.loads(text)) + "\n" == text
