"""Count records per key with quixstreams, in its own virtual environment: ``python quix_app.py SETTINGS``.

The state is kept in RocksDB, with a changelog topic.
"""

from __future__ import annotations

import json
import os
import struct
import sys
from typing import Any

from quixstreams import Application  # type: ignore[import-not-found]


def count(_value: bytes, state: Any) -> bytes:
    """Count a record, and return the new count of its key."""
    new = state.get("count", 0) + 1
    state.set("count", new)
    return struct.pack(">q", new)


def main(settings: dict[str, Any]) -> None:
    """Run the application until it is killed."""
    app = Application(
        broker_address=settings["brokers"],
        consumer_group=settings["name"],
        auto_offset_reset="earliest",
        commit_interval=settings["commit_ms"] / 1000,
        loglevel="WARNING",
        state_dir=f"{settings['folder']}/quix-{os.getpid()}",
    )
    source = app.topic(settings["input"], key_deserializer="bytes", value_deserializer="bytes")
    sink = app.topic(settings["output"], key_serializer="bytes", value_serializer="bytes")
    app.dataframe(source).apply(count, stateful=True).to_topic(sink)
    app.run()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
