"""Types of properties and options; each type parses strings and describes the valid values."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

from zkconsumer.errors import ConfigurationError

#: Maximum values of ``int`` and ``long`` in Java.
INT_MAX, LONG_MAX = (1 << 31) - 1, (1 << 63) - 1

#: A host name, IPv4 address or bracketed IPv6 address, with an optional port.
_SERVER = re.compile(r"(?:\[[0-9A-Fa-f:.]+(?:%\w+)?\]|[^\s:/\[\],]+)(?::(?P<port>[0-9]{1,5}))?")

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]*")

_DURATION = re.compile(r"([0-9]{1,12})\s*(ms|s|m|min|h|d)?")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


class SettingType(Protocol):
    """Type of a property or option."""

    @property
    def name(self) -> str:
        """Type name shown in the documentation, such as ``boolean`` or ``duration``."""

    @property
    def valid(self) -> str:
        """The valid values in reStructuredText; empty if every string is valid."""

    @property
    def is_secret(self) -> bool:
        """Whether values are secret: they are never shown, and surrounding whitespace is part of the value."""

    def parse(self, text: str, /) -> Any:
        """Parse a string and return its value.

        Raises:
            ValueError: the string is invalid. The first exception argument is the requirement, worded to follow
                ``must be``; the optional second argument explains what is wrong.
        """


@dataclass(frozen=True, slots=True)
class Text:
    """An arbitrary string.

    Attributes:
        valid: description of the valid values.
    """

    valid: str = ""
    name: ClassVar[str] = "string"
    is_secret: ClassVar[bool] = False

    def parse(self, text: str, /) -> str:
        return text


@dataclass(frozen=True, slots=True)
class Secret:
    """A string that is never shown in messages or in the ``repr`` of a configuration, such as a password.

    Attributes:
        valid: description of the valid values.
    """

    valid: str = ""
    name: ClassVar[str] = "password"
    is_secret: ClassVar[bool] = True

    def parse(self, text: str, /) -> str:
        return text


@dataclass(frozen=True, slots=True)
class PemFile:
    """The path of an existing PEM file."""

    name: ClassVar[str] = "string"
    valid: ClassVar[str] = "path of a PEM file"
    is_secret: ClassVar[bool] = False

    def parse(self, text: str, /) -> str:
        if not Path(text).is_file():
            raise ValueError("the path of an existing PEM file")
        return text


def split_list(text: str) -> list[str]:
    """Split a comma-separated list. All lists in properties, options and arguments are split by this function.

    Whitespace around an entry is ignored, and empty entries at the end do not count, as with Java's ``String.split``.
    Whether other empty entries are ignored or invalid depends on the list.
    """
    entries = [entry.strip() for entry in text.split(",")]
    while entries and not entries[-1]:
        entries.pop()
    return entries


@dataclass(frozen=True, slots=True)
class Servers:
    """A list of servers, parsed into the same list without whitespace and ignored entries.

    With a chroot, an empty entry before another entry is invalid. Without a chroot, all empty entries are ignored.
    Source: ZooKeeper 3.4 ConnectStringParser; Kafka 3.9 ClientUtils.parseAndValidateAddresses.

    Attributes:
        default_port: port of servers that are given without a port; None if every server must have one.
        has_chroot: whether a chroot path may follow the last server.
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
            return text  # an empty value is equivalent to an unset property
        form = "host:port,host:port" + ("/chroot" if self.has_chroot else "")
        listed, slash, chroot = text.partition("/") if self.has_chroot else (text, "", "")
        servers = [server for server in split_list(listed) if server or self.has_chroot]
        if not servers:
            raise ValueError(f"a list such as {form!r}", "it contains no server")
        for server in servers:
            parts = _SERVER.fullmatch(server)
            port = int(parts["port"] or self.default_port or 0) if parts else 0
            if not 0 < port < 65536:
                raise ValueError(f"a list such as {form!r}", f"invalid server {server!r}")
        return ",".join(servers) + slash + chroot


@dataclass(frozen=True, slots=True)
class Name:
    """A name that is valid in metric names and client ids.

    Attributes:
        is_znode: whether the name must also be a valid znode name.

    Source: Kafka 1.1 kafka.common.Config.validateChars.
    """

    is_znode: bool = False
    name: ClassVar[str] = "string"
    valid: ClassVar[str] = "ASCII letters, digits, ``.``, ``_`` and ``-``"
    is_secret: ClassVar[bool] = False

    def parse(self, text: str, /) -> str:
        if self.is_znode and not text.strip("."):
            raise ValueError("a name with at least one character other than '.'")
        if not _LEGAL_NAME.fullmatch(text):
            raise ValueError("a name that consists of ASCII letters, digits, '.', '_' and '-'")
        return text


@dataclass(frozen=True, slots=True)
class Boolean:
    """``true`` or ``false``.

    Attributes:
        ignores_case: whether values are case-insensitive. Kafka's old consumer accepts only lowercase values.
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
        # int() would also accept underscores and non-ASCII digits
        if not re.fullmatch(r"[+-]?[0-9]{1,19}", text) or not self.minimum <= int(text) <= self.maximum:
            raise ValueError(f"an integer between {self.minimum} and {self.maximum}")
        return int(text)


@dataclass(frozen=True, slots=True)
class Duration:
    """A duration in the format of Spark's options; the parsed value is in seconds.

    Attributes:
        is_positive: whether 0 is invalid.
    """

    is_positive: bool = False
    name: ClassVar[str] = "duration"
    valid: ClassVar[str] = "such as ``15m``, ``90s`` or ``500ms``; a number without a unit is in milliseconds"
    is_secret: ClassVar[bool] = False

    def parse(self, text: str, /) -> float:
        parts = _DURATION.fullmatch(text.lower())
        seconds = int(parts[1]) * _SECONDS[parts[2] or "ms"] if parts else 0.0
        if parts is None or (self.is_positive and not seconds):
            raise ValueError(f"a duration{' greater than 0,' if self.is_positive else ''} such as 15m, 90s or 500ms")
        return seconds


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several predefined values.

    Attributes:
        words: valid values, as shown in the documentation and as returned by ``parse``.
        ignores_case: whether values are case-insensitive.
        counterparts: values of other Kafka clients, and the corresponding valid values.
    """

    words: tuple[str, ...]
    ignores_case: bool = False
    counterparts: tuple[tuple[str, str], ...] = ()
    name: ClassVar[str] = "string"
    is_secret: ClassVar[bool] = False

    @property
    def valid(self) -> str:
        return ", ".join(f"``{word}``" for word in self.words)

    def parse(self, text: str, /) -> str:
        for word in self.words:
            if text == word or (self.ignores_case and text.lower() == word.lower()):
                return word
        required = join_words(map(repr, self.words), "or")
        for foreign, word in self.counterparts:
            if text == foreign:
                raise ValueError(required, f"its counterpart is {word!r}")
        raise ValueError(required)


@dataclass(frozen=True, slots=True)
class Json:
    """A JSON document.

    Attributes:
        requirement: description of the valid documents, for error messages.
        valid: description of the valid documents, in reStructuredText.
        convert: function that converts the parsed document to the value. If it raises ValueError, TypeError,
            AttributeError or RecursionError, the document is invalid.
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
            explanation = [str(error)] if isinstance(error, ConfigurationError) else []
            raise ValueError(self.requirement, *explanation) from error


def join_words(words: Iterable[str], conjunction: str) -> str:
    """Join words in the form ``a, b or c``."""
    *first, last = words
    return f"{', '.join(first)} {conjunction} {last}" if first else last
