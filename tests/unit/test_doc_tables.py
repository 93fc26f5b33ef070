"""Tests of the tables that are generated when the documentation is built."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

from zkconsumer.errors import ConfigurationError
from zkconsumer.health import HealthState
from zkconsumer.spark.driver.metrics import query_metrics
from zkconsumer.spark.streams.settings import _RESERVED, QuerySettings

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def tables() -> Any:
    specification = importlib.util.spec_from_file_location("tables", DOCS / "tables.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def rows(table: str) -> list[list[str]]:
    """Return the cells of a table, without the header."""
    return [re.split(r"\n     - ?", row) for row in re.split(r"^   \* - ", table, flags=re.MULTILINE)[2:]]


def test_pages_include_every_table(tables: Any) -> None:
    included = [
        name for page in DOCS.glob("*.rst") for name in re.findall(r"include:: _tables/(\S+)", page.read_text())
    ]

    assert sorted(included) == sorted(tables.TABLES)


def test_rows_have_all_cells(tables: Any) -> None:
    for name, render in tables.TABLES.items():
        if "list-table" in (text := render()):
            found = rows(text)
            assert found, name
            assert {len(row) for row in found} == {len(text.split("   * - ")[1].split("\n     - "))}, name


def test_declared_metrics_are_those_of_query(tables: Any) -> None:
    latest = {
        "latest": {"t": {"0": 1}},
        "recordsLost": {"t": {"0": 1}},
        "recordsSkipped": {},
        "health": "healthy",
        **dict.fromkeys(("lag", "maxOffsetsBehindLatest", "minOffsetsBehindLatest", "owned", "rebalances"), 0),
        **dict.fromkeys(("rereadRecords", "commits", "commitsFailed", "commitAgeSeconds"), 0),
    }
    sources = [{"endOffset": {"group": "g", "ranges": {}}, "latestOffset": latest}]
    found = {
        f"``{name.group}:type={name.type},name={name.name}``"
        for name in query_metrics("q", {"sources": sources}, HealthState.HEALTHY)
    }

    listener = "zkconsumer.spark:type=QueryListener,name="
    commits = {f"``{listener}CommitsSucceeded``", f"``{listener}CommitsFailed``"}
    assert {row[0] for row in rows(tables.metrics_table("zkconsumer.spark"))} == found | commits


@pytest.mark.parametrize(("name", "groups"), [("properties", "PROPERTY_GROUPS"), ("spark-options", "OPTION_GROUPS")])
def test_every_setting_has_a_labelled_section_in_a_group(tables: Any, name: str, groups: str) -> None:
    text: str = tables.TABLES[f"{name}.rst"]()
    titles = re.findall(r"^(.+)\n-+$", text, re.MULTILINE)
    labels = re.findall(r"^\.\. _(.+):\n\n``(.+)``\n~+\n\n\S", text, re.MULTILINE)

    assert titles == list(getattr(tables, groups).values()), "each group begins with an existing setting, in order"
    assert len(labels) == text.count("\n:Type: ")
    assert [label for label, _ in labels] == [tables.label(labels[0][0].partition("-")[0], name) for _, name in labels]


def test_reserved_producer_properties_are_listed() -> None:
    text = (DOCS / "topologies-on-spark.rst").read_text()
    _, _, after = text.partition("must not contain the properties that the application sets:")
    listed = re.findall(r"``(\S+)``", after.partition(". To change")[0])
    assert listed
    assert set(listed) == _RESERVED
    for name in listed:
        with pytest.raises(ConfigurationError, match=name):
            QuerySettings(producer={name: "x"})
        assert f"``{name}``" in (QuerySettings.__doc__ or "")
