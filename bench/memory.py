"""Memory and isolation: one of eight partitions is never read.

``python -m bench.memory MODE ZOOKEEPER TOPIC RECORDS SECONDS``: MODE ``all`` or ``seven``. Eight streams of one
partition each; reads a backlog at full speed, then goes on for SECONDS under whatever load there is, with the
resident memory sampled every 100 ms. Prints JSON.
"""

from __future__ import annotations

import json
import sys
import threading
import time
import uuid
from typing import Any

import psutil

from zkconsumer import ConsumerConfig, create_consumer

FETCH_BYTES = 1 << 20
CHUNKS = 2


def main(mode: str, zookeeper: str, topic: str, per_partition: int, seconds: float) -> None:
    """Run once."""
    process = psutil.Process()
    config = ConsumerConfig.from_dict(
        {
            "group.id": f"bench-{uuid.uuid4().hex[:8]}",
            "zookeeper.connect": zookeeper,
            "auto.offset.reset": "smallest",
            "fetch.message.max.bytes": FETCH_BYTES,
            "queued.max.message.chunks": CHUNKS,
        }
    )
    base = process.memory_info().rss
    samples: list[int] = []
    stop = threading.Event()

    def sample() -> None:
        while not stop.wait(0.1):
            samples.append(process.memory_info().rss)

    done: dict[int, tuple[float, float]] = {}
    counts: dict[int, int] = {}

    def read(stream: Any) -> None:
        partition, begun, total = -1, 0.0, 0
        for batch in stream.batches():
            if partition < 0:
                partition, begun = batch.column(3)[0].as_py(), time.perf_counter()
            total += batch.num_rows
            counts[partition] = total
            if total >= per_partition and partition not in done:
                done[partition] = (begun, time.perf_counter())

    with create_consumer(config) as consumer:
        streams = consumer.create_message_streams({topic: 8})[topic]
        unread = 7 if mode == "seven" else None
        readers = [
            threading.Thread(target=read, args=(stream,), daemon=True)
            for number, stream in enumerate(streams)
            if number != unread
        ]
        sampler = threading.Thread(target=sample, daemon=True)
        sampler.start()
        for reader in readers:
            reader.start()
        deadline = time.monotonic() + 120
        while len([p for p in done if p != 7]) < 7 and time.monotonic() < deadline:
            time.sleep(0.01)
        seven = {p: times for p, times in done.items() if p != 7}
        begun, ended = min(t[0] for t in seven.values()), max(t[1] for t in seven.values())
        before, at = sum(n for p, n in counts.items() if p != 7), time.perf_counter()
        stop.wait(seconds)
        after, then = sum(n for p, n in counts.items() if p != 7), time.perf_counter()
        stop.set()
        sampler.join()
    brokers = 2
    print(
        json.dumps(
            {
                "backlog records/s of the seven": 7 * per_partition / (ended - begun),
                "steady records/s of the seven": (after - before) / (then - at),
                "base bytes": base,
                "peak bytes": max(samples),
                "bound bytes": base + 8 * CHUNKS * FETCH_BYTES + brokers * (8 // brokers) * FETCH_BYTES,
                "samples": samples,
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), float(sys.argv[5]))
