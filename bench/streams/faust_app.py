"""Count records per key with faust-streaming, in its own virtual environment: ``python faust_app.py SETTINGS``.

The table is kept in RocksDB, with a changelog topic.
"""

from __future__ import annotations

import json
import os
import struct
import sys
from typing import Any

import faust  # type: ignore[import-not-found]

settings = json.loads(sys.argv[1])
app = faust.App(
    settings["name"],
    broker=";".join(f"kafka://{broker}" for broker in settings["brokers"].split(",")),
    broker_commit_interval=settings["commit_ms"] / 1000,
    datadir=f"{settings['folder']}/faust-{os.getpid()}",
    stream_wait_empty=False,
    store="rocksdb://?driver=rocksdict",
    topic_partitions=8,
    web_enabled=False,
)
source = app.topic(settings["input"], key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw")
sink = app.topic(settings["output"], key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw")
counts = app.Table("counts", default=int, key_type=bytes, value_type=int)


@app.agent(source)  # type: ignore[untyped-decorator]
async def count(stream: Any) -> None:
    """Count the records of each key, and send each new count."""
    async for key, _ in stream.items():  # noqa: PERF102  # a stream, not a dictionary
        new = counts[key] + 1
        counts[key] = new
        await sink.send(key=key, value=struct.pack(">q", new))


if __name__ == "__main__":
    sys.argv[1:] = ["worker", "--loglevel", "warn", "--without-web"]
    app.main()
