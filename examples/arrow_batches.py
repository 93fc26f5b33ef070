"""Sum the value sizes of a topic, using Arrow record batches.

``python examples/arrow_batches.py consumer.properties orders``. No Python object is created per message, so this is
several times as fast as a loop over messages.
"""

import signal
import sys

import pyarrow.compute as pc

from zkconsumer import ConsumerConfig, create_consumer
from zkconsumer.errors import ConsumerTimeoutError


def main(properties: str, topic: str) -> None:
    """Consume until a signal arrives, or no message arrives within ``consumer.timeout.ms``."""
    rows = size = 0
    with create_consumer(ConsumerConfig.from_properties(properties)) as consumer:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: consumer.stop())
        stream = consumer.stream(topic)
        try:
            for batch in stream.batches():  # each batch contains messages of one partition
                rows += batch.num_rows
                lengths = pc.call_function("binary_length", [batch["value"]])
                size += pc.call_function("sum", [lengths]).as_py() or 0
        except ConsumerTimeoutError:
            pass
    print(f"{rows} messages, {size} bytes")


if __name__ == "__main__":
    main(*sys.argv[1:])
