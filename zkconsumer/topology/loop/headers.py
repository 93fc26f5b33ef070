"""Checks for record headers and timestamps, shared with the compiled ``Record``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

from zkconsumer.errors import StreamsError

#: Header name and value. A record can have several headers with the same name.
Header = tuple[str, bytes | None]

#: Maximum record timestamp.
MAX_TIMESTAMP = (1 << 63) - 1


def copy_headers(headers: Iterable[Header]) -> list[Header]:
    """Return a copy of ``headers`` as a list of tuples.

    Raises:
        StreamsError: a header is not a tuple of a str and a value that is bytes or None.
    """
    result: list[Header] = []
    for header in headers:
        match header:
            case (str(name), (bytes() | None) as value):
                result.append((name, value))
            case _:
                raise StreamsError(f"a header must be a tuple (str, bytes or None), got {header!r}")
    return result


def reject_timestamp(timestamp: object) -> NoReturn:
    """Raise the error for an invalid timestamp."""
    if isinstance(timestamp, int) and timestamp > MAX_TIMESTAMP:
        raise StreamsError(f"the timestamp of a record must be at most {MAX_TIMESTAMP}, got {timestamp!r}")
    raise StreamsError(f"the timestamp of a record must be a non-negative integer, got {timestamp!r}")


def count_header_bytes(headers: Iterable[Header]) -> int:
    """Return the header size that Kafka Streams counts: UTF-16 code units of the names plus value sizes in bytes."""
    return sum(len(name.encode("utf-16-le")) // 2 + len(value or b"") for name, value in headers)
