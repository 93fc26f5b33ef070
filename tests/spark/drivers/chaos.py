"""A Spark driver that is killed and started again: ``python -m spark.drivers.chaos '{"options": {...}, ...}'``.

Each batch writes a line of JSON for each partition that it has read and flushes it to the disk. Its sink then sleeps.
SIGTERM stops the query.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import zlib
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from ..queries import Batch
from ..session import start_spark


def main(settings: dict[str, Any]) -> None:
    """Run a query until SIGTERM."""
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    spark = start_spark(Path(settings["folder"]), "local[2,4]")  # tasks are retried up to three times
    spark.conf.set("spark.sql.streaming.minBatchesToRetain", "1000000")  # the test reads the offset log of all batches
    spark.sparkContext.setLogLevel("WARN")  # reports lost tasks
    run = os.getpid()

    def on_batch(frame: Any, number: int) -> None:
        batch = Batch(number, frame.toArrow())
        lines = b""
        for (topic, partition), (start, until, count) in sorted(batch.spans.items()):
            rows = batch.table.filter(pc.equal(batch.table["partition"], partition)).sort_by("offset")
            checksum = zlib.crc32(b"".join(rows["value"].to_pylist()))
            lines += json.dumps([run, number, topic, partition, start, until, count, checksum]).encode() + b"\n"
        append(settings["seen"], lines)
        stopping.wait(random.uniform(0, settings["slow"]))

    stream = spark.readStream.format("zkconsumer").options(**settings["options"]).load()
    writer = stream.writeStream.foreachBatch(on_batch).option("checkpointLocation", settings["checkpoint"])
    query = writer.start()
    while not stopping.wait(0.1):
        if query.exception() is not None:
            raise query.exception()
    query.stop()
    spark.stop()


def append(path: str, lines: bytes) -> None:
    """Write all lines in one call, so that a kill leaves no incomplete line."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        assert os.write(file, lines) == len(lines)
        os.fsync(file)
    finally:
        os.close(file)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
