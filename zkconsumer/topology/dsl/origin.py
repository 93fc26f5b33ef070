"""Where held-back records come from, as bytes in a store.

Source: Kafka 3.9 ProcessorRecordContext.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from zkconsumer.topology.headers import Header
from zkconsumer.topology.records import RecordMetadata


class Origin(NamedTuple):
    """What a buffer keeps of a record, besides its key, value and timestamp.

    Attributes:
        metadata: where the source record was read.
        headers: headers of the record.
    """

    metadata: RecordMetadata
    headers: list[Header]

    def encode(self) -> bytes:
        """Return the origin as bytes."""
        headers = [(name, None if value is None else value.hex()) for name, value in self.headers]
        return json.dumps((*self.metadata, headers)).encode()

    @classmethod
    def decode(cls, data: bytes) -> Origin:
        """Return the origin in bytes of ``encode``."""
        topic, partition, offset, headers = json.loads(data)
        decoded = [(name, None if value is None else bytes.fromhex(value)) for name, value in headers]
        return cls(RecordMetadata(topic, partition, offset), decoded)
