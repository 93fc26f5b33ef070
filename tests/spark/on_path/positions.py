"""A decoder on the Python path of all processes, whose rows are the positions of records."""

from __future__ import annotations

from typing import Any

from zkconsumer import MessageAndMetadata
from zkconsumer.spark import RecordDecoder


class Positions(RecordDecoder):
    """Returns topic, partition and offset of each record."""

    schema = "topic string, partition int, offset bigint"

    def decode(self, record: MessageAndMetadata) -> list[tuple[Any, ...]]:
        return [(record.topic, record.partition, record.offset)]
