"""The tool ``console-consumer``: prints the messages of one or more topics.

Source: Kafka 1.1 kafka.tools.ConsoleConsumer with ``--zookeeper``. Deliberate differences: a message is written before
its offset can be committed, so no message is lost if the tool is killed; and the topic that ``--topic`` selects must
exist.
"""

from __future__ import annotations

import argparse
import random

from zkconsumer.config.consumer_config import ConsumerConfig
from zkconsumer.consumer.connector import create_consumer
from zkconsumer.consumer.stream import KafkaStream
from zkconsumer.errors import BrokerUnavailableError, ConfigurationError, ConsumerTimeoutError
from zkconsumer.message import TopicPartition
from zkconsumer.tools import common, output
from zkconsumer.tools.arguments import ToolParser
from zkconsumer.tools.common import ToolError
from zkconsumer.tools.formatters import parse_properties
from zkconsumer.tools.printer import (
    MessagePrinter,
    add_output_options,
    choose_formatter,
)
from zkconsumer.topic_filter import Blacklist, TopicFilter, Whitelist
from zkconsumer.zookeeper.registry import BROKER_IDS, GroupPaths


def add_options(parser: ToolParser) -> None:
    """Add the description, the options and the function that runs the tool."""
    parser.set_defaults(run=run)
    common.add_zookeeper(parser, is_required=True)
    topics = parser.add_mutually_exclusive_group(required=True)
    topics.add_argument("--topic", help="topic to consume")
    topics.add_argument("--whitelist", metavar="REGEX", help="regular expression that matches the topics to consume")
    topics.add_argument("--blacklist", metavar="REGEX", help="regular expression that matches the topics to exclude")
    common.add_consumer_config(parser)
    parser.add_argument(
        "--consumer-property",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="consumer property; takes precedence over --consumer.config",
    )
    parser.add_argument(
        "--group",
        help="consumer group (default: group.id in the properties, or a generated group that is deleted on exit)",
    )
    parser.add_argument(
        "--from-beginning",
        action="store_true",
        help="start with the earliest message if the group has no committed offsets",
    )
    parser.add_argument(
        "--delete-consumer-offsets", action="store_true", help="delete the group's offsets in ZooKeeper on startup"
    )
    parser.add_argument(
        "--timeout-ms", type=common.positive, metavar="MS", help="exit if no message arrives within this time"
    )
    add_output_options(parser)
    for name in ("--csv-reporter-enabled", "--enable-systest-events"):
        parser.add_argument(name, action="store_true", help="accepted for compatibility; has no effect")
    parser.add_argument("--metrics-dir", metavar="DIR", help="accepted for compatibility; has no effect")


def run(options: argparse.Namespace) -> int:
    """Print messages until the limit or timeout is reached or the tool is stopped, and return the exit code."""
    printer = MessagePrinter(options, choose_formatter(options))
    properties = _properties(options)
    is_generated_group = "group.id" not in properties
    properties.setdefault("group.id", f"console-consumer-{random.randrange(100_000)}")
    config = ConsumerConfig.from_dict(properties)
    topics = _topics(options)
    _check_znodes(config, options)

    try:
        with create_consumer(config) as consumer:
            if isinstance(topics, str):
                [stream] = consumer.create_message_streams({topics: 1})[topics]
            else:
                [stream] = consumer.create_message_streams_by_filter(topics)
            _print_all(stream, printer)
    finally:
        output.note(f"Processed a total of {printer.count} messages")
        if is_generated_group:
            common.delete_group(config)
    return 0


def _properties(options: argparse.Namespace) -> dict[str, str]:
    properties = common.read_consumer_properties(options.consumer_config)
    properties.update(parse_properties(options.consumer_property))
    properties["zookeeper.connect"] = options.zookeeper
    if options.group:
        properties["group.id"] = options.group
    if options.timeout_ms:
        properties["consumer.timeout.ms"] = str(options.timeout_ms)
    reset = properties.get("auto.offset.reset")
    if options.from_beginning and reset not in (None, "smallest"):
        raise ConfigurationError(
            f"Can't simultaneously specify --from-beginning and 'auto.offset.reset={reset}', please remove one option"
        )
    properties.setdefault("auto.offset.reset", "smallest" if options.from_beginning else "largest")
    return properties


def _topics(options: argparse.Namespace) -> str | TopicFilter:
    if options.topic:
        return str(options.topic)
    return Whitelist(options.whitelist) if options.whitelist else Blacklist(options.blacklist)


def _print_all(stream: KafkaStream, printer: MessagePrinter) -> None:
    """Print messages until the stream ends, or until the limit or ``consumer.timeout.ms`` is reached.

    All printed messages count as consumed, even if a signal handler raises an exception.
    """
    try:
        _print_messages(stream, printer)
        _consume_last_message(stream, printer)
    except BaseException:
        _consume_last_message(stream, printer)
        raise


def _consume_last_message(stream: KafkaStream, printer: MessagePrinter) -> None:
    """Mark the last printed message, if any, as consumed; the stream does so only when the next one is requested."""
    last = printer.last_message
    if last is not None:
        stream.positions.consume_last(TopicPartition(last.topic, last.partition), last.offset)


def _print_messages(stream: KafkaStream, printer: MessagePrinter) -> None:
    try:
        for message in stream:
            printer.print(message)
            if printer.has_reached_limit:
                return
    except ConsumerTimeoutError:
        return  # consumer.timeout.ms expired


def _check_znodes(config: ConsumerConfig, options: argparse.Namespace) -> None:
    """Check that brokers and ``--topic`` exist and, with ``--from-beginning``, that the group has no offset znodes.

    With ``--delete-consumer-offsets``, delete any offset znodes instead of checking for them.
    """
    with common.access(config) as access:
        session = access.session
        if not config.bootstrap_servers and not session.znodes.children(BROKER_IDS):
            raise BrokerUnavailableError(
                f"No brokers found in ZK. {BROKER_IDS} is empty or missing at {config.zookeeper_connect!r}; check the "
                "chroot (a cluster in KRaft mode requires bootstrap.servers in --consumer.config)"
            )
        if options.topic:
            common.check_topics(access.cluster, [options.topic])
        offsets = f"{GroupPaths(config.group_id).root}/offsets"
        if options.delete_consumer_offsets:
            session.znodes.delete_tree(offsets)
        elif options.from_beginning and session.znodes.exists(offsets):
            raise ToolError(
                f"Found previous offset information for this group {config.group_id}. Please use "
                "--delete-consumer-offsets to delete previous offsets metadata"
            )
