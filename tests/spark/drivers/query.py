"""A Spark driver for tests that kill it: ``python -m spark.drivers.query '{"options": {...}, ...}'`` in ``tests``.

Each batch writes a line of JSON for each partition that it has read. The batch with the number ``hold`` then blocks.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

from ..queries import Batch
from ..session import start_spark


def main(settings: dict[str, Any]) -> None:
    """Run a query until it is killed."""
    spark = start_spark(Path(settings["folder"]))
    stream = spark.readStream.format("zkconsumer").options(**settings["options"]).load()

    def on_batch(frame: Any, number: int) -> None:
        batch = Batch(number, frame.toArrow())
        with Path(settings["seen"]).open("a") as file:
            for (topic, partition), (start, until, count) in sorted(batch.spans.items()):
                file.write(json.dumps([number, topic, partition, start, until, count]) + "\n")
            file.flush()
            os.fsync(file.fileno())
        if number == settings["hold"]:
            Path(settings["holding"]).touch()
            threading.Event().wait()

    writer = stream.writeStream.foreachBatch(on_batch).option("checkpointLocation", settings["checkpoint"])
    writer.options(**settings["writer"]).start().awaitTermination()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
