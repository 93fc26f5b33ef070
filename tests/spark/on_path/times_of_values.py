"""Decoders that are on the Python path of all processes, as installed ones are: they tell event times."""

from __future__ import annotations

from typing import Any

from zkconsumer import MessageAndMetadata
from zkconsumer.spark import RecordDecoder


class Times(RecordDecoder):
    """Values that are milliseconds."""

    schema = "minute bigint"

    def decode(self, record: MessageAndMetadata) -> list[tuple[Any, ...]]:
        return [(int(record.value) // 60_000,)]

    def event_time(self, record: MessageAndMetadata) -> int | None:
        return int(record.value)


class Timeless(Times):
    """Values that tell no time."""

    def event_time(self, record: MessageAndMetadata) -> int | None:
        del record
        return None
