"""A consumer that runs as a service: ``python examples/service_consumer.py consumer.properties orders``.

``examples/systemd`` and ``examples/kubernetes`` run it. ``--help`` lists the options. ``--metrics-port`` requires the
``prometheus`` extra. On SIGTERM or Ctrl-C, the program completes the current message, commits its offset, leaves the
group and exits with code 0. After an error, the exit code is 1, and messages whose offsets were not committed are
consumed again after a restart.
"""

import argparse
import logging
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import structlog

from zkconsumer import ConsumerConfig, MessageAndMetadata, ZookeeperConsumerConnector, create_consumer
from zkconsumer.health_server import HealthServer

log = structlog.get_logger("service")


def configure_logging() -> None:
    """Write structlog and ``logging`` events to standard error, one JSON object per line."""
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        # Not "timestamp": zkconsumer's log events use that key for record timestamps.
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        structlog.processors.format_exc_info,
    ]
    handler = logging.StreamHandler()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    logging.basicConfig(level="INFO", handlers=[handler])
    structlog.configure(  # before the consumer is created
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
    )


def read_secrets(directory: Path | None) -> dict[str, str]:
    """Return properties from a directory with one file per property, such as a mounted Kubernetes Secret."""
    files = directory.iterdir() if directory is not None else ()
    return {
        file.name: file.read_text().removesuffix("\n")
        for file in files
        if file.is_file() and not file.name.startswith(".")
    }


def process(message: MessageAndMetadata) -> None:
    """Process one message. If an exception is raised, the message is consumed again after a restart."""
    log.info("order_processed", topic=message.topic, partition=message.partition, offset=message.offset)


@contextmanager
def serving_metrics(consumer: ZookeeperConsumerConnector, port: int | None) -> Iterator[None]:
    """Serve metrics to Prometheus, unless the port is None."""
    if port is None:
        yield
        return
    from prometheus_client import CollectorRegistry, start_http_server

    from zkconsumer.prometheus import ConsumerCollector

    registry = CollectorRegistry()
    registry.register(ConsumerCollector(consumer))
    server, thread = start_http_server(port, registry=registry)
    try:
        yield
    finally:
        server.shutdown()
        thread.join()


def run(options: argparse.Namespace) -> None:
    """Consume until a signal arrives. A signal does not interrupt ``process``."""
    properties = {**read_secrets(options.secrets), "consumer.timeout.ms": -1}
    consumer = create_consumer(ConsumerConfig.from_properties(options.properties, properties, strict=True))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: consumer.stop())
    with HealthServer(consumer, options.health_port) as health, serving_metrics(consumer, options.metrics_port):
        log.info("service_started", health_port=health.port)
        with consumer:  # on exit, commits the offsets of all processed messages, and leaves the group
            stream = consumer.stream(options.topic)
            for message in stream:
                process(message)
    log.info("service_stopped")


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description="Consume a topic until SIGTERM or Ctrl-C.")
    parser.add_argument("properties", help="path of the properties file")
    parser.add_argument("topic")
    parser.add_argument("--secrets", type=Path, metavar="DIRECTORY", help="directory with one file per property")
    parser.add_argument("--health-port", type=int, default=8080, metavar="PORT", help="default: %(default)s")
    parser.add_argument("--metrics-port", type=int, metavar="PORT", help="Prometheus port (default: no metrics)")
    return parser.parse_args(arguments)


def main() -> int:
    """Run the program, and return its exit code."""
    options = parse_arguments()
    configure_logging()
    try:
        run(options)
    except Exception:
        log.exception("service_failed")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
