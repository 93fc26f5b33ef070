"""Reads a whole topic once with one client, without Spark.

``python -m bench.plain CLIENT ZOOKEEPER BROKERS TOPIC RECORDS`` prints the figures of ``bench.clock`` as JSON. The
measurement starts when the first batch (or message) arrives, and ends when the last one arrives. The records of the
first batch are not counted. Startup and joining the group are therefore excluded. The offset and the value of each
message, and all values of each Arrow batch, are read.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

from bench.clock import Clock

#: Maximum fetch size per partition, in bytes; the same for all clients.
FETCH_BYTES = 1 << 20

#: Clients of ``bench.limit``.
LIMIT, DECODED_LIMIT = "limit: nothing decoded", "limit: decoded"


def zkconsumer(
    zookeeper: str,
    topic: str,
    records: int,
    read: Callable[..., Iterator[int]],
    *,
    is_decoded: bool = False,
    **properties: object,
) -> dict[str, float]:
    """Run zkconsumer. ``read`` yields the number of records in each Arrow batch or group of messages."""
    from zkconsumer import ConsumerConfig, create_consumer, string_decoder

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
        decoder = string_decoder if is_decoded else None
        [stream] = consumer.create_message_streams({topic: 1}, value_decoder=decoder)[topic]
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
    """Read single messages and their offsets, and sum the value sizes; yield their number after every 1,000."""
    touched = count = 0
    for message in stream:  # type: ignore[attr-defined]
        _ = message.offset
        touched += len(message.value)
        count += 1
        if count == 1000:
            yield count
            count = 0


def receive(brokers: str, topic: str, records: int, *, decodes: bool) -> dict[str, float]:
    """Run ``bench.limit``."""
    from bench import limit  # not above, because the memory of its packages would count for the other clients

    return limit.run(brokers, topic, records, decodes=decodes)


def kafkarrow(brokers: str, topic: str, records: int) -> dict[str, float]:
    """Run kafkarrow (formerly kafkars), which returns messages of librdkafka as Arrow batches, sorted by timestamp."""
    import pyarrow.compute as pc
    from kafkarrow import ConsumerManager, SourceTopic

    config = {
        "bootstrap.servers": brokers,
        "group.id": f"bench-{uuid.uuid4().hex[:8]}",
        "check.crcs": "true",
        "max.partition.fetch.bytes": str(FETCH_BYTES),
        "fetch.queue.backoff.ms": "5",
        "queued.min.messages": "1000000",
        "queued.max.messages.kbytes": "262144",
    }
    consumer = ConsumerManager(config, [SourceTopic.from_earliest(topic)], batch_size=65_536)
    clock, touched = Clock(), 0
    while clock.total < records:
        batch = consumer.poll(timeout_ms=1000)
        if batch.num_rows:
            touched += pc.sum(pc.binary_length(batch.column(1))).as_py()
            clock.count(batch.num_rows)
    return clock.result()


def confluent(
    brokers: str, topic: str, records: int, *, check_crcs: bool = True, is_decoded: bool = False
) -> dict[str, float]:
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
        if is_decoded:
            for message in messages:
                message.offset()
                touched += len(message.value().decode())
        else:
            for message in messages:
                message.offset()
                touched += len(message.value())
        if messages:
            clock.count(len(messages))
    consumer.close()
    return clock.result()


def kafka_python(brokers: str, topic: str, records: int) -> dict[str, float]:
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
            for message in messages:
                _ = message.offset
                touched += len(message.value)
            clock.count(len(messages))
    consumer.close()
    return clock.result()


def jvm(zookeeper: str, topic: str, records: int) -> dict[str, float]:
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


#: Clients by name. Each is called with the addresses of ZooKeeper and the brokers, the topic, and the record count.
CLIENTS: dict[str, Callable[[str, str, str, int], dict[str, float]]] = {
    LIMIT: lambda _, brokers, topic, records: receive(brokers, topic, records, decodes=False),
    DECODED_LIMIT: lambda _, brokers, topic, records: receive(brokers, topic, records, decodes=True),
    "zkconsumer, Arrow": lambda zookeeper, _, topic, records: zkconsumer(zookeeper, topic, records, arrow),
    "zkconsumer, Arrow, 64 KiB receive buffer": lambda zookeeper, _, topic, records: zkconsumer(
        zookeeper, topic, records, arrow, **{"socket.receive.buffer.bytes": 65536}
    ),
    "kafkarrow": lambda _, brokers, topic, records: kafkarrow(brokers, topic, records),
    "JVM old consumer 1.1.1": lambda zookeeper, _, topic, records: jvm(zookeeper, topic, records),
    "zkconsumer, messages": lambda zookeeper, _, topic, records: zkconsumer(zookeeper, topic, records, by_message),
    "zkconsumer, messages, decoded": lambda zookeeper, _, topic, records: zkconsumer(
        zookeeper, topic, records, by_message, is_decoded=True
    ),
    "confluent-kafka consume(10000)": lambda _, brokers, topic, records: confluent(brokers, topic, records),
    "confluent-kafka consume(10000), without CRC check": lambda _, brokers, topic, records: confluent(
        brokers, topic, records, check_crcs=False
    ),
    "confluent-kafka consume(10000), without CRC check, decoded": lambda _, brokers, topic, records: confluent(
        brokers, topic, records, check_crcs=False, is_decoded=True
    ),
    "kafka-python poll": lambda _, brokers, topic, records: kafka_python(brokers, topic, records),
}


if __name__ == "__main__":
    print(json.dumps(CLIENTS[sys.argv[1]](*sys.argv[2:5], int(sys.argv[5]))))
