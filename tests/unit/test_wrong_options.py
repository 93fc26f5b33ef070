"""Invalid values of every data source option: the error names the option."""

from __future__ import annotations

import random
from typing import Any

import pytest

from zkconsumer.config.types import Boolean, Choice, Duration, Integer, Json
from zkconsumer.errors import ConfigurationError
from zkconsumer.spark.options.source_options import SourceOptions
from zkconsumer.spark.options.table import BY_NAME, OPTIONS
from zkconsumer.spark.options.types import Columns, Expression, OffsetsOption, Timestamp, TopicNames

REQUIRED = {"zookeeper.connect": "127.0.0.1:1", "group.id": "g", "subscribe": "t"}

_NEVER_A_NUMBER = ["", " ", "x", "1.5", "1e3", "0x10", "1_0", "\u0661", "None", "null", "nan", "--1", "9" * 30]
_JSON = ["", "x", "5", "[]", "null", '"t"', "{", '{"t":null}', '{"t":[1.5]}', '{"t":{"0":"x"}}', '{"t":{"x":0}}']
_JSON += ['{"a b":{"0":1}}', '{"t":{"0":null}}', '{"t":true}', "[" * 10_000]
_JSON += [f'{{"t":{{"{number}":1}}}}' for number in ("1_0", " 0", "+1", "-1", "00", "\u0660", "9" * 11, "")]

#: Invalid values of each option type.
WRONG: dict[type, list[str]] = {
    Integer: [*_NEVER_A_NUMBER, "0", "-1", str(1 << 63)],
    Boolean: ["", "yes", "1", "None", "truefalse"],
    Choice: ["", "x", "nothing", "group,none", "1"],
    Duration: ["", "x", "-1s", "1 week", "1.5s", "None", "\u0661s", "9" * 30],
    Timestamp: [*_NEVER_A_NUMBER, "-1", "2024-01-01"],
    TopicNames: ["", ",", "a b", "a/b", "..", "a" * 250, "\u00e9"],
    Expression: ["a(", "[", "*", "a{2,1}", "(" * 10_000],
    Columns: ["", "x", "key,key", "key value", "None"],
    Json: _JSON,
    OffsetsOption: [*_JSON, "newest", '{"t":{"0":-3}}', '{"t":"newest"}', '{"t":{"0":1.5}}'],
}
NAMES = [option.name for option in OPTIONS if type(option.type) in WRONG]


def settings(name: str, value: Any) -> tuple[dict[str, Any], bool]:
    """Return options with this value, and whether they are those of a batch read."""
    given: dict[str, Any] = dict(REQUIRED)
    if name in ("subscribePattern", "whitelist", "blacklist", "assign"):
        del given["subscribe"]
    if name == "assign":
        given["membership"] = "none"
    return {**given, name: value}, name.startswith("ending")


def test_every_option_has_invalid_values() -> None:
    assert {option.name for option in OPTIONS} - set(NAMES) == {"decoder", "decoder.*"}


@pytest.mark.parametrize("name", NAMES)
def test_invalid_value_is_rejected_with_option_name(name: str) -> None:
    for value in WRONG[type(BY_NAME[name.lower()].type)]:
        given, batch = settings(name, value)
        with pytest.raises(ConfigurationError) as refusal:
            SourceOptions.parse(given, batch=batch)
        assert name in str(refusal.value), value
        assert len(str(refusal.value)) < 1500, value


@pytest.mark.parametrize("seed", range(100))
def test_every_invalid_option_is_named(seed: int) -> None:
    """Options can have other types than strings if Spark is not involved."""
    rng = random.Random(seed)
    names = rng.sample([name for name in NAMES if not name.startswith(("ending", "subscribe"))], 3)
    given: dict[str, Any] = dict(REQUIRED)
    for name in names:
        given[name] = rng.choice([*WRONG[type(BY_NAME[name.lower()].type)], object(), b"x", ("x",), None])
    with pytest.raises(ConfigurationError) as refusal:
        SourceOptions.parse(given)
    assert any(name in str(refusal.value) for name in names), (names, given)
