"""Rows of a query, compared with the produced records and with another client."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC
from typing import Any

import pytest
from helpers import batches
from helpers.batches import Record
from helpers.producing import numbers, produce
from kafka import KafkaConsumer
from kafka.structs import TopicPartition as KafkaPartition
from pyspark.sql.types import StructType

from zkconsumer import TopicPartition
from zkconsumer.devcluster import DevCluster, ExistingCluster

from .queries import Query, task_connections

pytestmark = pytest.mark.timeout(120)

Queries = Callable[..., Query]
Options = Callable[..., dict[str, str]]

#: Columns of spark-sql-kafka-0-10.
KAFKA_COLUMNS = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
)
KAFKA_HEADERS = ", headers array<struct<key: string, value: binary>>"

#: Records with missing, empty and unusual fields, by codec.
RECORDS = (
    (
        batches.NONE,
        [
            Record(0, 1_600_000_000_000, b"key", b"value", (("h", b"1"), ("h", b"2"), ("none", None), ("", b""))),
            Record(1, 1_600_000_000_123, None, b"no key"),
            Record(2, 1_599_999_999_990, b"no value", None),
            Record(3, 1_600_000_000_001, None, None, (("\u00e9\u4e2d", bytes(range(256))),)),
            Record(4, 0, b"", b""),
        ],
    ),
    (batches.GZIP, [Record(0, 1, bytes(range(256)), b"x" * 100_000), Record(1, 253_402_300_799_999, b"year 9999")]),
    (batches.SNAPPY, [Record(n, 1_700_000_000_999, b"k%d" % n, b"v" * n) for n in range(100)]),
    (batches.LZ4, [Record(0, 1_700_000_000_001, None, b"lz4")]),
    (batches.ZSTD, [Record(0, 1_700_000_000_002, b"zstd", None, (("z", None),))]),
)


def rows(query: Query) -> list[dict[str, Any]]:
    """Return all rows of a query in order, with timestamps in milliseconds."""
    found = [row for batch in query.batches for row in batch.table.to_pylist()]
    for row in found:
        time = row["timestamp"].astimezone(UTC)
        row["timestamp"] = round(time.timestamp() * 1000)
    return sorted(found, key=lambda row: (row["partition"], row["offset"]))


def as_another_client_reads(cluster: DevCluster | ExistingCluster, topic: str, count: int) -> list[dict[str, Any]]:
    """Read partition 0 with kafka-python's consumer, and return its records as rows."""
    reader = KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers)
    partition = KafkaPartition(topic, 0)
    found: list[Any] = []
    try:
        reader.assign([partition])
        reader.seek_to_beginning(partition)
        while len(found) < count:
            found += reader.poll(20_000).get(partition) or pytest.fail(f"{len(found)} of {count} records were read")
    finally:
        reader.close()
    return [
        {
            "key": r.key,
            "value": r.value,
            "topic": r.topic,
            "partition": r.partition,
            "offset": r.offset,
            "timestamp": r.timestamp,
            "timestampType": r.timestamp_type,
            "headers": [{"key": key, "value": value} for key, value in r.headers] or None,
        }
        for r in found
    ]


def test_columns_equal_those_of_sparks_source(spark: Any) -> None:
    settings = {"zookeeper.connect": "any", "group.id": "any", "subscribe": "any"}
    reader = spark.readStream.format("zkconsumer").options(**settings)
    assert reader.load().schema == StructType.fromDDL(KAFKA_COLUMNS)
    assert reader.option("includeHeaders", "false").load().schema == StructType.fromDDL(KAFKA_COLUMNS)
    assert reader.option("includeHeaders", "true").load().schema == StructType.fromDDL(KAFKA_COLUMNS + KAFKA_HEADERS)


