"""Print the messages of a topic: ``python examples/plain_consumer.py consumer.properties orders``.

The loop ends on Ctrl-C or SIGTERM, or when no message arrives within ``consumer.timeout.ms``.
"""

import signal
import sys

from zkconsumer import ConsumerConfig, create_consumer, string_decoder
from zkconsumer.errors import ConsumerTimeoutError


def main(properties: str, topic: str) -> None:
    """Consume until a signal arrives, or no message arrives within ``consumer.timeout.ms``."""
    config = ConsumerConfig.from_properties(properties, strict=True)  # an unknown property is an error
    with create_consumer(config) as consumer:  # on exit, commits and leaves the group
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: consumer.stop())
        stream = consumer.stream(topic, value_decoder=string_decoder)
        try:
            for message in stream:
                print(message.partition, message.offset, message.value)
        except ConsumerTimeoutError as error:
            print(error, file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:])
