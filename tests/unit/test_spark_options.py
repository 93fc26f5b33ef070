"""Tests that the table of the data source's options matches its documentation."""

from __future__ import annotations

import pytest

from zkconsumer.config.declared import Declared
from zkconsumer.config.properties import property_names
from zkconsumer.spark.options import table
from zkconsumer.spark.options.option_reader import OptionReader
from zkconsumer.spark.options.starting_offsets import StartingOffsets
from zkconsumer.spark.options.subscription import NAMES
from zkconsumer.spark.options.table import OPTIONS


def test_options_have_distinct_names_in_any_case() -> None:
    assert len(table.BY_NAME) == len(OPTIONS)
    assert not {*table.REJECTED_PROPERTIES, *table.REJECTED_SPARK_OPTIONS} & table.BY_NAME.keys()
    assert table.REJECTED_PROPERTIES.keys() <= set(property_names())


def test_only_properties_have_dotted_names() -> None:
    dotted = {option.name for option in OPTIONS if "." in option.name}

    assert dotted - set(property_names()) == {"decoder.*"}


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_absent_option_has_its_default(option: Declared) -> None:
    given = {} if option.default is None else {option.name: str(option.default)}

    assert OptionReader({})[option.name] == (OptionReader(given)[option.name] if given else None)


@pytest.mark.parametrize("prefix", ["starting", "ending"])
def test_documented_default_of_offsets_is_the_mode(prefix: str) -> None:
    assert StartingOffsets.parse(OptionReader({}), prefix=prefix).mode == table.BY_NAME[f"{prefix}offsets"].default


def test_first_options_are_the_required_alternatives() -> None:
    assert {option.name for option in OPTIONS[: len(NAMES)]} == set(NAMES)
