"""Whitelist and Blacklist: topic filters, which are Java regular expressions.

All members must select the same topics; otherwise two members could claim one partition. So an expression is
translated token by token into Python's syntax, and a construct that may have a different meaning in Python is rejected.

Source: Kafka 1.1 kafka.consumer.TopicFilter, Whitelist, Blacklist; java.util.regex.Pattern.
"""

from __future__ import annotations

import re
from functools import cache

from zkconsumer.errors import ConfigurationError
from zkconsumer.zookeeper.registry import Registration

#: Topics that filters do not select unless a member sets ``exclude.internal.topics=false``; the registration does not
#: contain that property. Members before 0.11 exclude only the first.
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})


class TopicFilter:
    """A Java regular expression that must match the whole topic name; instantiate ``Whitelist`` or ``Blacklist``.

    The text is normalized as in Kafka 1.1: blanks and surrounding quotes are removed, and a comma means "or".

    Raises:
        ConfigurationError: the text is not a regular expression, or contains a construct that is not supported here.
    """

    #: The value of ``pattern`` in a registration.
    pattern: str

    def __init__(self, text: str) -> None:
        self.regex = text.strip().replace(",", "|").replace(" ", "").lstrip("\"'").rstrip("\"'")
        self._matches = _compiled(self.regex).fullmatch

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.regex!r})"

    def is_topic_allowed(self, topic: str, exclude_internal_topics: bool = True) -> bool:
        """Return whether the filter selects the topic."""
        if exclude_internal_topics and topic in INTERNAL_TOPICS:
            return False
        return (self._matches(topic) is not None) is (self.pattern == "white_list")


class Whitelist(TopicFilter):
    """Selects the topics that match."""

    pattern = "white_list"


class Blacklist(TopicFilter):
    """Selects the topics that do not match."""

    pattern = "black_list"


def filter_of(registration: Registration) -> TopicFilter:
    """Return the filter of a registration whose ``is_filter`` is true."""
    [regex] = registration.subscription
    return Whitelist(regex) if registration.pattern == "white_list" else Blacklist(regex)


@cache
def _compiled(regex: str) -> re.Pattern[str]:
    try:
        return re.compile(_Translation(regex).result, re.ASCII)
    except re.error as error:
        raise ConfigurationError(f"{regex} is an invalid regex: {error}") from error


#: Java's names of character classes, as the content of a Python set.
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
_RANGE_END = re.compile(r"-(?P<end>[A-Za-z0-9_.])")


class _Translation:
    """Translates one expression from Java's syntax to Python's."""

    def __init__(self, regex: str) -> None:
        self._regex = regex
        self._position = 0
        parts = []
        while self._position < len(regex):
            parts.append(self._token())
        self.result = "".join(parts)

    def _unsupported(self, construct: str) -> ConfigurationError:
        return ConfigurationError(
            f"topic filter {self._regex!r} is not supported: {construct} at position {self._position}; rewrite the "
            "expression, or list the topics"
        )

    def _take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self._regex, self._position)
        if found:
            self._position = found.end()
        return found

    def _token(self) -> str:
        char = self._regex[self._position]
        if char == "\\":
            return self._escape(inside=False)
        if char == "[":
            return self._set()
        if char == "(":
            return self._group()
        if quantifier := self._take(_QUANTIFIER):
            return quantifier.group()
        if char == "{":
            raise self._unsupported("a '{' that is not part of a quantifier")
        self._position += 1
        return char if char in ".|^$)" else re.escape(char)

    def _group(self) -> str:
        start = self._position
        found = self._take(_GROUP)
        assert found is not None  # the pattern also matches a single parenthesis
        if self._regex[self._position : self._position + 1] == "?" and found.group() == "(":
            raise self._unsupported("a group construct that is different in Python")
        if found["flag"] and start:
            raise self._unsupported("a flag that is not at the start")
        return f"(?P<{found['name']}>" if found["name"] else found.group()

    def _escape(self, *, inside: bool) -> str:
        """Translate an escape sequence; ``inside`` is true within a set."""
        self._position += 1
        char = self._regex[self._position : self._position + 1]
        if code := self._take(_CODE):
            return "\\" + code.group()
        self._position += 1
        if not char:
            raise self._unsupported("a backslash at the end")
        if not char.isalnum():
            return "\\" + char if char.isascii() else char
        if char in _CHARACTERS:
            return _CHARACTERS[char]
        if char in _SETS:
            return _SETS[char] if inside else f"[{_SETS[char]}]"
        if char.lower() in _SETS and not inside:
            return f"[^{_SETS[char.lower()]}]"
        if self._regex.find("(?i") >= 0 and self._regex.startswith(("{Lower}", "{Upper}"), self._position):
            raise self._unsupported("a lower-case or upper-case class in a case-insensitive expression")
        if char == "p" and (name := self._take(re.compile(r"\{([A-Za-z]+)\}"))) and name[1] in _CLASSES:
            return _CLASSES[name[1]] if inside else f"[{_CLASSES[name[1]]}]"
        if char == "Q" and not inside:
            end = self._regex.find("\\E", self._position)
            quoted = self._regex[self._position : end if end >= 0 else None]
            self._position = end + 2 if end >= 0 else len(self._regex)
            return re.escape(quoted)
        if char in _ANCHORS and not inside:
            return _ANCHORS[char]
        raise self._unsupported(f"the escape \\{char}")

    def _set(self) -> str:
        """Translate ``[...]`` with single characters, ranges and escapes; unions and intersections are rejected."""
        self._position += 1
        parts = ["["]
        if self._regex.startswith("^", self._position):
            self._position += 1
            parts.append("^")
        first = True
        while True:
            char = self._regex[self._position : self._position + 1]
            if not char:
                raise ConfigurationError(f"{self._regex} is an invalid regex: missing ']'")
            if char == "]" and not first:
                self._position += 1
                return "".join([*parts, "]"])
            if char in "][" or self._regex.startswith("&&", self._position):
                raise self._unsupported("a nested set")
            if char == "\\":
                parts.append(self._escape(inside=True))
                if self._regex.startswith("-", self._position) and not self._regex.startswith("-]", self._position):
                    raise self._unsupported("a range that starts with an escape")
            elif char == "-":
                self._position += 1
                if not first and not self._regex.startswith("]", self._position):
                    raise self._unsupported("a '-' between other characters of a set")
                parts.append(r"\-")
            else:
                self._position += 1
                parts.append(re.escape(char))
                if end := self._take(_RANGE_END):
                    parts.append(f"-{end['end']}")
            first = False


__all__ = ["INTERNAL_TOPICS", "Blacklist", "TopicFilter", "Whitelist", "filter_of"]
