"""Tests of texts that messages quote."""

from __future__ import annotations

from zkconsumer import excerpt


def test_text_is_quoted_up_to_its_limit() -> None:
    longest = "x" * excerpt._MAX_LENGTH
    assert excerpt.excerpt(longest) == repr(longest)
    assert excerpt.excerpt(longest + "x") != repr(longest + "x")
