"""A member in a separate process that tests kill or suspend. It prints ``partition offset`` of each message.

Run it with ``python child_member.py TOPIC PROPERTIES``; the properties are JSON.
"""

from __future__ import annotations

import json
import sys

from zkconsumer import ConsumerConfig, create_consumer


def main(topic: str, properties: str) -> None:
    with create_consumer(ConsumerConfig.from_dict(json.loads(properties))) as consumer:
        [stream] = consumer.create_message_streams({topic: 1})[topic]
        for message in stream:
            sys.stdout.write(f"{message.partition} {message.offset}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
