"""Damage: the reason why a log entry is corrupt, according to its header."""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple


class DamageKind(Enum):
    """Reason why a log entry is corrupt."""

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
        """The reason as given in error messages."""
        return _TEXTS[self]

    @property
    def is_offset(self) -> bool:
        """Whether the entry's offset is impossible."""
        return self in _OFFSET_KINDS


_TEXTS = {
    DamageKind.UNKNOWN_FORMAT: "unknown message format",
    DamageKind.INVALID_SIZE: "size is smaller than the header",
    DamageKind.CRC_MISMATCH: "CRC does not match",
    DamageKind.NEGATIVE_OFFSET_DELTA: "negative last offset delta",
    DamageKind.NEGATIVE_COUNT: "negative record count",
    DamageKind.COUNT_ABOVE_SIZE: "record count exceeds the batch size",
    DamageKind.INVALID_KEY_LENGTH: "key length is out of range",
    DamageKind.INVALID_VALUE_LENGTH: "value length does not match the message size",
    DamageKind.OFFSET_BACKWARD: "offset goes backward",
    DamageKind.OFFSET_ABOVE_NEXT: "offset exceeds the next batch's offset",
    DamageKind.OFFSET_ABOVE_END: "offset exceeds the end of the log",
    DamageKind.BATCH_MISSING: "the batch at this offset had an impossible offset before and is now missing",
}
_OFFSET_KINDS = {DamageKind.OFFSET_BACKWARD, DamageKind.OFFSET_ABOVE_NEXT, DamageKind.OFFSET_ABOVE_END}

#: Text -> kind. The decoder reports damage as text, because ``_decode.c`` cannot use the Python enum.
_KINDS = {text: kind for kind, text in _TEXTS.items()}


class Damage(NamedTuple):
    """A corrupt entry: the reason why it is corrupt, and its byte position in the data."""

    kind: DamageKind
    position: int

    @classmethod
    def from_decoder(cls, text: str, position: int) -> Damage:
        """Create an instance from the text that the decoder reported."""
        return cls(_KINDS[text], position)
