"""Damage: why an entry of the log is invalid, according to its header."""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple


class DamageKind(Enum):
    """Why an entry is invalid."""

    UNKNOWN_FORMAT = auto()
    INVALID_SIZE = auto()
    CRC_MISMATCH = auto()
    NEGATIVE_OFFSET_DELTA = auto()
    NEGATIVE_COUNT = auto()
    COUNT_ABOVE_SIZE = auto()
    INVALID_KEY_LENGTH = auto()
    INVALID_VALUE_LENGTH = auto()
    OFFSET_BACKWARD = auto()
    OFFSET_ABOVE_NEXT = auto()
    OFFSET_ABOVE_END = auto()
    #: The batch at the requested offset had an impossible offset in an earlier fetch, and the broker now skips it.
    BATCH_MISSING = auto()

    @property
    def text(self) -> str:
        """The reason in error messages."""
        return _TEXTS[self]

    @property
    def is_offset(self) -> bool:
        """Whether the offset of the entry is impossible."""
        return self in _OFFSET_KINDS


_TEXTS = {
    DamageKind.UNKNOWN_FORMAT: "unknown message format",
    DamageKind.INVALID_SIZE: "invalid size",
    DamageKind.CRC_MISMATCH: "CRC does not match",
    DamageKind.NEGATIVE_OFFSET_DELTA: "negative last offset delta",
    DamageKind.NEGATIVE_COUNT: "negative record count",
    DamageKind.COUNT_ABOVE_SIZE: "record count exceeds the batch size",
    DamageKind.INVALID_KEY_LENGTH: "invalid key length",
    DamageKind.INVALID_VALUE_LENGTH: "invalid value length",
    DamageKind.OFFSET_BACKWARD: "offset goes backward",
    DamageKind.OFFSET_ABOVE_NEXT: "offset exceeds that of the next batch",
    DamageKind.OFFSET_ABOVE_END: "offset exceeds the end of the log",
    DamageKind.BATCH_MISSING: "the batch at this offset had a wrong offset before, and is missing now",
}
_OFFSET_KINDS = {DamageKind.OFFSET_BACKWARD, DamageKind.OFFSET_ABOVE_NEXT, DamageKind.OFFSET_ABOVE_END}

#: The decoder reports the kind by its text, because ``_decode.c`` knows no classes of Python.
_KINDS = {text: kind for kind, text in _TEXTS.items()}


class Damage(NamedTuple):
    """An invalid entry: why it is invalid, and its byte position in the data."""

    kind: DamageKind
    position: int

    @classmethod
    def from_decoder(cls, text: str, position: int) -> Damage:
        """Return the damage that the decoder reports by its text."""
        return cls(_KINDS[text], position)
