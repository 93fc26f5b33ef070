"""Types of properties and options. Each one parses text and describes the valid texts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

#: Maximum values of integers in Java.
INT_MAX, LONG_MAX = (1 << 31) - 1, (1 << 63) - 1

#: A host name, an IPv4 address, or an IPv6 address in brackets; and a port.
_SERVER = re.compile(r"(?:\[[0-9A-Fa-f:.]+(?:%\w+)?\]|[^\s:/\[\],]+)(?::(?P<port>[0-9]{1,5}))?")

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]*")

_DURATION = re.compile(r"([0-9]{1,12})\s*(ms|s|m|min|h|d)?")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


class SettingType(Protocol):
    """Type of a property or an option."""

    @property
    def name(self) -> str:
        """The type as documentation shows it: ``boolean``, ``duration``, ``integer``, ``JSON``, ``list`` ..."""

    @property
    def valid(self) -> str:
        """The valid texts in reStructuredText, empty if every text is valid."""

    @property
    def is_secret(self) -> bool:
        """Whether no text may show a value, and blanks at its ends belong to it."""

    def parse(self, text: str, /) -> Any:
        """Return the value that a text stands for.

        Raises:
            ValueError: with the requirement that the text does not meet, to follow ``must be``. A second argument is
                the part of the text that is invalid, or another explanation.
        """


@dataclass(frozen=True, slots=True)
class Text:
    """Any text.

    Attributes:
        valid: the form of the texts in words.
    """

    valid: str = ""
    name: ClassVar[str] = "string"
    is_secret: ClassVar[bool] = False

    def parse(self, text: str, /) -> str:
        return text


@dataclass(frozen=True, slots=True)
class Secret:
    """Text that messages and the text of a configuration do not contain, such as a password.

    Attributes:
        valid: the form of the texts in words.
    """

    valid: str = ""
    name: ClassVar[str] = "password"
    is_secret: ClassVar[bool] = True

    def parse(self, text: str, /) -> str:
        return text


@dataclass(frozen=True, slots=True)
class PemFile:
    """The path of a PEM file."""

    name: ClassVar[str] = "string"
    valid: ClassVar[str] = "path of a PEM file"
    is_secret: ClassVar[bool] = False

    def parse(self, text: str, /) -> str:
        if not Path(text).is_file():
            raise ValueError("the path of an existing PEM file")
        return text


@dataclass(frozen=True, slots=True)
class Servers:
    """A list of servers.

    Attributes:
        default_port: port of a server without one; None if each server must have a port.
        has_chroot: whether a path may follow the servers.
    """

    default_port: int | None = None
    has_chroot: bool = False
    name: ClassVar[str] = "list"
    is_secret: ClassVar[bool] = False

    @property
    def valid(self) -> str:
        return "``host:port,...``" + (", with an optional ``/chroot`` at the end" if self.has_chroot else "")

    def parse(self, text: str, /) -> str:
        if not text and not self.has_chroot:
            return text  # the same as without the property
        servers = text.partition("/")[0] if self.has_chroot else text
        for server in servers.split(","):
            parts = _SERVER.fullmatch(server.strip())
            port = int(parts["port"] or self.default_port or 0) if parts else 0
            if not 0 < port < 65536:
                form = "host:port,host:port" + ("/chroot" if self.has_chroot else "")
                raise ValueError(f"a list such as {form!r}", f"invalid server {server!r}")
        return text


@dataclass(frozen=True, slots=True)
class Name:
    """Text that may be part of a metric name or a client id.

    Attributes:
        is_znode: whether the name must also be a valid znode name.

    Source: Kafka 1.1 kafka.common.Config.validateChars.
    """

    is_znode: bool = False
    name: ClassVar[str] = "string"
    valid: ClassVar[str] = "ASCII letters and digits, ``.``, ``_`` and ``-``"
    is_secret: ClassVar[bool] = False

    def parse(self, text: str, /) -> str:
        if self.is_znode and not text.strip("."):
            raise ValueError("a valid znode name")
        if not _LEGAL_NAME.fullmatch(text):
            raise ValueError("a name of ASCII letters and digits, '.', '_' and '-'")
        return text


@dataclass(frozen=True, slots=True)
class Boolean:
    """``true`` or ``false``.

    Attributes:
        ignores_case: whether ``True`` is valid, too. It is not valid in properties of the JVM.
    """

    ignores_case: bool = False
    name: ClassVar[str] = "boolean"
    valid: ClassVar[str] = "``true``, ``false``"
    is_secret: ClassVar[bool] = False

    def parse(self, text: str, /) -> bool:
        word = text.lower() if self.ignores_case else text
        if word not in ("true", "false"):
            raise ValueError("'true' or 'false'")
        return word == "true"


@dataclass(frozen=True, slots=True)
class Integer:
    """An integer from ``minimum`` to ``maximum``."""

    minimum: int
    maximum: int = INT_MAX
    name: ClassVar[str] = "integer"
    is_secret: ClassVar[bool] = False

    @property
    def valid(self) -> str:
        return f"at least {self.minimum}" + (f", at most {self.maximum}" if self.maximum < INT_MAX else "")

    def parse(self, text: str, /) -> int:
        # int() accepts more: underscores, digits of other scripts
        if not re.fullmatch(r"[+-]?[0-9]{1,19}", text) or not self.minimum <= int(text) <= self.maximum:
            raise ValueError(f"an integer between {self.minimum} and {self.maximum}")
        return int(text)


@dataclass(frozen=True, slots=True)
class Duration:
    """A duration as in Spark's options; the value is in seconds.

    Attributes:
        is_positive: whether 0 is invalid.
    """

    is_positive: bool = False
    name: ClassVar[str] = "duration"
    valid: ClassVar[str] = "such as ``15m``, ``90s`` or ``500ms``; a number without unit is milliseconds"
    is_secret: ClassVar[bool] = False

    def parse(self, text: str, /) -> float:
        parts = _DURATION.fullmatch(text.lower())
        seconds = int(parts[1]) * _SECONDS[parts[2] or "ms"] if parts else 0.0
        if parts is None or (self.is_positive and not seconds):
            raise ValueError(f"a duration{' greater than 0,' if self.is_positive else ''} such as 15m, 90s or 500ms")
        return seconds


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several words.

    Attributes:
        words: the words as documentation shows them, and as they are parsed.
        ignores_case: whether the words are case-insensitive.
    """

    words: tuple[str, ...]
    ignores_case: bool = False
    name: ClassVar[str] = "string"
    is_secret: ClassVar[bool] = False

    @property
    def valid(self) -> str:
        return ", ".join(f"``{word}``" for word in self.words)

    def parse(self, text: str, /) -> str:
        for word in self.words:
            if text == word or (self.ignores_case and text.lower() == word.lower()):
                return word
        raise ValueError(join_words(map(repr, self.words), "or"))


@dataclass(frozen=True, slots=True)
class Json:
    """A JSON document.

    Attributes:
        requirement: what the text must be, in words.
        valid: the same in reStructuredText.
        convert: returns the value of the parsed document. Errors that documents of another form cause are invalid
            values.
    """

    requirement: str
    valid: str
    convert: Callable[[Any], Any]
    name: ClassVar[str] = "JSON"
    is_secret: ClassVar[bool] = False

    def parse(self, text: str, /) -> Any:
        try:
            return self.convert(json.loads(text))
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(self.requirement) from error


def join_words(words: Iterable[str], conjunction: str) -> str:
    """Return words as ``a, b or c``."""
    *first, last = words
    return f"{', '.join(first)} {conjunction} {last}" if first else last
