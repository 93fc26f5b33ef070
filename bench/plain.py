"""Reads a whole topic once with one client, without Spark.

``python -m bench.plain CLIENT ZOOKEEPER BROKERS TOPIC RECORDS`` prints the record count and the elapsed seconds as
JSON. The measurement starts when the first batch (or message) arrives, and ends when the last one arrives. The
records of the first batch are not counted. Startup and joining the group are therefore excluded. All values are
accessed.
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
    """Measures the time between the first and the last arrival, and counts the records."""

    def __init__(self) -> None:
        self.total = 0
        self._first = 0
        self._started = self._last = 0.0

    def count(self, records: int) -> int:
        """Record the arrival of ``records`` records, and return the total number of records."""
        self._last = time.perf_counter()
        if not self.total:
            self._first, self._started = records, self._last
        self.total += records
        return self.total

    def result(self) -> dict[str, float]:
        """Return the number of records after the first arrival, and the elapsed seconds."""
        return {"records": self.total - self._first, "seconds": self._last - self._started}


def zkconsumer(
    zookeeper: str, topic: str, records: int, read: Callable[..., Iterator[int]], **properties: object
) -> dict:
    """Run zkconsumer. ``read`` yields the number of records in each Arrow batch or group of messages."""
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
    """Read Arrow batches and sum the value sizes; yield the number of rows of each batch."""
    import pyarrow.compute as pc

    touched = 0
    for batch in stream.batches():  # type: ignore[attr-defined]
        touched += pc.sum(pc.binary_length(batch.column(1))).as_py()
        yield batch.num_rows


def by_message(stream: object) -> Iterator[int]:
    """Read single messages and sum the value sizes; yield the number of messages after every 1,000."""
    touched = count = 0
    for message in stream:  # type: ignore[attr-defined]
        touched += len(message.value)
        count += 1
        if count == 1000:
            yield count
            count = 0


def confluent(brokers: str, topic: str, records: int, *, check_crcs: bool) -> dict:
    """Run confluent-kafka with ``consume(10000)`` and tuned queues."""
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": brokers,
            "group.id": f"bench-{uuid.uuid4().hex[:8]}",
            "auto.offset.reset": "earliest",
            "check.crcs": check_crcs,
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
    """Run kafka-python with ``poll``."""
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
    """Run ``ConsumerPerformance`` with Kafka's old consumer, version 1.1.1.

    The tool prints a line every 50 ms. Measurement starts with the first line that reports records, and ends with the
    last line.
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
    (started, first), (ended, last) = rows[0], rows[-1]
    return {"records": last - first, "seconds": (ended - started).total_seconds()}


def run(client: str, zookeeper: str, brokers: str, topic: str, records: int) -> dict:
    """Run the given client once."""
    if client == "zkconsumer, Arrow":
        return zkconsumer(zookeeper, topic, records, arrow)
    if client == "zkconsumer, Arrow, 64 KiB receive buffer":
        return zkconsumer(zookeeper, topic, records, arrow, **{"socket.receive.buffer.bytes": 65536})
    if client == "zkconsumer, messages":
        return zkconsumer(zookeeper, topic, records, by_message)
    if client.startswith("confluent-kafka consume(10000)"):
        return confluent(brokers, topic, records, check_crcs="without CRC check" not in client)
    if client == "kafka-python poll":
        return kafka_python(brokers, topic, records)
    if client == "JVM old consumer 1.1.1":
        return jvm(zookeeper, topic, records)
    raise ValueError(f"unknown client {client!r}")


if __name__ == "__main__":
    print(json.dumps(run(*sys.argv[1:5], int(sys.argv[5]))))
