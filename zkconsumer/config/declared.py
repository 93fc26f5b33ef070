"""Declared: the declaration of a property or an option, which parses and documents it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from zkconsumer.config.tables import Row
from zkconsumer.config.types import SettingType
from zkconsumer.errors import ConfigurationError
from zkconsumer.excerpt import excerpt

#: Default of a required property.
REQUIRED = object()


@dataclass(frozen=True, slots=True)
class Declared:
    """Declaration of one property or option.

    Attributes:
        name: as the user writes it.
        type: parses values and describes the valid ones.
        default: a value as a user may give it; None for no value, or for one that depends on other settings; REQUIRED.
        meaning: one to three sentences in reStructuredText.
        counterpart: the property or option of Kafka or Spark that it corresponds to, in reStructuredText.
        default_note: describes the default in reStructuredText, if ``default`` does not.
    """

    name: str
    type: SettingType
    default: object
    meaning: str
    counterpart: str = "none"
    default_note: str = ""

    def parse(self, given: object, what: Literal["property", "option"] = "property") -> Any:
        """Return the value of a setting.

        Blanks around the value are ignored, except in secrets.

        Args:
            given: text, a number or a boolean.
            what: the kind of the setting, for the error message.

        Raises:
            ConfigurationError: with the name of the setting, the valid values and the value.

        Source: Kafka 3.9 ConfigDef.parseType.
        """
        text = str(given).lower() if isinstance(given, bool) else str(given)
        text = text if self.type.is_secret else text.strip()
        try:
            return self.type.parse(text)
        except ValueError as error:
            raise self._invalid(what, text, *error.args) from error.__cause__

    def parse_default(self) -> Any:
        """Return the value that applies if the setting is absent; None if there is none."""
        return None if self.default is None else self.parse(self.default)

    def row(self) -> Row:
        """Return the documentation of the setting."""
        default = f"``{str(self.default).lower() if isinstance(self.default, bool) else self.default}``"
        if self.default is REQUIRED:
            default = "required"
        elif self.default in (None, ""):
            default = "none"
        return Row(
            self.name, self.type.name, self.default_note or default, self.type.valid, self.meaning, self.counterpart
        )

    def _invalid(self, what: str, text: str, requirement: str, explanation: str = "") -> ConfigurationError:
        shown = "" if self.type.is_secret else f", got {excerpt(text)}"
        because = f": {explanation}" if explanation and not self.type.is_secret else ""
        return ConfigurationError(f"{what} {self.name!r} must be {requirement}{shown}{because}")


__all__ = ["REQUIRED", "Declared"]
