"""The decoder alone, beside kafka-python's: batches of the log in memory, one thread."""

from __future__ import annotations

import statistics
import time
from typing import Any

from bench.topics import PER_BATCH, VALUE_SIZE
from zkconsumer.devcluster.load import numbered_batch
from zkconsumer.fetcher.arrow import ArrowReader
from zkconsumer.fetcher.chunk import Chunk
from zkconsumer.fetcher.decode import read_messages
from zkconsumer.message import TopicPartition

ROUNDS = 5


def run() -> list[dict[str, Any]]:
    """Return records/s and MB/s of each decoder."""
    results = []
    for codec in ("none", "lz4"):
        ours = b"".join(numbered_batch(i * PER_BATCH, PER_BATCH, size=VALUE_SIZE, codec=codec) for i in range(5000))
        theirs = ours[: len(ours) // 50]
        ways = (
            ("zkconsumer, Arrow", arrow, ours),
            ("zkconsumer, messages", by_message, ours),
            ("kafka-python", kafka_python, theirs),
        )
        for who, decode, data in ways:
            decode(data)
            times = []
            for _ in range(ROUNDS):
                begun = time.perf_counter()
                records = decode(data)
                times.append(time.perf_counter() - begun)
            seconds = statistics.median(times)
            results.append(
                {"who": who, "codec": codec, "records/s": records / seconds, "MB/s": len(data) / seconds / 1e6}
            )
    return results


def _chunk(data: bytes) -> Chunk:
    return Chunk(TopicPartition("bench", 0), 0, 1, data)


def arrow(data: bytes) -> int:
    """Decode all columns of the Spark layout, CRC checked."""
    return sum(batch.num_rows for batch, _ in ArrowReader().read(_batches(data)))


def by_message(data: bytes) -> int:
    """Decode into message objects, CRC checked."""
    return sum(len(messages) for messages, _ in read_messages(_batches(data), max_rows=2048))


def _batches(data: bytes) -> Chunk:
    # All batches of numbered_batch begin at offset 0, so nothing may be skipped as too low.
    chunk = _chunk(data)
    chunk.fetch_offset = -1
    return chunk


def kafka_python(data: bytes) -> int:
    """Decode with kafka-python, CRC checked."""
    from kafka.record import MemoryRecords

    records, count = MemoryRecords(data), 0
    while (batch := records.next_batch()) is not None:
        if not batch.validate_crc():
            raise ValueError("CRC")
        for record in batch:
            count += record.value is not None
    return count
