"""A job that ends without ``spark.stop()``: ``python -m spark.drivers.job_without_stop '{...}'`` in ``tests``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from ..session import start_spark


def main(settings: dict[str, Any]) -> None:
    """Run one batch; with ``running``, leave the query running."""
    folder = Path(settings["folder"])
    spark = start_spark(folder)
    writer = (
        spark.readStream.format("ZkConsumer")  # Spark finds it in any case
        .options(**settings["options"])
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(folder / "checkpoint"))
    )
    query = writer.trigger(**settings["trigger"]).start()
    if settings["running"]:
        while not query.recentProgress:
            query.awaitTermination(1)
    else:
        query.awaitTermination(60)
    print("the job is done", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
