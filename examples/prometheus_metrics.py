"""Serve the metrics of a consumer to Prometheus.

``python examples/prometheus_metrics.py consumer.properties orders 8000``. Requires the ``prometheus`` extra.
``curl localhost:8000/metrics`` shows lag, rates, rebalances and health.
"""

import signal
import sys

from prometheus_client import CollectorRegistry, start_http_server

from zkconsumer import ConsumerConfig, create_consumer, string_decoder
from zkconsumer.errors import ConsumerTimeoutError
from zkconsumer.prometheus import ConsumerCollector


def main(properties: str, topic: str, port: str) -> None:
    """Consume until a signal arrives, or no message arrives within ``consumer.timeout.ms``."""
    with create_consumer(ConsumerConfig.from_properties(properties)) as consumer:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: consumer.stop())
        registry = CollectorRegistry()
        registry.register(ConsumerCollector(consumer))
        server, thread = start_http_server(int(port), addr="127.0.0.1", registry=registry)
        stream = consumer.stream(topic, value_decoder=string_decoder)
        try:
            for message in stream:
                print(message.partition, message.offset, message.value, flush=True)
        except ConsumerTimeoutError:
            pass
        finally:
            server.shutdown()
            thread.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
