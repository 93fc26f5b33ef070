"""Input of the applications: 100-byte records with random keys, in topics with 8 partitions."""

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

#: Records per batch: about as many as fit into the Java producer's default batch size, 16 KiB.
PER_BATCH = 140

#: Offset deltas below this number take one byte; larger offset deltas, up to ``PER_BATCH``, take two bytes.
_ONE_BYTE = 64


#: Function that returns the values for the given keys, as an array with shape (records, value size).
CreateValues = Callable[[Any], Any]


def create_random_values(keys: Any, size: int = VALUE_SIZE) -> Any:
    """Return one random value of ``size`` bytes for each key."""
    return np.frombuffer(np.random.default_rng(len(keys)).bytes(len(keys) * size), np.uint8).reshape(len(keys), size)


def fill(cluster: DevCluster, topic: str, records: int, keys: int) -> str:
    """Create a topic, fill it with records, and return its name.

    Keys are big-endian numbers. Key ``n`` is in partition ``n`` modulo 8.
    """
    cluster.create_topic(topic, PARTITIONS)
    print(f"filling {topic} with {records:,} records", file=sys.stderr, flush=True)
    produce(cluster, topic, choose_keys(records, keys))
    return topic


def choose_keys(records: int, keys: int) -> Any:
    """Return the keys of the records that ``fill`` writes."""
    return np.random.default_rng(1).integers(keys, size=records)


def produce(cluster: DevCluster, topic: str, keys: Any, create_values: CreateValues = create_random_values) -> None:
    """Produce records with the given keys to a topic."""
    parts = {
        TopicPartition(topic, number): split(keys[keys % PARTITIONS == number], create_values)
        for number in range(PARTITIONS)
    }
    while parts:
        batches = {partition: next(part, None) for partition, part in parts.items()}
        parts = {partition: part for partition, part in parts.items() if batches[partition] is not None}
        cluster.admin.produce_all({partition: data for partition, data in batches.items() if data is not None})


def split(numbers: Any, create_values: CreateValues) -> Iterator[bytes]:
    """Yield record batches with the given keys."""
    for first in range(0, len(numbers), PER_BATCH):
        yield encode_batch(numbers[first : first + PER_BATCH], create_values)


def encode_batch(numbers: Any, create_values: CreateValues = create_random_values) -> bytes:
    """Return a record batch with the given keys, in message format 2."""
    count = len(numbers)
    keys: Any = np.ascontiguousarray(numbers, dtype=">i8").view(np.uint8).reshape(count, KEY_SIZE)
    values = create_values(numbers)
    value_size = values.shape[1]
    deltas: Any = np.arange(count)
    rows = []
    for begin, end in ((0, _ONE_BYTE), (_ONE_BYTE, count)):
        part = deltas[begin:end] * 2  # zigzag encoding
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
    """Encode a number below 8,192 as a varint of one or two bytes."""
    zigzag = number * 2
    return bytes([zigzag]) if number < _ONE_BYTE else bytes([zigzag & 0x7F | 0x80, zigzag >> 7])
