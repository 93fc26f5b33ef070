"""Memory and isolation: one of eight partitions is never read.

``python -m bench.memory MODE ZOOKEEPER WARM TOPIC RECORDS SECONDS``: MODE ``all`` or ``seven``. Eight streams of one
partition each. They read the small topic WARM first, so that everything is loaded and each thread has run: the resident
memory after that is the base. Then they read a backlog of TOPIC at full speed, in batches of 2048 rows, and go on for
SECONDS under whatever load there is, with the resident memory sampled every 100 ms. Prints JSON.
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

from bench.topics import FETCH_BYTES, PARTITIONS
from zkconsumer import ConsumerConfig, ZookeeperConsumerConnector, create_consumer

CHUNKS = 2
UNREAD = 7
MAX_ROWS = 2048


class Reading:
    """The streams of one topic, each read by a thread of its own."""

    def __init__(self, zookeeper: str, topic: str, per_partition: int, unread: Collection[int] = ()) -> None:
        self.counts: dict[int, int] = {}
        self.times: dict[int, tuple[float, float]] = {}  # from the first record to that with number per_partition
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
        partition, begun, total = -1, 0.0, 0
        for batch in stream.batches(MAX_ROWS):
            if partition < 0:
                partition, begun = batch.column(3)[0].as_py(), time.perf_counter()
            total += batch.num_rows
            self.counts[partition] = total
            if total >= self._per_partition and partition not in self.times:
                self.times[partition] = (begun, time.perf_counter())

    def wait_for(self, partitions: Collection[int]) -> None:
        """Wait until the backlog of these is read."""
        self._wait(lambda: self.times.keys() >= set(partitions))

    def wait_for_the_end(self, partitions: Collection[int]) -> None:
        """Wait until next to nothing of these is left to fetch."""
        self._wait(lambda: sum(n for p, n in self._consumer.lag.items() if p.partition in partitions) <= 10_000)

    def _wait(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 120
        while not condition():
            if time.monotonic() > deadline:
                raise RuntimeError(f"too slow: {self.counts} records were read, {self._consumer.lag} are left")
            time.sleep(0.01)

    def close(self) -> None:
        """Leave the group and wait for the readers."""
        self._consumer.shutdown()
        for thread in self._threads:
            thread.join()


def main(mode: str, zookeeper: str, warm: str, topic: str, per_partition: int, seconds: float) -> None:
    """Run once."""
    process = psutil.Process()
    warming = Reading(zookeeper, warm, 1)
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
    reading = Reading(zookeeper, topic, per_partition, {UNREAD} if mode == "seven" else set())
    reading.wait_for(seven)
    times = [reading.times[p] for p in seven]
    begun, ended = min(t[0] for t in times), max(t[1] for t in times)
    reading.wait_for_the_end(seven)
    before, at = sum(reading.counts[p] for p in seven), time.perf_counter()
    stop.wait(seconds)
    after, then = sum(reading.counts[p] for p in seven), time.perf_counter()
    stop.set()
    sampler.join()
    reading.close()
    print(
        json.dumps(
            {
                "backlog records/s of the seven": len(seven) * per_partition / (ended - begun),
                "steady records/s of the seven": (after - before) / (then - at),
                "base bytes": base,
                "peak bytes": max(samples),
                # One answer of each broker's fetcher: together a fetch size of each partition.
                "bound bytes": base + PARTITIONS * CHUNKS * FETCH_BYTES + PARTITIONS * FETCH_BYTES,
                "samples": samples,
            }
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:5], int(sys.argv[5]), float(sys.argv[6]))
