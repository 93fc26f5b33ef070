"""Decoder benchmark: zkconsumer and kafka-python decode batches in memory, in one thread."""

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
        log = b"".join(numbered_batch(i * PER_BATCH, PER_BATCH, size=VALUE_SIZE, codec=codec) for i in range(5000))
        decoders = (
            ("zkconsumer, Arrow", arrow, log),
            ("zkconsumer, messages", by_message, log),
            ("kafka-python", kafka_python, log[: len(log) // 50]),
        )
        for name, decode, data in decoders:
            decode(data)
            times = []
            for _ in range(ROUNDS):
                started = time.perf_counter()
                records = decode(data)
                times.append(time.perf_counter() - started)
            seconds = statistics.median(times)
            results.append(
                {"who": name, "codec": codec, "records/s": records / seconds, "MB/s": len(data) / seconds / 1e6}
            )
    return results


def arrow(data: bytes) -> int:
    """Decode into Arrow batches with all columns, checking CRCs; return the number of records."""
    return sum(batch.num_rows for batch, _ in ArrowReader().read(_chunk(data)))


def by_message(data: bytes) -> int:
    """Decode into message objects, checking CRCs; return the number of records."""
    return sum(len(messages) for messages, _ in read_messages(_chunk(data), max_rows=2048))


def _chunk(data: bytes) -> Chunk:
    # Each batch from numbered_batch() starts at offset 0. A fetch offset of -1 ensures that no records are skipped.
    return Chunk(TopicPartition("bench", 0), -1, 1, data)


def kafka_python(data: bytes) -> int:
    """Decode with kafka-python, checking CRCs; return the number of records."""
    from kafka.record import MemoryRecords

    records, count = MemoryRecords(data), 0
    while (batch := records.next_batch()) is not None:
        if not batch.validate_crc():
            raise ValueError("the CRC of a batch does not match its content")
        for record in batch:
            count += record.value is not None
    return count
