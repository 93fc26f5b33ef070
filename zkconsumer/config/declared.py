"""Declared: declaration of a property or option, used to parse and document it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from zkconsumer.config.properties_file import FileValue
from zkconsumer.config.tables import Row
from zkconsumer.config.types import SettingType
from zkconsumer.errors import ConfigurationError
from zkconsumer.excerpt import excerpt

#: Pattern of a comment after a value. In a properties file, such a comment is part of the value.
_COMMENT = re.compile(r"\s[#!]")

#: Value of ``Declared.default`` for required properties.
REQUIRED = object()


@dataclass(frozen=True, slots=True)
class Declared:
    """Declaration of one property or option.

    Attributes:
        name: name of the property or option, as the user writes it.
        type: type of the value, which parses strings and describes the valid values.
        default: default value as a user would write it; None if there is none or if it depends on other settings;
            ``REQUIRED`` if the user must set a value.
        meaning: description in one to three sentences, in reStructuredText.
        counterpart: corresponding property or option of Kafka or Spark, in reStructuredText.
        default_note: text that replaces ``default`` in the documentation, in reStructuredText; empty for none.
    """

    name: str
    type: SettingType
    default: object
    meaning: str
    counterpart: str = "none"
    default_note: str = ""

    def parse(self, given: object, what: Literal["property", "option"] = "property") -> Any:
        """Parse a value of this property or option.

        Surrounding whitespace is ignored, except in secrets.

        Args:
            given: value as a string, number or boolean.
            what: kind of setting, used in error messages.

        Raises:
            ConfigurationError: the value is invalid. The message contains the name and the valid values and, except
                for secrets, the given value.

        Source: Kafka 3.9 ConfigDef.parseType.
        """
        text = str(given).lower() if isinstance(given, bool) else str(given)
        text = text if self.type.is_secret else text.strip()
        try:
            return self.type.parse(text)
        except ValueError as error:
            requirement, *explanation = error.args
            if isinstance(given, FileValue) and self._is_valid_without_comment(text):
                explanation = ["a comment must start on its own line"]
            raise self._invalid(what, text, requirement, *explanation) from error.__cause__

    def parse_default(self) -> Any:
        """Return the parsed default value, or None if there is none."""
        return None if self.default is None else self.parse(self.default)

    def row(self) -> Row:
        """Return the documentation of this property or option."""
        default = f"``{str(self.default).lower() if isinstance(self.default, bool) else self.default}``"
        if self.default is REQUIRED:
            default = "required"
        elif self.default in (None, ""):
            default = "none"
        return Row(
            self.name, self.type.name, self.default_note or default, self.type.valid, self.meaning, self.counterpart
        )

    def _is_valid_without_comment(self, text: str) -> bool:
        match = _COMMENT.search(text)
        if match is None:
            return False
        try:
            self.type.parse(text[: match.start()])
        except ValueError:
            return False
        return True

    def _invalid(self, what: str, text: str, requirement: str, explanation: str = "") -> ConfigurationError:
        shown = "" if self.type.is_secret else f", got {excerpt(text)}"
        because = f": {explanation}" if explanation and not self.type.is_secret else ""
        return ConfigurationError(f"{what} {self.name!r} must be {requirement}{shown}{because}")


__all__ = ["REQUIRED", "Declared"]
