"""The input of the applications: records of 100 bytes with random keys, in topics with 8 partitions."""

from __future__ import annotations

import struct
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from zkconsumer.devcluster import DevCluster
from zkconsumer.fetcher.native import native
from zkconsumer.message import TopicPartition

PARTITIONS = 8
KEY_SIZE, VALUE_SIZE = 8, 92

#: Records per batch of the log: about as many as fit into the 16 KiB of a Java producer.
PER_BATCH = 140

#: Offset deltas below this number have one byte, those up to ``PER_BATCH`` two.
_ONE_BYTE = 64


#: Returns the values of records with these keys, with a shape of (records, bytes per value).
CreateValues = Callable[[Any], Any]


def create_random_values(keys: Any, size: int = VALUE_SIZE) -> Any:
    """Return random values."""
    return np.frombuffer(np.random.default_rng(len(keys)).bytes(len(keys) * size), np.uint8).reshape(len(keys), size)


def fill(cluster: DevCluster, topic: str, records: int, keys: int) -> str:
    """Create a topic with records, and return its name.

    Key ``n`` is in partition ``n`` modulo 8, as a big-endian number.
    """
    cluster.create_topic(topic, PARTITIONS)
    print(f"filling {topic} with {records:,} records", file=sys.stderr, flush=True)
    produce(cluster, topic, choose_keys(records, keys))
    return topic


def choose_keys(records: int, keys: int) -> Any:
    """Return the keys of the records that ``fill`` writes."""
    return np.random.default_rng(1).integers(keys, size=records)


def produce(cluster: DevCluster, topic: str, keys: Any, create_values: CreateValues = create_random_values) -> None:
    """Append records with these keys to a topic."""
    parts = {
        TopicPartition(topic, number): split(keys[keys % PARTITIONS == number], create_values)
        for number in range(PARTITIONS)
    }
    while parts:
        batches = {partition: next(part, None) for partition, part in parts.items()}
        parts = {partition: part for partition, part in parts.items() if batches[partition] is not None}
        cluster.admin.produce_all({partition: data for partition, data in batches.items() if data is not None})


def split(numbers: Any, create_values: CreateValues) -> Iterator[bytes]:
    """Yield record batches with these keys."""
    for first in range(0, len(numbers), PER_BATCH):
        yield encode_batch(numbers[first : first + PER_BATCH], create_values)


def encode_batch(numbers: Any, create_values: CreateValues = create_random_values) -> bytes:
    """Return a record batch of message format 2 with these keys."""
    count = len(numbers)
    keys: Any = np.ascontiguousarray(numbers, dtype=">i8").view(np.uint8).reshape(count, KEY_SIZE)
    values = create_values(numbers)
    value_size = values.shape[1]
    deltas: Any = np.arange(count)
    rows = []
    for begin, end in ((0, _ONE_BYTE), (_ONE_BYTE, count)):
        part = deltas[begin:end] * 2  # zigzag
        if not len(part):
            continue
        varint = [part] if begin == 0 else [part & 0x7F | 0x80, part >> 7]
        size = 2 + len(varint) + 1 + KEY_SIZE + 2 + value_size + 1
        fields = [
            _repeat(_varint(size) + b"\x00\x00", len(part)),  # attributes, timestamp delta
            np.stack(varint, 1).astype(np.uint8),
            _repeat(_varint(KEY_SIZE), len(part)),
            keys[begin:end],
            _repeat(_varint(value_size), len(part)),
            values[begin:end],
            _repeat(b"\x00", len(part)),  # no headers
        ]
        rows.append(np.concatenate(fields, axis=1).tobytes())
    now = int(time.time() * 1000)
    after_crc = struct.pack(">hiqqqhii", 0, count - 1, now, now, -1, -1, -1, count) + b"".join(rows)
    return struct.pack(">qiibI", 0, 9 + len(after_crc), -1, 2, native.crc32c(after_crc)) + after_crc


def _repeat(data: bytes, count: int) -> Any:
    return np.tile(np.frombuffer(data, np.uint8), (count, 1))


def _varint(number: int) -> bytes:
    """Return a number between 64 and 8,191 in two bytes, and a smaller one in one."""
    zigzag = number * 2
    return bytes([zigzag]) if number < _ONE_BYTE else bytes([zigzag & 0x7F | 0x80, zigzag >> 7])
