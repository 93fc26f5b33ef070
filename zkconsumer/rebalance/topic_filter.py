"""Whitelist and Blacklist: which topics a filter selects, by Java's regular expressions.

A filter that is read differently here than by a JVM member would give one partition to two members. So an expression
is translated token by token into Python's dialect, and whatever is not certain to mean the same is refused.

Source: Kafka 1.1 kafka.consumer.TopicFilter, Whitelist, Blacklist; java.util.regex.Pattern.
"""

from __future__ import annotations

import re
from functools import cache

from zkconsumer.errors import ConfigurationError
from zkconsumer.zookeeper.registry import Registration

#: Kept from filters unless a member sets ``exclude.internal.topics=false``, which nobody else can see. Members before
#: 0.11 know the first only.
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})


class TopicFilter:
    """A regular expression of Java that whole topic names are held against; made as Whitelist or Blacklist.

    The text is taken as the original takes it: blanks and quotes around it go, and a comma means "or".

    Raises:
        ConfigurationError: it is no regular expression, or one that this library cannot evaluate as Java does.
    """

    #: The word for it in a registration.
    pattern: str

    def __init__(self, text: str) -> None:
        self.regex = text.strip().replace(",", "|").replace(" ", "").lstrip("\"'").rstrip("\"'")
        self._matches = _compiled(self.regex).fullmatch

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.regex!r})"

    def is_topic_allowed(self, topic: str, exclude_internal_topics: bool = True) -> bool:
        """Whether the topic is to be read."""
        if exclude_internal_topics and topic in INTERNAL_TOPICS:
            return False
        return (self._matches(topic) is not None) is (self.pattern == "white_list")


class Whitelist(TopicFilter):
    """Reads the topics that match."""

    pattern = "white_list"


class Blacklist(TopicFilter):
    """Reads the topics that do not match."""

    pattern = "black_list"


def filter_of(registration: Registration) -> TopicFilter:
    """Return the filter of a registration that ``is_filter``."""
    [regex] = registration.subscription
    return Whitelist(regex) if registration.pattern == "white_list" else Blacklist(regex)


@cache
def _compiled(regex: str) -> re.Pattern[str]:
    try:
        return re.compile(_Translation(regex).result, re.ASCII)
    except re.error as error:
        raise ConfigurationError(f"{regex} is an invalid regex: {error}") from error


#: Java's names of classes, as the inside of a set.
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
    """One expression on its way from Java's dialect to Python's."""

    def __init__(self, regex: str) -> None:
        self._regex = regex
        self._at = 0
        parts = []
        while self._at < len(regex):
            parts.append(self._token())
        self.result = "".join(parts)

    def _refuse(self, what: str) -> ConfigurationError:
        return ConfigurationError(
            f"the topic filter {self._regex!r} cannot be evaluated as Java does: {what} at position {self._at}. Write "
            "it in another way, or name the topics"
        )

    def _take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self._regex, self._at)
        if found:
            self._at = found.end()
        return found

    def _token(self) -> str:
        char = self._regex[self._at]
        if char == "\\":
            return self._escape(inside=False)
        if char == "[":
            return self._set()
        if char == "(":
            return self._group()
        if quantifier := self._take(_QUANTIFIER):
            return quantifier.group()
        if char == "{":
            raise self._refuse("a '{' that begins no number of repetitions")
        self._at += 1
        return char if char in ".|^$)" else re.escape(char)

    def _group(self) -> str:
        begun = self._at
        found = self._take(_GROUP)
        assert found is not None  # a lone bracket matches
        if self._regex[self._at : self._at + 1] == "?" and found.group() == "(":
            raise self._refuse("a kind of group that differs in Python")
        if found["flag"] and begun:
            raise self._refuse("a flag that is not at the beginning")
        return f"(?P<{found['name']}>" if found["name"] else found.group()

    def _escape(self, *, inside: bool) -> str:
        """Translate what a backslash begins; ``inside`` a set."""
        self._at += 1
        char = self._regex[self._at : self._at + 1]
        if code := self._take(_CODE):
            return "\\" + code.group()
        self._at += 1
        if not char:
            raise self._refuse("a backslash with nothing behind it")
        if not char.isalnum():
            return "\\" + char if char.isascii() else char
        if char in _CHARACTERS:
            return _CHARACTERS[char]
        if char in _SETS:
            return _SETS[char] if inside else f"[{_SETS[char]}]"
        if char.lower() in _SETS and not inside:
            return f"[^{_SETS[char.lower()]}]"
        if self._regex.find("(?i") >= 0 and self._regex.startswith(("{Lower}", "{Upper}"), self._at):
            raise self._refuse("a class of lower or upper case in an expression that ignores case")
        if char == "p" and (name := self._take(re.compile(r"\{([A-Za-z]+)\}"))) and name[1] in _CLASSES:
            return _CLASSES[name[1]] if inside else f"[{_CLASSES[name[1]]}]"
        if char == "Q" and not inside:
            end = self._regex.find("\\E", self._at)
            quoted = self._regex[self._at : end if end >= 0 else None]
            self._at = end + 2 if end >= 0 else len(self._regex)
            return re.escape(quoted)
        if char in _ANCHORS and not inside:
            return _ANCHORS[char]
        raise self._refuse(f"the escape \\{char}")

    def _set(self) -> str:
        """Translate ``[...]``: single characters, ranges, escapes; neither unions nor intersections."""
        self._at += 1
        parts = ["["]
        if self._regex.startswith("^", self._at):
            self._at += 1
            parts.append("^")
        first = True
        while True:
            char = self._regex[self._at : self._at + 1]
            if not char:
                raise ConfigurationError(f"{self._regex} is an invalid regex: a '[' is not closed")
            if char == "]" and not first:
                self._at += 1
                return "".join([*parts, "]"])
            if char in "][" or self._regex.startswith("&&", self._at):
                raise self._refuse("a set in a set")
            if char == "\\":
                parts.append(self._escape(inside=True))
                if self._regex.startswith("-", self._at) and not self._regex.startswith("-]", self._at):
                    raise self._refuse("a range from an escape")
            elif char == "-":
                self._at += 1
                if not first and not self._regex.startswith("]", self._at):
                    raise self._refuse("a '-' between others in a set")
                parts.append(r"\-")
            else:
                self._at += 1
                parts.append(re.escape(char))
                if end := self._take(_RANGE_END):
                    parts.append(f"-{end['end']}")
            first = False


__all__ = ["INTERNAL_TOPICS", "Blacklist", "TopicFilter", "Whitelist", "filter_of"]
