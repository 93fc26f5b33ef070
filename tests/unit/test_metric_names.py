"""Tests of the table of metrics."""

from __future__ import annotations

from pathlib import Path

import pytest

from zkconsumer.metric_names import ATTRIBUTES, CONSUMER_METRICS, QUERY_METRICS, MetricRow, to_rst
from zkconsumer.spark.driver.metrics import query_metrics

DOCUMENT = Path(__file__).parents[2] / "docs" / "metrics.rst"


@pytest.mark.parametrize("rows", [CONSUMER_METRICS, QUERY_METRICS], ids=["consumer", "query"])
def test_documentation_contains_the_table(rows: tuple[MetricRow, ...]) -> None:
    """Paste the output of ``to_rst`` into the document when a metric changes."""
    assert to_rst(rows) in DOCUMENT.read_text()


def test_documentation_contains_the_attributes() -> None:
    text = DOCUMENT.read_text()
    assert all(f"- {kind}: {attributes}\n" in text for kind, attributes in ATTRIBUTES.items())


def test_table_lists_metrics_of_query() -> None:
    latest = {
        "latest": {"t": {"0": 1}},
        "recordsLost": {"t": {"0": 1}},
        "recordsSkipped": {},
        "health": "healthy",
        **dict.fromkeys(("lag", "maxOffsetsBehindLatest", "minOffsetsBehindLatest", "owned", "rebalances"), 0),
        **dict.fromkeys(("rereadRecords", "commits", "commitsFailed", "commitAgeSeconds"), 0),
    }
    sources = [{"endOffset": {"group": "g", "ranges": {}}, "latestOffset": latest}]
    found = {f"{name.group}:type={name.type},name={name.name}" for name in query_metrics("q", {"sources": sources})}

    assert found == {row.bean for row in QUERY_METRICS}
