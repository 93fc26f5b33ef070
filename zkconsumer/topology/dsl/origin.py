"""Serialized source metadata and headers of records that a store buffers.

Source: Kafka 3.9 ProcessorRecordContext.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from zkconsumer.topology.loop.headers import Header
from zkconsumer.topology.loop.records import RecordMetadata


class Origin(NamedTuple):
    """Source metadata and headers of a buffered record.

    Attributes:
        metadata: topic, partition and offset of the source record.
        headers: headers of the buffered record.
    """

    metadata: RecordMetadata
    headers: list[Header]

    def encode(self) -> bytes:
        """Serialize the metadata and headers."""
        headers = [(name, None if value is None else value.hex()) for name, value in self.headers]
        return json.dumps((*self.metadata, headers)).encode()

    @classmethod
    def decode(cls, data: bytes) -> Origin:
        """Deserialize the result of ``encode``."""
        topic, partition, offset, headers = json.loads(data)
        decoded = [(name, None if value is None else bytes.fromhex(value)) for name, value in headers]
        return cls(RecordMetadata(topic, partition, offset), decoded)
