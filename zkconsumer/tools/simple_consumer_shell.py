"""The tool ``simple-consumer-shell``: prints the messages of one partition, without a consumer group.

Source: Kafka 1.1 kafka.tools.SimpleConsumerShell.
"""

from __future__ import annotations

import argparse
import os
from contextlib import closing

from zkconsumer.broker.connect import Connecting
from zkconsumer.broker.log_offsets import LogOffsets
from zkconsumer.broker.security import Security
from zkconsumer.config.consumer_config import ConsumerConfig
from zkconsumer.errors import ConfigurationError, NotLeaderError
from zkconsumer.log_ends import LATEST
from zkconsumer.message import Endpoint, TopicPartition
from zkconsumer.metadata.bootstrap import BootstrapCluster, parse_bootstrap
from zkconsumer.simple_consumer import SimpleConsumer
from zkconsumer.tools import common, group_state, output
from zkconsumer.tools.arguments import ToolParser
from zkconsumer.tools.common import ToolError
from zkconsumer.tools.formatters import Formatter
from zkconsumer.tools.printer import MessagePrinter, add_output_options, choose_formatter

#: Maximum seconds to wait for a broker's response.
_TIMEOUT_S = 30.0


def add_options(parser: ToolParser) -> None:
    """Add the description, the options and the function that runs the tool."""
    parser.set_defaults(run=run)
    servers = parser.add_mutually_exclusive_group(required=not os.environ.get(common.ZOOKEEPER_VARIABLE))
    servers.add_argument("--broker-list", metavar="HOSTS", help="brokers: host:port,...")
    servers.add_argument(
        "--zookeeper",
        metavar="HOSTS",
        help=f"ZooKeeper servers at which the brokers are registered (default: {common.ZOOKEEPER_VARIABLE})",
    )
    parser.add_argument("--topic", required=True, help="topic to consume")
    parser.add_argument(
        "--partition", type=int, default=0, metavar="N", help="partition to consume (default: %(default)s)"
    )
    parser.add_argument(
        "--replica", type=int, default=-1, metavar="ID", help="broker to fetch from (default: -1, the leader)"
    )
    parser.add_argument(
        "--offset",
        type=int,
        default=-2,
        help="offset of the first message; -2 (default) for the earliest, -1 for the latest",
    )
    parser.add_argument(
        "--clientId", dest="client_id", default="SimpleConsumerShell", help="client id (default: %(default)s)"
    )
    parser.add_argument(
        "--fetchsize",
        type=common.positive,
        default=1 << 20,
        metavar="BYTES",
        help="fetch size of each request (default: %(default)s)",
    )
    parser.add_argument("--print-offsets", action="store_true", help="print the next offset before each message")
    parser.add_argument(
        "--max-wait-ms",
        type=common.positive,
        default=1000,
        metavar="MS",
        help="maximum time that the broker waits for data per fetch request (default: %(default)s)",
    )
    parser.add_argument(
        "--no-wait-at-logend", action="store_true", help="exit at the end of the log instead of waiting for messages"
    )
    add_output_options(parser)
    common.add_access(parser, brokers=False)


def run(options: argparse.Namespace) -> int:
    """Print the messages and return the exit code."""
    if options.offset < -2:
        raise ConfigurationError(f"--offset must be an offset, -2 (earliest) or -1 (latest), got '{options.offset}'")
    config = common.read_config(options, options.zookeeper or os.environ.get(common.ZOOKEEPER_VARIABLE) or common.LOCAL)
    security = Security.from_config(config)
    partition = TopicPartition(options.topic, options.partition)
    printer = MessagePrinter(options, _formatter(options))
    endpoint = _broker(options, partition, _list_brokers(options, config), security)
    with SimpleConsumer(endpoint.host, endpoint.port, client_id=options.client_id, security=security) as consumer:
        end = _print_all(options, consumer, partition, printer)
    if end is not None:
        text = f"Terminating. Reached the end of partition ({partition.topic}, {partition.partition}) at offset {end}"
        (output.note if options.json else output.echo)(text)
    return 0


def _formatter(options: argparse.Namespace) -> Formatter:
    formatter = choose_formatter(options)
    if not options.print_offsets:
        return formatter
    return lambda message: b"next offset = %d\n" % (message.offset + 1) + formatter(message)


def _print_all(
    options: argparse.Namespace, consumer: SimpleConsumer, partition: TopicPartition, printer: MessagePrinter
) -> int | None:
    """Print messages up to ``--max-messages`` or, with ``--no-wait-at-logend``, up to the end of the log.

    Returns:
        The next offset to fetch, or None if ``--max-messages`` was reached first.
    """
    offset = options.offset
    if offset < 0:
        offset = consumer.earliest_or_latest_offset(*partition, offset)
    end = consumer.earliest_or_latest_offset(*partition, LATEST) if options.no_wait_at_logend else None
    while end is None or offset < end:
        fetched = consumer.fetch(*partition, offset, options.fetchsize, max_wait_ms=options.max_wait_ms)
        for message in fetched.messages:
            printer.print(message)
            if printer.has_reached_limit:
                return None
        offset = fetched.next_offset
    return int(offset)


def _list_brokers(options: argparse.Namespace, config: ConsumerConfig) -> list[Endpoint]:
    """Return the brokers of ``--broker-list``, or those that are registered in ZooKeeper."""
    if options.broker_list:
        return parse_bootstrap(options.broker_list)
    with common.access(config) as access:
        common.check_brokers(access.cluster)
        return access.cluster.brokers()


def _broker(
    options: argparse.Namespace, partition: TopicPartition, brokers: list[Endpoint], security: Security
) -> Endpoint:
    connecting = Connecting(options.client_id, _TIMEOUT_S, security)
    with closing(BootstrapCluster(brokers, connecting)) as cluster:
        existing = group_state.list_partitions(cluster, [partition.topic])
        brokers = cluster.brokers()  # from now on, the configured brokers are not required
    if partition not in existing:
        raise ToolError(
            f"partition {partition.partition} of topic {partition.topic!r} does not exist"
            if existing
            else f"topic {partition.topic!r} does not exist"
        )
    if options.replica >= 0:
        first = brokers[0]
        with SimpleConsumer(first.host, first.port, client_id=options.client_id, security=security) as consumer:
            registered = consumer.brokers()
        if options.replica not in registered:
            ids = ", ".join(map(str, sorted(registered)))
            raise ConfigurationError(f"--replica must be the id of a broker ({ids}), got '{options.replica}'")
        return registered[options.replica]
    logs = LogOffsets(lambda: brokers, connecting)
    try:
        leaders = logs.find_leaders([partition])
    finally:
        logs.close()
    if partition not in leaders:
        raise NotLeaderError(f"partition {partition.partition} of topic {partition.topic!r} has no leader")
    return leaders[partition][1]
