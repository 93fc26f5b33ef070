"""Whitelist and Blacklist: topic filters based on Java regular expressions.

All members must select the same topics; otherwise, two members could claim the same partition. Therefore, expressions
are translated token by token to Python's syntax, and constructs that may have a different meaning in Python are
rejected.

Any group member can register any expression. Therefore, the size of expressions and the CPU time for matching them are
limited. The package ``regex`` supports timeouts and releases the global interpreter lock; ``re`` does neither.

See docs/decisions/03-java-regular-expressions.rst.

Source: Kafka 1.1 kafka.consumer.TopicFilter, Whitelist, Blacklist; java.util.regex.Pattern.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from functools import lru_cache

import regex

from zkconsumer.argument_checks import check_type
from zkconsumer.errors import ConfigurationError
from zkconsumer.excerpt import excerpt

#: Topics that filters exclude unless a member sets ``exclude.internal.topics=false``; the registration does not contain
#: that property. Members before Kafka 0.11 exclude only ``__consumer_offsets``.
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})

#: Maximum process CPU time for matching a filter, in seconds, and the additional seconds per topic.
MATCH_TIMEOUT_S = 1.0
_MATCH_TIMEOUT_PER_TOPIC_S = 0.001

#: Seconds before matching is retried for an expression that exceeded the time limit.
_RETRY_INTERVAL_S = 60.0

#: Maximum length of an expression in characters, its maximum length with expanded repetitions ``{n}``, and its maximum
#: number of nested groups.
_MAX_LENGTH = 1 << 16
_MAX_REPEATED_LENGTH = 10_000
_MAX_DEPTH = 50


class TopicFilter:
    """A Java regular expression that must match the whole topic name; instantiate ``Whitelist`` or ``Blacklist``.

    The text is normalized as in Kafka 1.1: spaces and surrounding quotes are removed, and commas are replaced with
    ``|``.

    Raises:
        ConfigurationError: the text is not a valid regular expression, or contains an unsupported construct.
    """

    #: Value of ``pattern`` in the registration.
    pattern: str

    def __init__(self, text: str) -> None:
        check_type("the regular expression", text, str, "a str")
        self.regex = text.strip().replace(",", "|").replace(" ", "").lstrip("\"'").rstrip("\"'")
        _compile(self.regex)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.regex!r})"

    def is_topic_allowed(self, topic: str, exclude_internal_topics: bool = True) -> bool:
        """Return whether the filter selects the topic; see ``select``."""
        return bool(self.select([topic], exclude_internal_topics))

    def select(self, topics: Iterable[str], exclude_internal_topics: bool = True) -> list[str]:
        """Return the topics that the filter selects, in the given order.

        Raises:
            ConfigurationError: matching exceeded the time limit.
        """
        candidates = [topic for topic in topics if not exclude_internal_topics or topic not in INTERNAL_TOPICS]
        matching = _compile(self.regex).match(candidates)
        return [topic for topic in candidates if (topic in matching) is (self.pattern == "white_list")]


class Whitelist(TopicFilter):
    """Selects the topics that match the expression."""

    pattern = "white_list"


class Blacklist(TopicFilter):
    """Selects the topics that do not match the expression."""

    pattern = "black_list"


class _Expression:
    """A compiled expression with a time limit for matching."""

    def __init__(self, text: str) -> None:
        try:
            translated = _Translation(text).result
            re.compile(translated, re.ASCII)  # reject syntax that ``regex`` accepts, but ``re`` and Java do not
            self._pattern = regex.compile(translated, regex.V0 | regex.ASCII, cache_pattern=False)
        except (re.error, regex.error, RecursionError, OverflowError) as error:
            # The error message may quote parts of the expression.
            raise ConfigurationError(f"{excerpt(text)} is an invalid regex: {excerpt(str(error))}") from error
        #: ``time.monotonic()`` until which matching is rejected, because it exceeded the time limit.
        self._rejected_until = 0.0
        self._text = text
        #: Cached topics and result of the last call: group members often register the same expression.
        self._last: tuple[Sequence[str], frozenset[str]] = ((), frozenset())

    def match(self, topics: Sequence[str]) -> frozenset[str]:
        """Return the topics whose complete name matches."""
        last_topics, result = self._last
        if topics != last_topics:
            result = self._match_all(topics)
            self._last = topics, result
        return result

    def _match_all(self, topics: Sequence[str]) -> frozenset[str]:
        timeout_s = MATCH_TIMEOUT_S + _MATCH_TIMEOUT_PER_TOPIC_S * len(topics)
        too_slow = ConfigurationError(
            f"topic filter {excerpt(self._text)} takes more than {timeout_s:.0f} s of CPU time to match {len(topics)} "
            "topics; rewrite the expression without nested repetitions"
        )
        if time.monotonic() < self._rejected_until:
            raise too_slow
        deadline = time.process_time() + timeout_s  # ``regex`` timeouts are also in process CPU time
        fullmatch = self._pattern.fullmatch
        try:
            return frozenset(t for t in topics if fullmatch(t, timeout=max(deadline - time.process_time(), 1e-6)))
        except TimeoutError:
            self._rejected_until = time.monotonic() + _RETRY_INTERVAL_S
            raise too_slow from None


@lru_cache(maxsize=1000)
def _compile(text: str) -> _Expression:
    return _Expression(text)


#: Java's named character classes, as the content of a Python character set.
_CLASSES = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "ASCII": r"\x00-\x7f",
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "Punct": r"!-/:-@\[-`{-~",
    "Graph": "!-~",
    "Print": " -~",
    "Blank": r" \t",
    "Cntrl": r"\x00-\x1f\x7f",
    "XDigit": "0-9a-fA-F",
    "Space": r"\t-\r ",
}
_SETS = {"d": r"\d", "w": r"\w", "s": r"\s", "h": r" \t\xa0"}
_CHARACTERS = {"t": r"\t", "n": r"\n", "r": r"\r", "f": r"\f", "a": r"\a", "e": r"\x1b"}
_ANCHORS = {"b": r"\b", "B": r"\B", "A": r"\A", "z": r"\Z", "Z": r"\Z"}

_GROUP = re.compile(r"\((?:\?(?:<(?P<name>[a-zA-Z][a-zA-Z0-9]*)>|(?P<kind>[:=!>]|<[=!]|i:)|(?P<flag>i\))))?")
_QUANTIFIER = re.compile(r"(?:[*+?]|\{[0-9]{1,9}\})[?+]?")
_CODE = re.compile(r"x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}")
_CLASS_NAME = re.compile(r"\{([A-Za-z]+)\}")
_RANGE_END = re.compile(r"-(?P<end>[A-Za-z0-9_.])")


class _Translation:
    """Translates an expression from Java's syntax to Python's."""

    def __init__(self, text: str) -> None:
        self._regex = text
        self._position = 0
        #: Length of each open group with expanded repetitions; the first item is the length of the whole expression.
        self._lengths = [0]
        self._last_length = 0  # length of the token or group before the current position
        self._is_after_group = False
        if len(text) > _MAX_LENGTH:
            raise self._unsupported_error(f"more than {_MAX_LENGTH} characters")
        parts = []
        while self._position < len(text):
            start = self._position
            parts.append(self._translate_token())
            self._measure(text[start : self._position])
        self.result = "".join(parts)

    def _unsupported_error(self, construct: str) -> ConfigurationError:
        return ConfigurationError(
            f"topic filter {excerpt(self._regex)} is not supported: {construct} at position {self._position}; rewrite "
            "the expression"
        )

    def _measure(self, token: str) -> None:
        """Enforce the limits on nesting and repetition; ``regex`` compiles ``x{n}`` as ``n`` copies of ``x``."""
        length = len(token)
        self._is_after_group = token == ")"
        if token[0] == "(":
            if len(self._lengths) > _MAX_DEPTH:
                raise self._unsupported_error(f"more than {_MAX_DEPTH} nested groups")
            self._lengths.append(0)
        elif token == ")" and len(self._lengths) > 1:
            length += self._lengths.pop()
        elif token[0] == "{":
            length = self._last_length * max(0, int(token.strip("{}+?")) - 1)
        self._lengths[-1] += length
        self._last_length = length if token[0] != "{" else length + self._last_length
        if self._lengths[-1] > max(_MAX_REPEATED_LENGTH, len(self._regex)):
            raise self._unsupported_error(f"repetitions that expand to more than {_MAX_REPEATED_LENGTH} characters")

    def _take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self._regex, self._position)
        if found:
            self._position = found.end()
        return found

    def _translate_token(self) -> str:
        char = self._regex[self._position]
        if char == "\\":
            return self._translate_escape(inside=False)
        if char == "[":
            return self._translate_set()
        if char == "(":
            return self._translate_group()
        if quantifier := self._take(_QUANTIFIER):
            if self._is_after_group and re.fullmatch(r"\{.*\}\+", quantifier.group()):
                # ``regex`` would backtrack into the group.
                raise self._unsupported_error("a possessive quantifier '{n}+' after a group")
            return quantifier.group()
        if char == "{":
            raise self._unsupported_error("a '{' that is not part of a quantifier")
        self._position += 1
        return char if char in ".|^$)" else re.escape(char)

    def _translate_group(self) -> str:
        start = self._position
        found = self._take(_GROUP)
        assert found is not None  # the pattern also matches a single parenthesis
        if self._regex[self._position : self._position + 1] == "?" and found.group() == "(":
            raise self._unsupported_error("a group construct that Java and Python interpret differently")
        if found["flag"] and start:
            raise self._unsupported_error("a flag that is not at the start")
        return f"(?P<{found['name']}>" if found["name"] else found.group()

    def _translate_escape(self, *, inside: bool) -> str:
        """Translate an escape sequence; ``inside`` is true in a character set."""
        self._position += 1
        char = self._regex[self._position : self._position + 1]
        if code := self._take(_CODE):
            return "\\" + code.group()
        self._position += 1
        if not char:
            raise self._unsupported_error("a backslash at the end")
        if not char.isalnum():
            return "\\" + char if char.isascii() else char
        if char in _CHARACTERS:
            return _CHARACTERS[char]
        if char in _SETS:
            return _SETS[char] if inside else f"[{_SETS[char]}]"
        if char.lower() in _SETS and not inside:
            return f"[^{_SETS[char.lower()]}]"
        if self._regex.find("(?i") >= 0 and self._regex.startswith(("{Lower}", "{Upper}"), self._position):
            raise self._unsupported_error(r"\p{Lower} or \p{Upper} in a case-insensitive expression")
        if char == "p" and (name := self._take(_CLASS_NAME)) and name[1] in _CLASSES:
            return _CLASSES[name[1]] if inside else f"[{_CLASSES[name[1]]}]"
        if char == "Q" and not inside:
            return self._translate_quotation()
        if char in _ANCHORS and not inside:
            return _ANCHORS[char]
        raise self._unsupported_error(f"the escape \\{char}")

    def _translate_quotation(self) -> str:
        end = self._regex.find("\\E", self._position)
        quoted = self._regex[self._position : end if end >= 0 else None]
        self._position = end + 2 if end >= 0 else len(self._regex)
        return re.escape(quoted)

    def _translate_set(self) -> str:
        """Translate a set ``[...]`` of characters, ranges and escapes; reject unions and intersections."""
        self._position += 1
        parts = ["["]
        if self._regex.startswith("^", self._position):
            self._position += 1
            parts.append("^")
        first = True
        while True:
            char = self._regex[self._position : self._position + 1]
            if not char:
                raise ConfigurationError(f"{excerpt(self._regex)} is an invalid regex: missing ']'")
            if char == "]" and not first:
                self._position += 1
                return "".join([*parts, "]"])
            if char in "][" or self._regex.startswith("&&", self._position):
                raise self._unsupported_error("a nested set")
            if char == "\\":
                parts.append(self._translate_escape(inside=True))
                if self._regex.startswith("-", self._position) and not self._regex.startswith("-]", self._position):
                    raise self._unsupported_error("a range that starts with an escape")
            elif char == "-":
                self._position += 1
                if not first and not self._regex.startswith("]", self._position):
                    raise self._unsupported_error("a '-' between other characters in a set")
                parts.append(r"\-")
            else:
                self._position += 1
                parts.append(re.escape(char))
                if end := self._take(_RANGE_END):
                    parts.append(f"-{end['end']}")
            first = False


__all__ = ["INTERNAL_TOPICS", "MATCH_TIMEOUT_S", "Blacklist", "TopicFilter", "Whitelist"]