def test_rows_contain_produced_records(
    zkconsumer_cluster: DevCluster | ExistingCluster, query: Queries, topic: Callable[..., str]
) -> None:
    name = topic(config={"retention.ms": -1})  # some records have old timestamps
    others = []
    for codec, records in RECORDS:
        zkconsumer_cluster.admin.produce(TopicPartition(name, 0), batches.batch(records, codec))
        if codec == batches.GZIP:  # the other client does not support the later codecs
            others = as_another_client_reads(zkconsumer_cluster, name, 7)
    written = [record for _, records in RECORDS for record in records]
    one = query(name, includeHeaders="true", trigger={"availableNow": True})
    one.finish()
    expected = [
        {
            "key": record.key,
            "value": record.value,
            "topic": name,
            "partition": 0,
            "offset": offset,
            "timestamp": record.timestamp,
            "timestampType": 0,
            "headers": [{"key": key, "value": value} for key, value in record.headers] or None,
        }
        for offset, record in enumerate(written)
    ]
    assert rows(one) == expected
    assert rows(one)[: len(others)] == others


@pytest.mark.slow
def test_log_append_time_has_its_timestamp_type(
    zkconsumer_cluster: DevCluster | ExistingCluster, query: Queries, topic: Callable[..., str]
) -> None:
    name = topic(config={"message.timestamp.type": "LogAppendTime"})
    admin = zkconsumer_cluster.admin
    admin.produce(TopicPartition(name, 0), batches.batch([Record(n, 1000 + n, None, b"v%d" % n) for n in range(5)]))
    one = query(name, trigger={"availableNow": True})
    one.finish()
    found = rows(one)
    assert [(row["timestampType"], row["value"]) for row in found] == [(1, b"v%d" % n) for n in range(5)]
    [time] = {row["timestamp"] for row in found}
    assert time > 1_600_000_000_000
    others = as_another_client_reads(zkconsumer_cluster, name, 5)
    assert found == [{name: value for name, value in row.items() if name != "headers"} for row in others]


def test_columns_have_types_in_sql(
    spark: Any,
    zkconsumer_cluster: DevCluster | ExistingCluster,
    options: Options,
    topic: Callable[..., str],
    folder: Any,
) -> None:
    name = topic(config={"retention.ms": -1})
    records = [Record(n, 1_600_000_000_000 + n, b"k%d" % (n % 3), b"%d" % n) for n in range(30)]
    zkconsumer_cluster.admin.produce(TopicPartition(name, 0), batches.batch(records))
    frame = spark.readStream.format("zkconsumer").options(**options(name)).load()
    sums = frame.selectExpr(
        "cast(key as string) k", "cast(cast(value as string) as int) v", "hour(timestamp) h", "offset + partition o"
    ).where("v >= 10 and k <> 'k1'")
    query = (
        sums.writeStream.format("memory")
        .queryName("sums")
        .option("checkpointLocation", str(folder / "memory"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(60)
        found = sorted(tuple(row) for row in spark.table("sums").collect())
    finally:
        query.stop()
        spark.catalog.dropTempView("sums")
    assert found == sorted((f"k{n % 3}", n, 12, n) for n in range(10, 30) if n % 3 != 1)


def test_record_larger_than_fetch_is_read(
    zkconsumer_cluster: DevCluster | ExistingCluster, query: Queries, topic: Callable[..., str]
) -> None:
    name, admin = topic(), zkconsumer_cluster.admin
    values = [b"small", b"x" * 300_000, b"small again"]
    for value in values:
        produce(admin, name, 0, [value])
    one = query(name, trigger={"availableNow": True}, fetch_message_max_bytes=1000)
    one.finish()
    assert one.batches[0].column("value") == values


@pytest.mark.slow
def test_workers_keep_connections_between_batches(
    zkconsumer_cluster: DevCluster | ExistingCluster, query: Queries, topic: Callable[..., str]
) -> None:
    name, admin = topic(partitions=2), zkconsumer_cluster.admin
    ports = {int(address.rpartition(":")[2]) for address in zkconsumer_cluster.bootstrap_servers.split(",")}

    of_other_queries = task_connections(ports)
    found: list[set[tuple[int, int]]] = []
    one = query(name, on_batch=lambda _batch: found.append(task_connections(ports) - of_other_queries))
    for number in range(6):
        for partition in range(2):
            produce(admin, name, partition, numbers(10 * number, 10 * number + 10))
        one.wait_for_records(20 * (number + 1))
    assert found[2], "connections are open after the tasks have ended"
    assert found[2] <= found[-1], "the connections of earlier tasks are kept"
    by_worker = Counter(pid for pid, _ in found[-1])
    assert max(by_worker.values()) <= len(ports), "a worker has one connection to each broker"
