"""One run of one plain consumer over a whole topic: ``python -m bench.plain WHO ZOOKEEPER BROKERS TOPIC RECORDS``.

Prints records and seconds as JSON. The clock runs from the arrival of the first batch (or message) to that of
the last one, and the first is not counted; so starting and joining are not in it. Every value is touched.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

from bench.topics import FETCH_BYTES


class Clock:
    """Counts records between the first and the last arrival."""

    def __init__(self) -> None:
        self.total = 0
        self._first = 0
        self._begun = self._last = 0.0

    def count(self, records: int) -> int:
        """Take in an arrival; returns the total."""
        self._last = time.perf_counter()
        if not self.total:
            self._first, self._begun = records, self._last
        self.total += records
        return self.total

    def result(self) -> dict[str, float]:
        """Return what is printed."""
        return {"records": self.total - self._first, "seconds": self._last - self._begun}


def ours(zookeeper: str, topic: str, records: int, read: Callable[..., Iterator[int]], **properties: object) -> dict:
    """Run zkconsumer; ``read`` yields the number of records of each arrival."""
    from zkconsumer import ConsumerConfig, create_consumer

    config = ConsumerConfig.from_dict(
        {
            "group.id": f"bench-{uuid.uuid4().hex[:8]}",
            "zookeeper.connect": zookeeper,
            "auto.offset.reset": "smallest",
            "fetch.message.max.bytes": FETCH_BYTES,
            **properties,
        }
    )
    clock = Clock()
    with create_consumer(config) as consumer:
        [stream] = consumer.create_message_streams({topic: 1})[topic]
        for count in read(stream):
            if clock.count(count) >= records:
                break
    return clock.result()


def arrow(stream: object) -> Iterator[int]:
    """Read Arrow batches and touch all values: their lengths are added up."""
    import pyarrow.compute as pc

    touched = 0
    for batch in stream.batches():  # type: ignore[attr-defined]
        touched += pc.sum(pc.binary_length(batch.column(1))).as_py()
        yield batch.num_rows


def by_message(stream: object) -> Iterator[int]:
    """Read message by message; arrivals are counted by the thousand."""
    touched = count = 0
    for message in stream:  # type: ignore[attr-defined]
        touched += len(message.value)
        count += 1
        if count == 1000:
            yield count
            count = 0


def confluent(brokers: str, topic: str, records: int) -> dict:
    """Run confluent-kafka with ``consume(10000)`` and its queues tuned."""
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": brokers,
            "group.id": f"bench-{uuid.uuid4().hex[:8]}",
            "auto.offset.reset": "earliest",
            "check.crcs": True,
            "max.partition.fetch.bytes": FETCH_BYTES,
            "fetch.queue.backoff.ms": 5,
            "queued.min.messages": 1_000_000,
            "queued.max.messages.kbytes": 262_144,
            "enable.auto.commit": True,
        }
    )
    consumer.subscribe([topic])
    clock, touched = Clock(), 0
    while clock.total < records:
        messages = consumer.consume(10_000, 1.0)
        for message in messages:
            touched += len(message.value())
        if messages:
            clock.count(len(messages))
    consumer.close()
    return clock.result()


def kafka_python(brokers: str, topic: str, records: int) -> dict:
    """Run kafka-python's ``poll``."""
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=brokers.split(","),
        group_id=f"bench-{uuid.uuid4().hex[:8]}",
        auto_offset_reset="earliest",
        check_crcs=True,
        max_partition_fetch_bytes=FETCH_BYTES,
        max_poll_records=10_000,
    )
    clock, touched = Clock(), 0
    while clock.total < records:
        for messages in consumer.poll(1000).values():
            touched += sum(len(message.value) for message in messages)
            clock.count(len(messages))
    consumer.close()
    return clock.result()


def jvm(zookeeper: str, topic: str, records: int) -> dict:
    """Run the JVM old consumer's own ConsumerPerformance, 1.1.1.

    It prints a line every 50 ms; the clock runs from its first line with records to its last one.
    """
    from zkconsumer.devcluster.jars import resolve
    from zkconsumer.devcluster.servers import java_command

    with tempfile.TemporaryDirectory() as folder:
        command = java_command(
            "1g",
            resolve("org.apache.kafka:kafka_2.11:1.1.1"),
            "kafka.tools.ConsumerPerformance",
            *("--zookeeper", zookeeper, "--topic", topic, "--messages", str(records)),
            *("--group", f"bench-{uuid.uuid4().hex[:8]}", "--threads", "1", "--num-fetch-threads", "1"),
            *("--fetch-size", str(FETCH_BYTES), "--show-detailed-stats", "--reporting-interval", "50"),
            *("--hide-header", "--date-format", "yyyy-MM-dd HH:mm:ss:SSS"),
            log=Path(folder) / "jvm.log",
        )
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    rows = []
    for line in done.stdout.splitlines():
        parts = [part.strip() for part in line.split(",")]
        if len(parts) >= 6 and re.match(r"\d{4}-", parts[0]) and parts[1].isdigit():
            rows.append((datetime.strptime(parts[0], "%Y-%m-%d %H:%M:%S:%f"), int(parts[4])))  # noqa: DTZ007
    rows = [row for row in rows if row[1] > 0]
    if len(rows) < 2:
        raise RuntimeError(f"ConsumerPerformance printed no progress:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    (begun, first), (ended, last) = rows[0], rows[-1]
    return {"records": last - first, "seconds": (ended - begun).total_seconds()}


def run(who: str, zookeeper: str, brokers: str, topic: str, records: int) -> dict:
    """Run one of the consumers."""
    if who == "zkconsumer, Arrow":
        return ours(zookeeper, topic, records, arrow)
    if who == "zkconsumer, Arrow, old defaults":
        return ours(zookeeper, topic, records, arrow, **{"socket.receive.buffer.bytes": 65536})
    if who == "zkconsumer, messages":
        return ours(zookeeper, topic, records, by_message)
    if who == "confluent-kafka consume(10000)":
        return confluent(brokers, topic, records)
    if who == "kafka-python poll":
        return kafka_python(brokers, topic, records)
    if who == "JVM old consumer 1.1.1":
        return jvm(zookeeper, topic, records)
    raise ValueError(who)


if __name__ == "__main__":
    print(json.dumps(run(*sys.argv[1:5], int(sys.argv[5]))))
