"""Measures memory usage and throughput while all of eight partitions are read, or all except one.

``python -m bench.memory MODE ZOOKEEPER WARM TOPIC RECORDS SECONDS``, with MODE ``all`` or ``seven``, prints JSON.

Each stream reads one partition. The streams first read the small topic WARM, which loads all code and starts all
threads; the resident memory after that is the baseline. Then they read RECORDS records per partition of TOPIC at full
speed, in batches of at most 2048 rows, and continue for SECONDS under a steady load. The resident memory is sampled
every 100 ms.
"""

from __future__ import annotations

import json
import sys
import threading
import time
import uuid
from collections.abc import Callable, Collection
from typing import Any

import psutil

from bench.plain import FETCH_BYTES
from bench.topics import PARTITIONS
from zkconsumer import ConsumerConfig, ZookeeperConsumerConnector, create_consumer

CHUNKS = 2
UNREAD = 7
MAX_ROWS = 2048


class TopicReader:
    """Reads all partitions of a topic except those in ``unread``, each in a separate thread."""

    def __init__(self, zookeeper: str, topic: str, per_partition: int, unread: Collection[int] = ()) -> None:
        self.counts: dict[int, int] = {}
        #: partition -> times at which its first and last record were read
        self.times: dict[int, tuple[float, float]] = {}
        self._per_partition = per_partition
        config = ConsumerConfig.from_dict(
            {
                "group.id": f"bench-{uuid.uuid4().hex[:8]}",
                "zookeeper.connect": zookeeper,
                "auto.offset.reset": "smallest",
                "fetch.message.max.bytes": FETCH_BYTES,
                "queued.max.message.chunks": CHUNKS,
            }
        )
        self._consumer: ZookeeperConsumerConnector = create_consumer(config)
        streams = self._consumer.create_message_streams({topic: PARTITIONS})[topic]
        self._threads = [
            threading.Thread(target=self._read, args=(stream,))
            for number, stream in enumerate(streams)
            if number not in unread
        ]
        for thread in self._threads:
            thread.start()

    def _read(self, stream: Any) -> None:
        partition, started, total = -1, 0.0, 0
        for batch in stream.batches(MAX_ROWS):
            if partition < 0:
                partition, started = batch.column(3)[0].as_py(), time.perf_counter()
            total += batch.num_rows
            self.counts[partition] = total
            if total >= self._per_partition and partition not in self.times:
                self.times[partition] = (started, time.perf_counter())

    def wait_for(self, partitions: Collection[int]) -> None:
        """Wait until the backlog of the partitions has been read."""
        self._wait(lambda: self.times.keys() >= set(partitions))

    def wait_until_caught_up(self, partitions: Collection[int]) -> None:
        """Wait until the partitions have a total lag of at most 10,000 records."""
        self._wait(lambda: sum(n for p, n in self._consumer.lag.items() if p.partition in partitions) <= 10_000)

    def _wait(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 120
        while not condition():
            if time.monotonic() > deadline:
                raise RuntimeError(f"timed out after 120 s; records read: {self.counts}, lag: {self._consumer.lag}")
            time.sleep(0.01)

    def close(self) -> None:
        """Shut down the consumer and join the threads."""
        self._consumer.shutdown()
        for thread in self._threads:
            thread.join()


def main(mode: str, zookeeper: str, warm: str, topic: str, per_partition: int, seconds: float) -> None:
    """Run the benchmark once and print the result."""
    process = psutil.Process()
    warming = TopicReader(zookeeper, warm, 1)
    warming.wait_for(range(PARTITIONS))
    base = process.memory_info().rss
    warming.close()
    samples: list[int] = []
    stop = threading.Event()

    def sample() -> None:
        while not stop.wait(0.1):
            samples.append(process.memory_info().rss)

    sampler = threading.Thread(target=sample)
    sampler.start()
    seven = set(range(PARTITIONS)) - {UNREAD}
    reading = TopicReader(zookeeper, topic, per_partition, {UNREAD} if mode == "seven" else set())
    reading.wait_for(seven)
    times = [reading.times[p] for p in seven]
    started, ended = min(t[0] for t in times), max(t[1] for t in times)
    reading.wait_until_caught_up(seven)
    before, at = sum(reading.counts[p] for p in seven), time.perf_counter()
    stop.wait(seconds)
    after, then = sum(reading.counts[p] for p in seven), time.perf_counter()
    stop.set()
    sampler.join()
    reading.close()
    print(
        json.dumps(
            {
                "backlog records/s of the seven": len(seven) * per_partition / (ended - started),
                "steady records/s of the seven": (after - before) / (then - at),
                "base bytes": base,
                "peak bytes": max(samples),
                # The last term is the maximum total size of in-flight responses: one fetch size per partition.
                "bound bytes": base + PARTITIONS * CHUNKS * FETCH_BYTES + PARTITIONS * FETCH_BYTES,
                "samples": samples,
            }
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:5], int(sys.argv[5]), float(sys.argv[6]))
