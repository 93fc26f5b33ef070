"""Tests of topic filters and of the translation of Java's regular expressions, with the cases of Kafka's tests."""

from __future__ import annotations

import itertools
import pickle
import re
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zkconsumer import Blacklist, Whitelist, topic_filter
from zkconsumer.errors import ConfigurationError
from zkconsumer.rebalance.context import create_filter
from zkconsumer.topic_filter import MATCH_TIMEOUT_S
from zkconsumer.zookeeper.registry import Registration


@pytest.mark.parametrize(
    ("text", "regex"), [("  'foo , bar'  ", "foo|bar"), ('"x.*"', "x.*"), ("a,b", "a|b"), ("a b", "ab")]
)
def test_filter_text_is_normalised_like_original(text: str, regex: str) -> None:
    assert Whitelist(text).regex == regex


@pytest.mark.parametrize("text", ["a{1,3}", "[a", "x{,3}", "(a", "a)", "*a", "a{b}", "{2}", "a**", "\\"])
def test_invalid_java_expressions_are_rejected(text: str) -> None:
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
def test_ambiguous_expressions_are_rejected(text: str) -> None:
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
        (r"a\){2}+", [], ["a"]),
        (r"(?i)orders", ["ORDERS", "orders"], ["order"]),
        (r"(?i)\p{Alpha}+", ["aB"], ["1"]),
        (r"\p{Lower}+", ["ab"], ["aB"]),
        (r"\w+", ["abc_1"], ["a-b", "ä"]),
        (r"[^a-c]x", ["dx", "^x"], ["ax"]),
        (r"[a-]x", ["ax", "-x"], ["bx"]),
        (r"[-a]x", ["ax", "-x"], ["bx"]),
        (r"a\Q.b", ["a.b"], ["axb"]),
        (r"a\Q\Eb", ["ab"], ["a"]),
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
        assert topics.select([internal, "a"]) == ["a"]


def test_registration_is_read_literally() -> None:
    twice = Registration.from_json("/ids/a", rb'{"version":1,"subscription":{"foo\\\\.bar":1},"pattern":"white_list"}')

    assert not create_filter(twice).is_topic_allowed("foo.bar")
    assert create_filter(twice).is_topic_allowed("foo\\xbar")


def test_filter_repr_names_kind_and_expression() -> None:
    assert repr(Whitelist(" a, b")) == "Whitelist('a|b')"
    assert repr(Blacklist("a")) == "Blacklist('a')"


# ---- limits -----------------------------------------------------------------------------------------

#: Matching this expression with ``TOPIC`` takes exponential time.
CATASTROPHIC = r"([\w-]|[\w-]{2})+[.]x|never"
TOPIC = "orders-" * 20


def test_catastrophic_expression_ends_within_time_limit() -> None:
    slow, stop, turns = Whitelist(CATASTROPHIC), threading.Event(), itertools.count()

    def run_beside() -> None:
        while not stop.wait(0.01):
            next(turns)

    beside = threading.Thread(target=run_beside)
    beside.start()
    started, used = time.monotonic(), time.process_time()
    try:
        with pytest.raises(ConfigurationError, match="takes more than 2 s of CPU time to match 1000 topics; rewrite"):
            slow.select([TOPIC] * 1000)
    finally:
        stop.set()
        beside.join()

    assert time.process_time() - used < 4 * MATCH_TIMEOUT_S
    # A busy machine may delay the other thread, but it must not wait for the end of the match.
    assert next(turns) >= int(2 * (time.monotonic() - started)), "the interpreter lock must be released"


def test_expression_beyond_limit_is_not_matched_again() -> None:
    slow = Blacklist(CATASTROPHIC)
    with pytest.raises(ConfigurationError):
        slow.is_topic_allowed(TOPIC)
    used = time.process_time()

    with pytest.raises(ConfigurationError, match="CPU time"):
        slow.is_topic_allowed(TOPIC)

    assert time.process_time() - used < 0.1


def test_quick_expressions_of_review_need_no_limit() -> None:
    assert not Whitelist(r"(\w+-?)+\.x").is_topic_allowed("a" * 200)
    assert not Whitelist("(a*)*b").is_topic_allowed("a" * 200)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 5000 + "a" + ")" * 5000,
        "(?:" * 60 + "a" + ")" * 60,
        "a{999999999}",
        "((a{1000}){1000}){1000}",
        "(?:(?:a?){500}+){500}b",
        r"((\d{1000}){0}){1000}",
        "([abc]{100}){100}?",
        "a" * 70_000,
        "[" + "a" * 70_000,
    ],
    ids=["very deep", "deep", "repeated", "nested", "possessive", "none", "lazy", "long", "long set"],
)
def test_too_large_expressions_are_rejected_in_short_message(text: str) -> None:
    used = time.process_time()

    with pytest.raises(ConfigurationError, match="is not supported") as raised:
        Whitelist(text)

    assert len(str(raised.value)) < 500
    assert time.process_time() - used < 1


