"""A consumer in a separate process that measures its memory, in bytes, and prints it as JSON.

Run it with ``python child_reader.py WARM TOPIC RECORDS PROPERTIES``; the properties are JSON. It reads the small topic
WARM, which loads all code, and then RECORDS records of TOPIC with ``batches()``, after the queues are full.
"""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path

import psutil

from zkconsumer import ConsumerConfig, ZookeeperConsumerConnector, create_consumer


def read(consumer: ZookeeperConsumerConnector, topic: str, records: int) -> int:
    """Read records, and return the resident memory before the first one was read."""
    [stream] = consumer.create_message_streams({topic: 1})[topic]
    full = wait_for_full_queues() if records > 1 else 0
    for batch in stream.batches():
        records -= batch.num_rows
        if records <= 0:
            break
    return full


def wait_for_full_queues() -> int:
    """Wait until the resident memory has not grown for three seconds, and return it."""
    highest, since = 0, time.monotonic()
    while time.monotonic() - since < 3:
        now = psutil.Process().memory_info().rss
        if now > highest + (1 << 20):
            highest, since = now, time.monotonic()
        time.sleep(0.05)
    return highest


def main(warm: str, topic: str, records: str, properties: str) -> None:
    config = ConsumerConfig.from_dict(json.loads(properties))
    with create_consumer(config) as consumer:
        read(consumer, warm, 1)
    base = psutil.Process().memory_info().rss
    with create_consumer(config) as consumer:
        full = read(consumer, topic, int(records))
    print(json.dumps({"base": base, "full": full, "peak": peak_memory(), "budget": config.queued_max_bytes}))


def peak_memory() -> int:
    """Return the highest resident memory of this process since it was started.

    ``getrusage`` would include the process that has started this one.
    """
    [size] = re.findall(r"^VmHWM:\s*(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(size) * 1024


if __name__ == "__main__":
    main(*sys.argv[1:])
