"""Tests of topic filters and of the translation of Java's regular expressions, with the cases of Kafka's tests."""

from __future__ import annotations

import pytest

from zkconsumer import Blacklist, Whitelist
from zkconsumer.errors import ConfigurationError
from zkconsumer.rebalance.topic_filter import filter_of
from zkconsumer.zookeeper.registry import Registration


@pytest.mark.parametrize(
    ("text", "regex"), [("  'foo , bar'  ", "foo|bar"), ('"x.*"', "x.*"), ("a,b", "a|b"), ("a b", "ab")]
)
def test_filter_text_is_normalised_like_original(text: str, regex: str) -> None:
    assert Whitelist(text).regex == regex


@pytest.mark.parametrize("text", ["a{1,3}", "[a", "x{,3}", "(a", "a)", "*a", "a{b}", "{2}", "a**", "\\"])
def test_invalid_java_expressions_are_refused(text: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        Whitelist(text)

    assert Whitelist.__name__ not in str(raised.value)
    assert text.replace(",", "|") in str(raised.value).replace("\\\\", "\\")


@pytest.mark.parametrize(
    "text",
    [
        "[a-z&&[^x]]",
        "[[:alpha:]]",
        "[a[b]]",
        "[]a]",
        "a(?i)b",
        "(?x)a",
        r"\G",
        r"\p{IsLatin}",
        r"\x{61}",
        r"\cA",
        r"[\Qa]",
    ],
)
def test_ambiguous_expressions_are_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"is not supported|is an invalid regex"):
        Whitelist(text)


@pytest.mark.parametrize(
    ("text", "matching", "others"),
    [
        ("white1,white2", ["white1", "white2"], ["black1", "white11", "awhite1"]),
        (r"test-(?!bad\b)[\w]+", ["test-good"], ["test-bad"]),
        (".+", ["anything"], [""]),
        (r"\Qa.b\E.*", ["a.b", "a.bc"], ["axb"]),
        (r"\p{Alpha}+", ["abC"], ["a1", "ä"]),
        (r"[\p{Digit}_]+", ["1_2"], ["a"]),
        (r"(?<year>\d{4})-\d+", ["2026-11"], ["x-1"]),
        (r"a++b", ["aab"], ["b"]),
        (r"(?i)orders", ["ORDERS", "orders"], ["order"]),
        (r"\w+", ["abc_1"], ["a-b", "ä"]),
        (r"[^a-c]x", ["dx", "^x"], ["ax"]),
        (r"[a-]x", ["ax", "-x"], ["bx"]),
        (r"[a^]x", ["ax", "^x"], ["bx"]),
        (r"a#b", ["a#b"], ["a"]),
        (r"a.{2}", ["abc"], ["ab"]),
        (r"\x41\u0042", ["AB"], ["ab"]),
        (r"^a$", ["a"], ["b"]),
        (r"a}]", ["a}]"], ["a"]),
        (r"(?<=a)b|ab", ["ab"], ["b"]),
        (r"\H+", ["ab"], ["a\tb"]),
    ],
)
def test_names_match_completely_as_in_java(text: str, matching: list[str], others: list[str]) -> None:
    for topic in matching:
        assert Whitelist(text).is_topic_allowed(topic), topic
        assert not Blacklist(text).is_topic_allowed(topic), topic
    for topic in others:
        assert not Whitelist(text).is_topic_allowed(topic), topic
        assert Blacklist(text).is_topic_allowed(topic), topic


@pytest.mark.parametrize("internal", ["__consumer_offsets", "__transaction_state"])
def test_internal_topics_are_excluded_by_default(internal: str) -> None:
    for topics in (Whitelist(".+"), Blacklist("black1")):
        assert not topics.is_topic_allowed(internal)
        assert topics.is_topic_allowed(internal, exclude_internal_topics=False)


def test_registration_is_read_literally() -> None:
    twice = Registration.from_json("/ids/a", rb'{"version":1,"subscription":{"foo\\\\.bar":1},"pattern":"white_list"}')

    assert not filter_of(twice).is_topic_allowed("foo.bar")
    assert filter_of(twice).is_topic_allowed("foo\\xbar")


def test_filter_repr_names_kind_and_expression() -> None:
    assert repr(Whitelist(" a, b")) == "Whitelist('a|b')"
    assert repr(Blacklist("a")) == "Blacklist('a')"
