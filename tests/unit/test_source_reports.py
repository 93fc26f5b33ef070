"""Reports of sources about batches, in progress reports."""

from __future__ import annotations

import json
from typing import Any

import pytest

from zkconsumer.spark.driver.source_reports import find_report, offset_object

REPORT = {"consumer": "g_me", "lag": 3}


@pytest.mark.parametrize("offset", [7, "7", None, "[1]"])
def test_offset_of_other_source_is_empty(offset: Any) -> None:
    assert offset_object(offset) == {}
    assert find_report({"latestOffset": offset}) == {}


@pytest.mark.parametrize("report", [REPORT, json.dumps(REPORT)], ids=["object", "string"])
def test_report_in_progress_report_is_found(report: Any) -> None:
    assert find_report({"endOffset": {}, "latestOffset": report}) == REPORT
