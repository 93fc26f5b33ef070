"""Tests that the table of the data source's options matches its documentation."""

from __future__ import annotations

from pathlib import Path

import pytest

from zkconsumer.config.properties import property_names
from zkconsumer.spark.options import table
from zkconsumer.spark.options.limits import Limits
from zkconsumer.spark.options.option_reader import OptionReader
from zkconsumer.spark.options.source_options import COLUMNS
from zkconsumer.spark.options.starting_offsets import StartingOffsets
from zkconsumer.spark.options.subscription import NAMES
from zkconsumer.spark.options.table import OPTIONS, SourceOption


def test_table_of_options_is_the_documented_one() -> None:
    """Paste the output of ``documentation()`` into the document when an option changes."""
    document = Path(__file__).parents[2] / "docs" / "spark-options.rst"

    assert document.read_text().endswith(f"\n\n{table.documentation()}")


def test_options_have_distinct_names_in_any_case() -> None:
    assert len(table.BY_NAME) == len(OPTIONS)
    assert not {*table.REFUSED_PROPERTIES, *table.REFUSED_SPARK_OPTIONS} & table.BY_NAME.keys()
    assert table.REFUSED_PROPERTIES.keys() <= set(property_names())


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_default_of_each_option_is_valid(option: SourceOption) -> None:
    reader = OptionReader({} if option.default is None else {option.name: option.default})

    if option.choices:
        assert reader.choice(option.name) == option.default
    elif option.type == "integer":
        assert (reader.optional_integer(option.name) is None) is (option.default is None)
    elif option.type == "duration":
        assert (reader.optional_duration(option.name) is None) is (option.default is None)
    else:
        assert reader.text(option.name) == option.default


@pytest.mark.parametrize("prefix", ["starting", "ending"])
def test_documented_default_of_offsets_is_the_mode(prefix: str) -> None:
    default = table.BY_NAME[f"{prefix}offsets"].default
    assert default is not None

    assert StartingOffsets.parse(OptionReader({}), prefix=prefix, default=default).mode == default


def test_first_options_are_the_required_alternatives() -> None:
    assert {option.name for option in OPTIONS[: len(NAMES)]} == set(NAMES)


def test_documented_columns_are_those_of_the_source() -> None:
    assert [name.strip(" `") for name in table.BY_NAME["columns"].valid.split(",")] == list(COLUMNS)


def test_default_limits_are_the_documented_ones() -> None:
    assert Limits.parse(OptionReader({})) == Limits()
