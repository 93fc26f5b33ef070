"""A driver that reads all available records: ``python -m spark.log_driver '{"folder": ..., "options": {...}}'``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from . import lines
from .session import start_spark, stop_spark


def main(settings: dict[str, Any]) -> None:
    """Run a query that counts rows."""
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
    stop_spark(spark)
    print(sum(counts))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
