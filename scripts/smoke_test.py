"""Test an installed package: consumer, compiled decoder and Spark source, against a development cluster.

Run it in a folder outside of the source: ``python .../scripts/smoke_test.py``.
"""

from __future__ import annotations

import itertools
import os
import sys
import tempfile
from pathlib import Path

# The folder of this script must not hide installed packages.
sys.path = [path for path in sys.path if Path(path or ".").resolve() != Path(__file__).resolve().parent]

import zkconsumer.spark  # noqa: E402
from zkconsumer import ConsumerConfig, TopicPartition, create_consumer  # noqa: E402
from zkconsumer.devcluster import DevCluster  # noqa: E402
from zkconsumer.devcluster.java import java_home  # noqa: E402
from zkconsumer.devcluster.load import batch  # noqa: E402
from zkconsumer.fetcher import native  # noqa: E402
from zkconsumer.topology.loop.native import RunState  # noqa: E402
from zkconsumer.topology.stores import PagedMap  # noqa: E402

COUNT = 100


def main() -> None:
    """Consume some records with each part."""
    assert "site-packages" in zkconsumer.__file__, f"not the installed package: {zkconsumer.__file__}"
    assert native.native.__name__ == "zkconsumer.fetcher._decode", "not the compiled decoder"
    assert PagedMap.__module__ == "zkconsumer.topology.stores._pages", "not the compiled maps"
    assert RunState.__module__ == "zkconsumer.topology.loop._loop", "not the compiled loop of tasks"
    with DevCluster() as cluster:
        cluster.create_topic("smoke", 2)
        for partition in range(2):
            values = [b"%d" % number for number in range(COUNT)]
            cluster.admin.produce(TopicPartition("smoke", partition), batch(values))
        properties = {**cluster.consumer_properties, "group.id": "smoke", "auto.offset.reset": "smallest"}
        with create_consumer(ConsumerConfig.from_dict(properties | {"consumer.timeout.ms": 30_000})) as consumer:
            [stream] = consumer.create_message_streams({"smoke": 1})["smoke"]
            total = sum(int(message.value) for message in itertools.islice(stream, 2 * COUNT))
        assert total == COUNT * (COUNT - 1), total
        print(f"consumer: {2 * COUNT} messages")
        print(f"Spark: {rows_of_query(properties | {'group.id': 'smoke-spark'})} rows")


def rows_of_query(properties: dict[str, object]) -> int:
    """Return the number of rows of a streaming query."""
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    rows: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        stream = spark.readStream.format("zkconsumer").options(**properties).option("subscribe", "smoke").load()
        writer = stream.writeStream.foreachBatch(lambda frame, _number: rows.append(frame.count()))
        query = writer.option("checkpointLocation", folder).trigger(availableNow=True).start()
        query.awaitTermination(120)
        spark.stop()
    assert sum(rows) == 2 * COUNT, rows
    return sum(rows)


if __name__ == "__main__":
    main()
