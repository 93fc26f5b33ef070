"""A decoder with a column that has the name, but not the values, of a column of the source."""

from __future__ import annotations

from collections.abc import Iterator

from zkconsumer import MessageAndMetadata
from zkconsumer.spark import RecordDecoder


class Shifted(RecordDecoder):
    """Returns offsets plus 1000."""

    schema = "offset bigint"

    def decode(self, record: MessageAndMetadata) -> Iterator[tuple[int]]:
        yield (record.offset + 1_000,)
