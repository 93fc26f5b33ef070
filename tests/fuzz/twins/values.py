"""Random keys, values, timestamps and headers, also invalid ones."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from zkconsumer.topology.serdes import BYTES, DOUBLE, INTEGER, LONG, STRING, Codec, Serde

SERDES: dict[Codec, Serde] = {
    Codec.BYTES: BYTES,
    Codec.STRING: STRING,
    Codec.INTEGER: INTEGER,
    Codec.LONG: LONG,
    Codec.DOUBLE: DOUBLE,
}
I64_MAX = (1 << 63) - 1
NUMBERS = (0, 1, -1, (1 << 31) - 1, 1 << 31, -(1 << 31) - 1, I64_MAX, 1 << 63, -(1 << 63), -(1 << 63) - 1, 1 << 80)
TEXTS = ("", "text", "\u00e4\u20ac\U0001f600", "\ud800", "x" * 2_000)
TIMESTAMPS = (0, 1, 5, 9, I64_MAX, I64_MAX + 1, -1, True, None, 1.5, "1")


class Text(str):
    """Text whose type is not exactly ``str``."""


class Blob(bytes):
    """Bytes whose type is not exactly ``bytes``."""


class ReplacedHeaders:
    """Headers that are replaced in their record, and then deleted, while they are read."""

    def __init__(self, record: Any, headers: list[Any]) -> None:
        self.record, self.headers = record, headers

    def __len__(self) -> int:
        self.record.headers = []
        return len(self.headers)

    def __iter__(self) -> Iterator[Any]:
        self.record.headers = []
        return iter(self.headers)

    def __repr__(self) -> str:
        return f"ReplacedHeaders({self.headers!r})"


class StopError(BaseException):
    """An error that no handler receives."""


def random_object(rng: random.Random) -> Any:
    """Return a key or value."""
    number = rng.choice((rng.randrange(100), *NUMBERS))
    return rng.choice(
        (
            None,
            number,
            number,
            bool(number % 2),
            float(rng.choice((0.0, -0.0, 1.5, "nan", "inf"))),
            rng.choice(TEXTS),
            f"text {number}",
            Text("x"),
            rng.randbytes(rng.choice((0, 1, 8, 1_500))),
            Blob(b"x"),
            [number],
        )
    )


def random_timestamp(rng: random.Random) -> Any:
    """Return a timestamp, which can be invalid."""
    return rng.choice((rng.randrange(1_000), rng.randrange(1_000), *TIMESTAMPS))


def random_headers(rng: random.Random) -> Any:
    """Return headers, which can be invalid."""
    return rng.choice(
        (None, (), [], [("a", b"x")], (("a", None), ["b", b""]), [("a", "x")], [("a",)], 5, "x", {"a": b""})
        if rng.random() < 0.2
        else (None, (), [("a", b"x")], (("a", None), ("b", b"")))
    )
