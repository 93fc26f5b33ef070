"""The plain consumer of the demo, which runs in its own process.

It prints a JSON list for each Arrow batch: partition, first offset, last offset plus one, number of records, and sum
of the numbers. It leaves the group when its standard input is closed.
"""

from __future__ import annotations

import json
import sys
import threading

import pyarrow as pa
import pyarrow.compute as pc

from zkconsumer import ConsumerConfig, create_consumer


def main(zookeeper_connect: str, group: str, topic: str) -> None:
    """Consume until standard input is closed."""
    properties = {"zookeeper.connect": zookeeper_connect, "group.id": group, "auto.commit.interval.ms": "1000"}
    leaving = threading.Event()

    def wait_for_end_of_input() -> None:
        sys.stdin.read()
        leaving.set()

    threading.Thread(target=wait_for_end_of_input, name="demo-end-of-input", daemon=True).start()
    with create_consumer(ConsumerConfig.from_dict(properties)) as consumer:
        stream = consumer.stream(topic)
        for batch in stream.batches():
            offsets = batch.column("offset")
            numbers = pc.cast(pc.cast(batch.column("value"), pa.string()), pa.int64())
            first, end = offsets[0].as_py(), offsets[-1].as_py() + 1
            partition = batch.column("partition")[0].as_py()
            print(
                json.dumps([partition, first, end, batch.num_rows, pc.call_function("sum", [numbers]).as_py()]),
                flush=True,
            )
            if leaving.is_set():
                break  # exiting the with block commits this batch, and leaves the group


if __name__ == "__main__":
    main(*sys.argv[1:])