@pytest.mark.parametrize(
    ("text", "construct"),
    [
        ("a(?i)b", "a flag that is not at the start"),
        (r"(?i)\p{Lower}", r"\p{Lower} or \p{Upper} in a case-insensitive expression"),
        ("(0+){2}+", "a possessive quantifier '{n}+' after a group"),
    ],
)
def test_unsupported_construct_is_named(text: str, construct: str) -> None:
    with pytest.raises(ConfigurationError, match=f"is not supported: {re.escape(construct)}"):
        Whitelist(text)


def test_equal_topics_are_matched_once() -> None:
    expression = topic_filter._compile("a.*")
    found = expression.match(["ab", "b"])
    assert expression.match(["ab", "b"]) is found
    assert expression.match(["ab", "ac"]) == {"ab", "ac"}


@pytest.mark.parametrize(("text", "error"), [("[a", "missing ']'"), ("{999999999}", "nothing to repeat")])
def test_syntax_error_of_expression_is_named(text: str, error: str) -> None:
    with pytest.raises(ConfigurationError, match=f"is an invalid regex: .*{error}"):
        Whitelist(text)


@pytest.mark.parametrize(
    ("accepted", "rejected"),
    [
        ("a" * 65_536, "a" * 65_537),
        ("a{10000}", "a{10001}"),
        ("a{9999}b{0}", "a{9999}bc{0}"),
        ("(ab){2500}", "(ab){2501}"),
        ("(" * 50 + "a" + ")" * 50, "(" * 51 + "a" + ")" * 51),
    ],
    ids=["length", "repetitions", "no repetition", "repeated group", "depth"],
)
def test_largest_expressions_are_accepted(accepted: str, rejected: str) -> None:
    Whitelist(accepted)
    with pytest.raises(ConfigurationError, match="is not supported: (more than|repetitions that expand to more than)"):
        Whitelist(rejected)


@pytest.mark.parametrize("text", ["[a-z0-9]{32}", r"(\d{4}-){50}", "(a|b{20}){20}", "abcd{4000}"])
def test_usual_repetitions_are_accepted(text: str) -> None:
    assert not Whitelist(text).is_topic_allowed("-")


def test_error_of_expression_has_no_control_characters() -> None:
    with pytest.raises(ConfigurationError, match="is an invalid regex: 'bad character range") as raised:
        Whitelist("[\x7f-a]")

    assert str(raised.value).isprintable()


def test_long_list_of_topics_is_accepted() -> None:
    names = [f"topic-{number}" for number in range(3000)]

    assert Whitelist(",".join(names)).select([*names, "topic"]) == names


def test_filter_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(Whitelist("a.*"))).is_topic_allowed("ab")


# ---- the packages re and regex ----------------------------------------------------------------------


def _expressions() -> st.SearchStrategy[str]:
    """Generate expressions in Java's syntax, with most of the supported constructs."""
    tokens = r"a b A - _ 0 . [.] \. \w \d \W \S [a-c] [^a] [a-] [\w.] \b \B ^ $ \A \z \Qa.b\E \x41"
    atoms = st.sampled_from([*tokens.split(), r"\p{Alpha}", r"\p{Upper}", r"[\p{Lower}_-]"])
    quantifiers = st.sampled_from(["", "", "", "*", "+", "?", "{2}", "*?", "+?", "??", "*+", "++", "?+", "{2}+"])
    groups = st.sampled_from(
        ["(%s)", "(?:%s)", "(?>%s)", "(?=%s)", "(?!%s)", "(?<=%s)", "(?<!%s)", "(?i:%s)", "(?<n>%s)"]
    )

    def extend(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        repeated = st.builds(str.__add__, st.builds(lambda group, text: group % text, groups, inner), quantifiers)
        return (
            repeated
            | st.lists(inner, min_size=2, max_size=4).map("".join)
            | st.lists(inner, min_size=2, max_size=3).map("|".join)
        )

    whole = st.recursive(st.builds(str.__add__, atoms, quantifiers), extend, max_leaves=12)
    return st.builds(str.__add__, st.sampled_from(["", "", "(?i)"]), whole)


@settings(max_examples=200)
@given(text=_expressions(), topics=st.lists(st.text("abAB-_.01", min_size=1, max_size=8), min_size=1, max_size=20))
def test_matches_equal_those_of_re(text: str, topics: list[str]) -> None:
    try:
        found = Whitelist(text).select(topics)
    except ConfigurationError:
        return  # invalid, or not supported
    compiled = re.compile(topic_filter._Translation(text).result, re.ASCII)
    assert found == [topic for topic in topics if compiled.fullmatch(topic)]
