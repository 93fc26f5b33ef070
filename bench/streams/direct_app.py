"""Count records per key with one Spark state per key: ``python -m bench.streams.direct_app SETTINGS``.

It uses PySpark's transformWithState, and Spark's own Kafka source and sink.
"""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.types import LongType, StructField, StructType

from bench.streams.spark_session import create_session

_CONF = {
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}
_STATE = StructType([StructField("count", LongType())])


class CountOperator(StatefulProcessor):  # type: ignore[misc]
    """Counts the rows of each key."""

    def init(self, handle: Any) -> None:
        """Declare the state."""
        self._count = handle.getValueState("count", _STATE)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:  # noqa: ARG002
        """Count the rows of one key, and yield each new count."""
        count = self._count.get()[0] if self._count.exists() else 0
        counts = [count + number for number, _ in enumerate(rows, 1)]
        self._count.update((counts[-1],))
        for count in counts:
            yield Row(key=key[0], value=struct.pack(">q", count))

    def close(self) -> None:
        """Do nothing."""


def main(settings: dict[str, Any]) -> None:
    """Run the query until it is killed."""
    spark = create_session(settings["folder"])
    for name, value in _CONF.items():
        spark.conf.set(name, value)
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", settings["brokers"])
        .option("subscribe", settings["input"])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", settings["batch_records"])
        .load()
    )
    counts = (
        records.select("key", "value")
        .groupBy("key")
        .transformWithState(CountOperator(), "key binary, value binary", "append", "none")
    )
    query = (
        counts.writeStream.format("kafka")
        .option("kafka.bootstrap.servers", settings["brokers"])
        .option("topic", settings["output"])
        .option("checkpointLocation", f"{settings['folder']}/checkpoint")
        .outputMode("append")
        .trigger(processingTime=f"{settings['commit_ms']} milliseconds")
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
