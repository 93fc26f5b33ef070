"""Declarations of the consumer's properties: types that parse values, and rows for the table of properties."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from zkconsumer.config.tables import Setting
from zkconsumer.errors import ConfigurationError

#: Default of a required property.
REQUIRED = object()

_INT_MAX = (1 << 31) - 1

#: A host name, an IPv4 address, or an IPv6 address in brackets; and a port.
_SERVER = re.compile(r"(?:\[[0-9A-Fa-f:.]+(?:%\w+)?\]|[^\s:/\[\],]+)(?::(?P<port>[0-9]{1,5}))?")

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]*")


class PropertyType(Protocol):
    """Type of a property."""

    @property
    def name(self) -> str:
        """The type, as tables of properties show it."""

    @property
    def valid(self) -> str:
        """The valid values in reStructuredText, empty if every value of the type is valid."""

    def parse(self, key: str, text: str, /) -> Any:
        """Return the value of a property.

        Raises:
            ConfigurationError: with the name of the property, the value and the valid values.
        """


def invalid(key: str, requirement: str, text: str) -> ConfigurationError:
    """Return the error for a value that does not meet a requirement."""
    return ConfigurationError(f"property {key!r} must be {requirement}, got {text!r}")


@dataclass(frozen=True, slots=True)
class Text:
    """Any text.

    Attributes:
        name: ``string`` or ``list``; ``password`` keeps the value out of the text of the configuration.
        valid: the form of the values in words.
    """

    name: str = "string"
    valid: str = ""

    def parse(self, _key: str, text: str, /) -> str:
        return text


@dataclass(frozen=True, slots=True)
class PemFile:
    """The path of a PEM file."""

    name: str = "string"
    valid: str = "path of a PEM file"

    def parse(self, key: str, text: str, /) -> str:
        if not Path(text).is_file():
            raise invalid(key, "the path of an existing PEM file", text)
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
    name: str = "list"

    @property
    def valid(self) -> str:
        return "``host:port,...``" + (", with an optional ``/chroot`` at the end" if self.has_chroot else "")

    def parse(self, key: str, text: str, /) -> str:
        if not text and not self.has_chroot:
            return text  # the same as without the property
        servers = text.partition("/")[0] if self.has_chroot else text
        for server in servers.split(","):
            parts = _SERVER.fullmatch(server.strip())
            port = int(parts["port"] or self.default_port or 0) if parts else 0
            if not 0 < port < 65536:
                form = "a list such as 'host:port,host:port" + ("/chroot'" if self.has_chroot else "'")
                raise ConfigurationError(f"property {key!r} must be {form}, got {text!r}: invalid server {server!r}")
        return text


@dataclass(frozen=True, slots=True)
class Name:
    """Text that may be part of a metric name or a client id.

    Attributes:
        is_znode: whether the name must also be a valid znode name.

    Source: Kafka 1.1 kafka.common.Config.validateChars.
    """

    is_znode: bool = False
    name: str = "string"
    valid: str = "ASCII letters and digits, ``.``, ``_`` and ``-``"

    def parse(self, key: str, text: str, /) -> str:
        if self.is_znode and not text.strip("."):
            raise invalid(key, "a valid znode name", text)
        if not _LEGAL_NAME.fullmatch(text):
            raise ConfigurationError(
                f"{key} {text} is illegal, contains a character other than ASCII alphanumerics, '.', '_' and '-'"
            )
        return text


@dataclass(frozen=True, slots=True)
class Boolean:
    """``true`` or ``false``, in lower case as the JVM requires."""

    name: str = "boolean"
    valid: str = "``true``, ``false``"

    def parse(self, key: str, text: str, /) -> bool:
        if text not in ("true", "false"):
            raise invalid(key, "'true' or 'false'", text)
        return text == "true"


@dataclass(frozen=True, slots=True)
class Integer:
    """A 32-bit integer of at least ``minimum``."""

    minimum: int
    name: str = "integer"

    @property
    def valid(self) -> str:
        return f"at least {self.minimum}"

    def parse(self, key: str, text: str, /) -> int:
        if not re.fullmatch(r"[+-]?[0-9]{1,10}", text) or not self.minimum <= int(text) <= _INT_MAX:
            raise invalid(key, f"an integer between {self.minimum} and {_INT_MAX}", text)
        return int(text)


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several words.

    Attributes:
        values: the words.
        normalize: applied to the text first, such as ``str.lower`` for a property that is case-insensitive.
        jvm_error: the JVM's error message, formatted with ``value``, for a property with such a message.
    """

    values: tuple[str, ...]
    normalize: Callable[[str], str] = str
    jvm_error: str = ""
    name: str = "string"

    @property
    def valid(self) -> str:
        return ", ".join(f"``{value}``" for value in self.values)

    def parse(self, key: str, text: str, /) -> str:
        chosen = self.normalize(text)
        if chosen in self.values:
            return chosen
        if self.jvm_error:
            raise ConfigurationError(self.jvm_error.format(value=text))
        *others, last = map(repr, self.values)
        raise invalid(key, f"{', '.join(others)} or {last}", text)


@dataclass(frozen=True, slots=True)
class Property:
    """Declaration of a property; ``declare`` describes the attributes."""

    type: PropertyType
    default: Any
    meaning: str
    counterpart: str | None
    derived_default: str

    def parse(self, key: str, value: object) -> Any:
        """Return the value of the property.

        Blanks around the value are ignored, except in passwords.

        Raises:
            ConfigurationError: with the name of the property, the value and the valid values.

        Source: Kafka 3.9 ConfigDef.parseType.
        """
        text = str(value).lower() if isinstance(value, bool) else str(value)
        return self.type.parse(key, text if self.type.name == "password" else text.strip())

    def setting(self, name: str) -> Setting:
        """Return the row of the property in the table of properties."""
        if self.default is REQUIRED:
            default = "required"
        elif self.default is None or self.default == "":
            default = self.derived_default
        else:
            default = f"``{str(self.default).lower() if isinstance(self.default, bool) else self.default}``"
        counterpart = f"``{name}``" if self.counterpart is None else self.counterpart
        return Setting(name, self.type.name, default, self.type.valid, self.meaning, counterpart)


def declare(
    type_: PropertyType,
    default: Any,
    meaning: str,
    *,
    counterpart: str | None = None,
    derived_default: str = "",
) -> Any:
    """Declare a property.

    Args:
        type_: parses values and describes the valid ones.
        default: None for a default that depends on other properties, or for no value.
        meaning: one sentence for the table of properties, in reStructuredText.
        counterpart: property of the JVM's old consumer, None for the same name.
        derived_default: describes a default of None in the table.
    """
    return dataclasses.field(
        kw_only=True,
        repr=type_.name != "password",
        metadata={"property": Property(type_, default, meaning, counterpart, derived_default)},
    )


def declare_own(type_: PropertyType, default: Any, meaning: str, *, counterpart: str = "none") -> Any:
    """Declare a property that the old consumer does not have."""
    return declare(type_, default, meaning, counterpart=counterpart)


def declare_librdkafka(type_: PropertyType, default: Any, meaning: str) -> Any:
    """Declare a property that the old consumer does not have, under librdkafka's name."""
    return declare_own(type_, default, meaning, counterpart="none; same name in librdkafka")
