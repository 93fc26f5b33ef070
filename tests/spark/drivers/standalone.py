"""A driver on a standalone cluster: ``python -m spark.drivers.standalone '{...}'`` in ``tests``.

Each batch writes a line of JSON: the words, the number of tasks, and the folders from which the executors have imported
the package. The driver ends when its standard input is closed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from ..session import start_spark, stop_spark


def _where(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import zkconsumer

    folder = str(Path(zkconsumer.__file__).parent)
    for batch in batches:
        yield pa.RecordBatch.from_arrays([batch[0], batch[1], pa.array([folder] * batch.num_rows)], names=_NAMES)


_NAMES = ["word", "task", "folder"]


def main(settings: dict[str, Any]) -> None:
    """Run a query until standard input is closed."""
    spark = start_spark(Path(settings["folder"]), settings["master"], settings["conf"])

    def on_batch(frame: Any, number: int) -> None:
        from pyspark.sql import functions

        tasks = frame.select("word", functions.spark_partition_id().alias("task"))
        rows = tasks.mapInArrow(_where, "word string, task int, folder string").collect()
        with Path(settings["seen"]).open("a") as file:
            line = [[row[name] for row in rows] for name in _NAMES]
            file.write(json.dumps([number, *line]) + "\n")

    stream = spark.readStream.format("zkconsumer").options(**settings["options"]).load()
    query = stream.writeStream.foreachBatch(on_batch).option("checkpointLocation", settings["checkpoint"]).start()
    sys.stdin.read()
    query.stop()
    stop_spark(spark)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
