"""The options of a query: accepted and rejected values, and error messages."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from zkconsumer.message import TopicPartition
from zkconsumer.rebalance.assignors import assign_flink

REQUIRED = {"zookeeper.connect": "localhost:2181", "group.id": "g", "subscribe": "orders"}

pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("subscribes", "a", "unknown option 'subscribes'; did you mean 'subscribe'?"),
        ("auto.commit.enable", "true", "option 'auto.commit.enable' cannot be set for a Spark query: offsets are"),
        ("numStreams", "none", "option 'numStreams' must be an integer between 1 and 1000, got 'none'"),
        ("auto.offset.reset", "earliest", "property 'auto.offset.reset' must be 'smallest' or 'largest', got"),
    ],
)
def test_load_raises_option_errors(spark: Any, name: str, value: str, text: str) -> None:
    reader = spark.readStream.format("zkconsumer").options(**REQUIRED, **{name: value})
    with pytest.raises(Exception, match="ConfigurationError") as refusal:
        reader.load()
    assert text in str(refusal.value)


def test_load_lists_all_problems_without_frames(spark: Any) -> None:
    wrong = {"kafka.max.poll.records": "1", "numStreams": "none", "kafka.ssl.truststore.location": "a.jks"}
    with pytest.raises(Exception, match="ConfigurationError") as refusal:
        spark.readStream.format("zkconsumer").options(**REQUIRED, **wrong).load()

    assert "option 'numStreams' must be an integer between 1 and 1000, got 'none'" in str(refusal.value)
    assert "'kafka.max.poll.records'; it has no counterpart; remove it" in str(refusal.value)
    assert "its counterpart is 'ssl.ca.location'" in str(refusal.value)
    assert str(refusal.value).count("zkconsumer/spark/source.py") == 1


@pytest.mark.parametrize("policy", ["raise", "quarantine"])
def test_schema_of_user_is_rejected(spark: Any, folder: Path, policy: str) -> None:
    """Spark passes it to the source only when the query starts."""
    settings = {**REQUIRED, "corrupt.record.policy": policy}
    stream, batch = (
        reader.format("zkconsumer").options(**settings).schema("id int").load()
        for reader in (spark.readStream, spark.read)
    )
    for run in (
        batch.collect,
        stream.writeStream.format("noop").option("checkpointLocation", str(folder)).start().processAllAvailable,
    ):
        with pytest.raises(Exception, match=r"format\('zkconsumer'\) does not accept a schema; remove schema"):
            run()


def test_table_is_rejected_with_remedy(spark: Any) -> None:
    """If the statement contains columns, Spark creates the source only when the table is read."""
    options = ", ".join(f"'{name}' '{value}'" for name, value in REQUIRED.items())
    with pytest.raises(Exception, match="create a view instead, with spark.read.format"):
        spark.sql(f"CREATE TABLE orders USING zkconsumer OPTIONS ({options})")
    spark.sql(f"CREATE TABLE orders (id int) USING zkconsumer OPTIONS ({options})")
    try:
        with pytest.raises(Exception, match="create a view instead of a table"):
            spark.sql("SELECT * FROM orders").collect()
    finally:
        spark.sql("DROP TABLE orders")


def test_batch_read_can_be_a_view(spark: Any, options: Callable[..., dict[str, str]]) -> None:
    spark.read.format("zkconsumer").options(**options("any")).load().createOrReplaceTempView("any_topic")
    assert spark.sql("SELECT offset FROM any_topic").columns == ["offset"]


def test_load_needs_no_server(spark: Any) -> None:
    frame = spark.readStream.format("zkconsumer").options(**REQUIRED).load()
    assert frame.isStreaming


def test_source_and_option_names_are_case_insensitive(spark: Any, options: Callable[..., dict[str, str]]) -> None:
    settings = {name.upper(): value for name, value in options("any").items()}
    frame = spark.readStream.format("ZkConsumer").options(**settings).load()
    assert frame.columns == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]


def test_flink_start_index_equals_jvm(spark: Any) -> None:
    random_ = random.Random(5)
    names = ["".join(random_.choices("abcdefgXYZ0189._-", k=random_.randint(1, 60))) for _ in range(1000)]
    for name in names:
        members = random_.randint(1, 50)
        ids = [f"g_{number:02}-0" for number in range(members)]
        hashed = spark._jvm.java.util.Objects.hashCode(name) * 31 & 0x7FFFFFFF
        assert assign_flink({name: [0]}, {name: ids})[TopicPartition(name, 0)] == ids[hashed % members]
