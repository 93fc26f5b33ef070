"""A consumer in a separate process that measures its memory, in bytes, and prints it as JSON.

Run it with ``python child_reader.py WARM TOPIC RECORDS PROPERTIES``; the properties are JSON. It reads the small topic
WARM, which loads all code, and then RECORDS records of TOPIC with ``batches()``, after the queues are full.
"""

from __future__ import annotations

import json
import resource
import sys
import time

import psutil

from zkconsumer import ConsumerConfig, ZookeeperConsumerConnector, create_consumer


def read(consumer: ZookeeperConsumerConnector, topic: str, records: int) -> None:
    [stream] = consumer.create_message_streams({topic: 1})[topic]
    if records > 1:
        wait_for_full_queues()
    for batch in stream.batches():
        records -= batch.num_rows
        if records <= 0:
            return


def wait_for_full_queues() -> None:
    """Wait until the resident memory has not grown for a second."""
    highest, since = 0, time.monotonic()
    while time.monotonic() - since < 1:
        now = psutil.Process().memory_info().rss
        if now > highest + (1 << 20):
            highest, since = now, time.monotonic()
        time.sleep(0.05)


def main(warm: str, topic: str, records: str, properties: str) -> None:
    config = ConsumerConfig.from_dict(json.loads(properties))
    with create_consumer(config) as consumer:
        read(consumer, warm, 1)
    base = psutil.Process().memory_info().rss
    with create_consumer(config) as consumer:
        read(consumer, topic, int(records))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"base": base, "peak": peak, "budget": config.queued_max_bytes}))


if __name__ == "__main__":
    main(*sys.argv[1:])
