"""User-defined decoders in a file that tests ship with ``addPyFile``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from zkconsumer import MessageAndMetadata
from zkconsumer.spark import BatchDecoder, RecordDecoder


class Words(RecordDecoder):
    """Returns the words of a record with their lengths. ``!`` raises an error, and ``.`` ends the stream."""

    schema = "word string, length int, at bigint"

    def open(self, options: Mapping[str, str]) -> None:
        self._separator = options.get("separator", " ")

    def decode(self, record: MessageAndMetadata) -> Iterator[tuple[Any, ...]] | None:
        if record.value is None:
            return None
        return self._words(record, record.value)

    def _words(self, record: MessageAndMetadata, value: bytes) -> Iterator[tuple[Any, ...]]:
        for word in value.decode().split(self._separator):
            if word == "!":
                raise ValueError("an exclamation mark")
            if word == "?":
                yield word, "not a number", record.offset
            elif word == "#":
                yield word, 1 << 70, record.offset
            elif word:
                yield word, len(word), record.offset

    def is_end_of_stream(self, row: tuple[Any, ...]) -> bool:
        return bool(row[0] == ".")


class Numbers(BatchDecoder):
    """Decodes batches of numbers, and skips odd numbers."""

    schema = "number bigint, partition int"

    def decode(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        numbers = pc.cast(pc.cast(batch["value"], pa.string()), pa.int64())
        made = pa.RecordBatch.from_arrays([numbers, batch["partition"]], names=["number", "partition"])
        return made.filter(pc.equal(pc.bit_wise_and(numbers, 1), 0))


class NoSchema(RecordDecoder):
    """Invalid, because it has no schema."""

    def decode(self, record: MessageAndMetadata) -> None:
        del record
