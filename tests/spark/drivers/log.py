"""A driver that reads a topic in a query, and another one in a batch read if there are options for it.

Usage: ``python -m spark.drivers.log '{"folder": ..., "options": {...}, "batch": {...}}'``. It prints the numbers of
rows.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from .. import lines
from ..session import start_spark, stop_spark


def main(settings: dict[str, Any]) -> None:
    """Count the rows."""
    spark = start_spark(Path(settings["folder"]), conf={"spark.submit.pyFiles": str(Path(lines.__file__))})
    stream = spark.readStream.format("zkconsumer").options(**settings["options"]).load()
    counts: list[int] = []
    query = (
        stream.writeStream.foreachBatch(lambda frame, _number: counts.append(frame.count()))
        .option("checkpointLocation", f"{settings['folder']}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    rows = [sum(counts)]
    if "batch" in settings:
        rows.append(spark.read.format("zkconsumer").options(**settings["batch"]).load().count())
    stop_spark(spark)
    print(*rows)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
