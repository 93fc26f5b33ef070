"""Print the messages of a topic: ``python examples/plain_consumer.py consumer.properties orders``.

The loop ends when no message arrives within ``consumer.timeout.ms``. Without this property, it waits forever.
"""

import sys

from zkconsumer import ConsumerConfig, create_consumer
from zkconsumer.errors import ConsumerTimeoutError


def main(properties: str, topic: str) -> None:
    """Consume until no message arrives within ``consumer.timeout.ms``."""
    config = ConsumerConfig.from_properties(properties, strict=True)  # an unknown property is an error
    with create_consumer(config) as consumer:  # on exit, commits and leaves the group
        [stream] = consumer.create_message_streams({topic: 1})[topic]
        try:
            for message in stream:
                print(message.partition, message.offset, message.value.decode())
        except ConsumerTimeoutError as error:
            print(error, file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:])
