"""Decoders with event times, on the Python path of all processes, as installed decoders are."""

from __future__ import annotations

from typing import Any

from zkconsumer import MessageAndMetadata
from zkconsumer.spark import RecordDecoder


class Times(RecordDecoder):
    """Uses values as event times in milliseconds."""

    schema = "minute bigint"

    def decode(self, record: MessageAndMetadata) -> list[tuple[Any, ...]]:
        return [(int(record.value or b"") // 60_000,)]

    def event_time(self, record: MessageAndMetadata) -> int | None:
        return int(record.value or b"")


class Timeless(Times):
    """Returns no event times."""

    def event_time(self, record: MessageAndMetadata) -> int | None:
        del record
        return None
