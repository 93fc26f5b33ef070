"""Count the messages of all topics whose names match a regular expression, in two threads.

``python examples/topic_filter.py consumer.properties 'orders|payments.*'``. Topics that are created later are also
consumed. As in Kafka's old consumer, the expression is a Java regex. ``Blacklist`` excludes topics instead.
"""

import signal
import sys
import threading
from collections import Counter

from zkconsumer import ConsumerConfig, KafkaStream, Whitelist, create_consumer
from zkconsumer.errors import ConsumerTimeoutError


def count(stream: KafkaStream, messages: Counter[str]) -> None:
    """Count the messages of one stream by topic."""
    try:
        for message in stream:
            messages[message.topic] += 1
    except ConsumerTimeoutError:
        pass  # no message arrived within consumer.timeout.ms


def main(properties: str, expression: str) -> None:
    """Consume each stream in its own thread."""
    counters: list[Counter[str]] = [Counter(), Counter()]
    with create_consumer(ConsumerConfig.from_properties(properties)) as consumer:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: consumer.stop())
        streams = consumer.create_message_streams_by_filter(Whitelist(expression), len(counters))
        threads = [
            threading.Thread(target=count, args=(stream, messages))
            for stream, messages in zip(streams, counters, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(0.5)  # signal handlers run in the main thread, but other threads may receive the signals
    for topic, total in sorted(sum(counters, Counter()).items()):
        print(f"{topic}: {total} messages")


if __name__ == "__main__":
    main(*sys.argv[1:])
