"""Tests of declared settings: types that parse text, error messages, and rows of the documentation."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from zkconsumer.config.declared import REQUIRED, Declared
from zkconsumer.config.types import Boolean, Choice, Duration, Integer, Json, Secret, SettingType, Text
from zkconsumer.errors import ConfigurationError


def declared(type_: SettingType, default: object = None) -> Declared:
    return Declared("x.y", type_, default, "A setting.")


@pytest.mark.parametrize(
    ("text", "seconds"), [("15m", 900), ("90s", 90), ("500ms", 0.5), ("500", 0.5), ("2h", 7200), (" 1 D ", 86400)]
)
def test_durations_have_sparks_format(text: str, seconds: float) -> None:
    assert declared(Duration()).parse(text) == seconds


@pytest.mark.parametrize(
    ("type_", "text", "requirement"),
    [
        (Duration(), "5 weeks", "a duration such as 15m, 90s or 500ms"),
        (Duration(is_positive=True), "0s", "a duration greater than 0, such as 15m, 90s or 500ms"),
        (Integer(1, 9), "10", "an integer between 1 and 9"),
        (Integer(0), "", "an integer between 0 and 2147483647"),
        (Boolean(), "True", "'true' or 'false'"),
        (Choice(("a", "b", "c")), "A", "'a', 'b' or 'c'"),
        (Json("a list", "", len), "5", "a list"),
        (Json("a list", "", len), "[" * 100_000, "a list"),
    ],
)
@pytest.mark.parametrize("what", ["property", "option"])
def test_error_has_name_requirement_and_value(type_: SettingType, text: str, requirement: str, what: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        declared(type_).parse(text, "option" if what == "option" else "property")

    assert str(raised.value).startswith(f"{what} 'x.y' must be {requirement}, got '{text[:200]}'")
    assert len(str(raised.value)) < 400


def test_words_in_any_case_have_documented_form() -> None:
    assert declared(Choice(("PLAIN", "none"), ignores_case=True)).parse("Plain") == "PLAIN"
    assert declared(Boolean(ignores_case=True)).parse("TRUE") is True


def test_blanks_belong_to_secrets_only() -> None:
    assert declared(Secret()).parse(" a ") == " a "
    assert declared(Text()).parse(" a ") == "a"


@dataclass(frozen=True)
class Pin(Secret):
    """A secret with a form."""

    def parse(self, text: str, /) -> str:
        raise ValueError("four digits", f"not {text}")


def test_error_does_not_show_secret() -> None:
    with pytest.raises(ConfigurationError) as raised:
        declared(Pin()).parse("hidden-from-you")

    assert str(raised.value) == "property 'x.y' must be four digits"


@pytest.mark.parametrize(
    ("default", "shown"), [(None, "none"), ("", "none"), (REQUIRED, "required"), (True, "``true``"), (5, "``5``")]
)
def test_row_shows_default(default: object, shown: str) -> None:
    assert declared(Text(), default).row().default == shown
