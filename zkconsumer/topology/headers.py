"""Checks of the parts of a record, which the compiled ``Record`` calls, too."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

from zkconsumer.errors import StreamsError

#: Name and value; a name can occur several times.
Header = tuple[str, bytes | None]

#: The highest timestamp.
MAX_TIMESTAMP = (1 << 63) - 1


def copy_headers(headers: Iterable[Header]) -> list[Header]:
    """Return a copy of headers, as tuples.

    Raises:
        StreamsError: one of them is not a pair of str and bytes or None.
    """
    result: list[Header] = []
    for header in headers:
        match header:
            case (str(name), (bytes() | None) as value):
                result.append((name, value))
            case _:
                raise StreamsError(f"a header must be a tuple of str and bytes or None, got {header!r}")
    return result


def reject_timestamp(timestamp: object) -> NoReturn:
    """Raise the error about an invalid timestamp."""
    if isinstance(timestamp, int) and timestamp > MAX_TIMESTAMP:
        raise StreamsError(f"the timestamp of a record must be at most {MAX_TIMESTAMP}, got {timestamp!r}")
    raise StreamsError(f"the timestamp of a record must be a non-negative integer, got {timestamp!r}")


def count_header_bytes(headers: Iterable[Header]) -> int:
    """Return the bytes that record caches of Kafka Streams count: UTF-16 units of names, and the bytes of values."""
    return sum(len(name.encode("utf-16-le")) // 2 + len(value or b"") for name, value in headers)
