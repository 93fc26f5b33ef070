"""Reports of sources about batches, in progress reports and from planning processes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from helpers.batch_offsets import offset_json

from zkconsumer import TopicPartition
from zkconsumer.spark.driver import source_reports
from zkconsumer.spark.driver.recent_values import RecentValues
from zkconsumer.spark.driver.source_reports import add_report, find_report, offset_object

A = TopicPartition("t", 0)
END = offset_json({A: (0, 5)})
REPORT = {"consumer": "g_me", "lag": 3}


@pytest.fixture(autouse=True)
def empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_reports, "_reports", RecentValues(2))


@pytest.mark.parametrize("offset", [7, "7", None, "[1]"])
def test_offset_of_other_source_is_empty(offset: Any) -> None:
    assert offset_object(offset) == {}
    assert find_report({"latestOffset": offset}) == {}


@pytest.mark.parametrize("offset", ['{"a": 1}', {"a": 1}])
def test_offset_is_parsed_if_it_is_a_string(offset: Any) -> None:
    assert offset_object(offset) == {"a": 1}


@pytest.mark.parametrize("report", [REPORT, json.dumps(REPORT)], ids=["object", "string"])
def test_report_in_progress_report_is_found(report: Any) -> None:
    assert find_report({"endOffset": END, "latestOffset": report}) == REPORT


@pytest.mark.parametrize("end", [END, json.dumps(END), dict(reversed(END.items()))], ids=["object", "string", "order"])
def test_report_from_planning_process_is_found_by_end_of_batch(end: Any) -> None:
    add_report(END, REPORT)
    add_report(offset_json({A: (5, 9)}), {"lag": 0})

    assert find_report({"endOffset": end, "latestOffset": end}) == REPORT


def test_batch_without_report_has_none() -> None:
    assert find_report({"endOffset": END, "latestOffset": END}) == {}
    assert find_report({"endOffset": END}) == {}


def test_latest_reports_are_kept() -> None:
    ends = [offset_json({A: (0, until)}) for until in range(3)]
    for until, end in enumerate(ends):
        add_report(end, {"lag": until})

    assert [find_report({"latestOffset": end}) for end in ends] == [{}, {"lag": 1}, {"lag": 2}]
