"""A driver with executors in separate processes: ``python -m spark.drivers.cluster '{...}'`` in ``tests``.

It reads all available records with the source, and prints as JSON the offsets and the folder from which the executors
have imported the package.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from ..session import start_spark, stop_spark


def _where(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import zkconsumer

    for batch in batches:
        count = batch.num_rows
        names = ["partition", "offset", "folder", "pid"]
        places = [str(Path(zkconsumer.__file__).parent)] * count, [os.getppid()] * count
        yield pa.RecordBatch.from_arrays([batch[0], batch[1], *map(pa.array, places)], names=names)


def main(settings: dict[str, Any]) -> None:
    """Run a query, and one whose decoder detects the end of the stream."""
    spark = start_spark(Path(settings["folder"]), "local-cluster[2,1,1024]", settings["conf"])
    seen: list[Any] = []
    stream = spark.readStream.format("zkconsumer").options(**settings["options"]).load()
    shown = stream.select("partition", "offset").mapInArrow(
        _where, "partition int, offset bigint, folder string, pid bigint"
    )
    query = (
        shown.writeStream.foreachBatch(lambda frame, number: seen.extend(map(list, frame.collect())))
        .option("checkpointLocation", f"{settings['folder']}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    words: list[str] = []
    decoded = (
        spark.readStream.format("zkconsumer")
        .options(**{**settings["options"], "group.id": settings["options"]["group.id"] + "-words"})
        .option("decoder", "lines:Words")
        .load()
    )
    query = (
        decoded.writeStream.foreachBatch(lambda frame, number: words.extend(row["word"] for row in frame.collect()))
        .option("checkpointLocation", f"{settings['folder']}/words")
        .start()
    )
    ended = query.awaitTermination(120)
    print(json.dumps({"seen": seen, "words": words, "ended": ended}), flush=True)
    stop_spark(spark)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
