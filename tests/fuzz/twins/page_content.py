"""Random keys, values and pages, also damaged ones."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from typing import Any

from zkconsumer.topology.serdes import Codec
from zkconsumer.topology.stores.page_format import Page

from .values import Blob, Text

CORNERS_32 = (0, 1, 2, 5, 13, 255, 256, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFC, 0xFFFFFFFF)
NUMBERS = (
    0,
    1,
    -1,
    255,
    (1 << 31) - 1,
    1 << 31,
    -(1 << 31),
    -(1 << 31) - 1,
    (1 << 63) - 1,
    1 << 63,
    -(1 << 63),
    1 << 80,
)
PREFIXES = (b"", b"\0\0\0\0", b"key-", b"\xff\xff", b"a prefix that is longer than eight bytes ")


class PageContent:
    """Creates keys, values and pages of random shapes.

    Args:
        rng: random numbers.
        codecs: codecs of the keys and values.
    """

    def __init__(self, rng: random.Random, codecs: Sequence[int]) -> None:
        self.rng = rng
        self.codecs = codecs
        self.prefix = rng.choice(PREFIXES)
        self.keys = rng.choice((4, 40, 400, 4_000))
        self.value_sizes = rng.choice(((8,), (0, 1, 8), (0, 8, 20, 100, 300), (8, 8, 8, 8, 5_000, 20_000)))

    def key(self) -> bytes:
        """Return a key of one of several shapes."""
        rng = self.rng
        number = rng.randrange(self.keys)
        match rng.randrange(40):
            case 0:
                return b""
            case 1:
                return self.prefix + bytes(rng.randrange(10))
            case 2:
                return rng.randbytes(rng.randrange(12))
            case 3:
                return self.prefix[: rng.randrange(len(self.prefix) + 1)]
            case 4 | 5 | 6:
                return self.prefix + b"these keys differ only at their end" + number.to_bytes(2, "big")
            case 7 | 8:
                return self.prefix + b"%d" % number
        return self.prefix + number.to_bytes(8, "big")

    def value(self) -> bytes:
        """Return a value of one of the sizes."""
        return self.rng.randbytes(self.rng.choice(self.value_sizes))

    def object(self, position: int) -> Any:
        """Return an object for the serde of the keys or values, or one of another type."""
        rng = self.rng
        codec = self.codecs[position] % Codec.TIMESTAMPED
        if rng.random() < 0.1:
            codec = rng.choice(tuple(Codec))
        number = rng.choice((rng.randrange(self.keys), rng.randrange(-self.keys, self.keys), *NUMBERS))
        match codec:
            case Codec.BYTES:
                return rng.choice((self.key(), self.key(), Blob(self.key()), bytearray(b"x")))
            case Codec.STRING:
                return rng.choice((f"text {number}", "\u00e4\u20ac\U0001f600", "\ud800", Text("x"), ""))
            case Codec.INTEGER | Codec.LONG:
                return rng.choice((number, number, number, rng.randrange(self.keys), True))
            case Codec.DOUBLE:
                return rng.choice((float(number), 0.0, -0.0, float("nan"), float("inf"), number))
        return rng.choice((None, number, [number], "x", {"x": number}, object))

    def mutate(self, page_id: int, data: bytes) -> bytes | None:
        """Return a page with a few changes."""
        rng = self.rng
        if rng.random() < 0.05:
            return None
        if page_id > 0 and rng.random() < 0.3:
            keys = sorted({self.key() for _ in range(rng.randrange(20))})
            entries = {key: self.value() for key in keys}
            return Page(entries, keys, 0).encode()
        changed = bytearray(data)
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            at = rng.randrange(len(changed) + 1)
            match rng.randrange(6):
                case 0:
                    del changed[at:]
                case 1:
                    changed[at:at] = rng.randbytes(rng.randrange(1, 20))
                case 2 if at < len(changed):
                    changed[at] = rng.choice((0, 1, 2, 3, 127, 128, 255, rng.randrange(256)))
                case 3 if at < len(changed):
                    changed[at] ^= 1 << rng.randrange(8)
                case _ if len(changed) >= 9:  # the number of entries, or a length
                    at = rng.choice((1, 1 + 4 * rng.randrange((len(changed) - 1) // 4)))
                    (old,) = struct.unpack_from("<I", changed, at)
                    new = rng.choice((*CORNERS_32, old + 1, old - 1, old ^ 4)) & 0xFFFFFFFF
                    struct.pack_into("<I", changed, at, new)
        return bytes(changed)
