"""``zkconsumer console-consumer``: print the values of a topic's messages, one a line.

Source: Kafka 1.1 kafka.tools.ConsoleConsumer with ``--zookeeper``. Different on purpose: a value is written
out before its offset can be committed, so that killing the tool loses nothing.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
from typing import Any

from zkconsumer.config import ConsumerConfig, read_properties
from zkconsumer.consumer import create_consumer
from zkconsumer.errors import ConfigurationError, ConsumerTimeoutError
from zkconsumer.message import MessageAndMetadata
from zkconsumer.rebalance.topic_filter import Blacklist, TopicFilter, Whitelist
from zkconsumer.stream import KafkaStream
from zkconsumer.tools import common
from zkconsumer.tools.formatters import Formatter, json_line, make_formatter, parse_properties
from zkconsumer.zookeeper.registry import BROKER_IDS, GroupPaths


def add_to(tools: Any) -> None:
    """Add the sub-command."""
    assert __doc__
    parser = common.add_tool(tools, "console-consumer", run, __doc__)
    parser.add_argument("--zookeeper", required=True, metavar="HOSTS", help="zookeeper.connect: host:port,.../chroot")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--topic", help="the topic to read")
    what.add_argument("--whitelist", metavar="REGEX", help="read the topics that match")
    what.add_argument("--blacklist", metavar="REGEX", help="read the topics that do not match")
    parser.add_argument("--consumer.config", dest="consumer_config", metavar="FILE", help="an old consumer.properties")
    parser.add_argument("--consumer-property", action="append", default=[], metavar="KEY=VALUE", help="wins over it")
    parser.add_argument("--group", help="default: that of the properties, or one of its own that is deleted at the end")
    parser.add_argument("--from-beginning", action="store_true", help="start at the earliest message")
    parser.add_argument("--delete-consumer-offsets", action="store_true", help="delete the group's offsets first")
    parser.add_argument("--max-messages", type=common.positive, metavar="N", help="stop after so many; default: go on")
    parser.add_argument("--timeout-ms", type=common.positive, metavar="MS", help="stop when nothing comes for so long")
    parser.add_argument("--formatter", default="kafka.tools.DefaultMessageFormatter", help="default: %(default)s")
    parser.add_argument("--property", action="append", default=[], metavar="KEY=VALUE", help="for the formatter")
    common.add_json(parser)
    parser.add_argument("--skip-message-on-error", action="store_true", help="go on where one cannot be printed")
    for name in ("--csv-reporter-enabled", "--enable-systest-events"):
        parser.add_argument(name, action="store_true", help="accepted for old scripts; has no effect")
    parser.add_argument("--metrics-dir", metavar="DIR", help="accepted for old scripts; has no effect")


def run(options: argparse.Namespace) -> int:
    """Consume until told to stop; returns the exit code."""
    if sys.stdout is None:  # closed by the shell; its number may be a socket's by now
        print("Unable to write to standard out, closing consumer.", file=sys.stderr)
        return 1
    formatter = json_line if options.json else make_formatter(options.formatter, parse_properties(options.property))
    properties = read_properties(options.consumer_config) if options.consumer_config else {}
    properties.update(parse_properties(options.consumer_property))
    properties["zookeeper.connect"] = options.zookeeper
    if options.group:
        properties["group.id"] = options.group
    if options.timeout_ms:
        properties["consumer.timeout.ms"] = str(options.timeout_ms)
    group_is_ours = "group.id" not in properties
    properties.setdefault("group.id", f"console-consumer-{random.randrange(100_000)}")
    reset = properties.get("auto.offset.reset")
    if options.from_beginning and reset not in (None, "smallest"):
        raise ConfigurationError(
            f"Can't simultaneously specify --from-beginning and 'auto.offset.reset={reset}', please remove one option"
        )
    properties.setdefault("auto.offset.reset", "smallest" if options.from_beginning else "largest")
    config = ConsumerConfig.from_dict(properties)
    topics = _topics(options)
    _check(config, options)

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    printer = _Printer(formatter, options.max_messages, options.skip_message_on_error)
    try:
        with create_consumer(config) as consumer:
            if isinstance(topics, str):
                [stream] = consumer.create_message_streams({topics: 1})[topics]
            else:
                [stream] = consumer.create_message_streams_by_filter(topics)
            printer.print_all(stream)
    except KeyboardInterrupt:
        pass  # the usual way to end it
    except _OutputEndedError:
        print("Unable to write to standard out, closing consumer.", file=sys.stderr)
    finally:
        print(f"Processed a total of {printer.count} messages", file=sys.stderr)
        if group_is_ours:
            with common.access(config) as access:
                access.session.znodes.delete_tree(GroupPaths(config.group_id).root)
    return 0


def _topics(options: argparse.Namespace) -> str | TopicFilter:
    if options.topic:
        return str(options.topic)
    return Whitelist(options.whitelist) if options.whitelist else Blacklist(options.blacklist)


class _OutputEndedError(Exception):
    """The output takes no more; what was to be written must not count as consumed."""


class _Printer:
    """Writes messages to standard output, unbuffered, and counts them."""

    def __init__(self, formatter: Formatter, limit: int | None, skip_on_error: bool) -> None:
        self.count = 0
        self._formatter = formatter
        self._limit = limit
        self._skip_on_error = skip_on_error

    def print_all(self, stream: KafkaStream) -> None:
        """Write until the stream or the limit ends it."""
        out = sys.stdout.fileno()
        try:
            for message in stream:
                line = self._format(message)
                while line:
                    try:
                        line = line[os.write(out, line) :]
                    except OSError as error:  # a closed pipe, a full disk
                        raise _OutputEndedError from error
                self.count += 1
                if self.count == self._limit:
                    return
        except ConsumerTimeoutError:
            return  # as asked for, by consumer.timeout.ms

    def _format(self, message: MessageAndMetadata) -> bytes:
        try:
            return self._formatter(message)
        except Exception as error:
            if not self._skip_on_error:
                raise
            print(f"Error processing message, skipping this message: {error!r}", file=sys.stderr)
            return b""


def _check(config: ConsumerConfig, options: argparse.Namespace) -> None:
    """Look for brokers, and for offsets that ``--from-beginning`` would not get past."""
    with common.access(config) as access:
        session = access.session
        if not config.bootstrap_servers and not session.znodes.children(BROKER_IDS):
            raise ConfigurationError(
                f"No brokers found in ZK. Nothing is registered in {BROKER_IDS} at {config.zookeeper_connect!r}; "
                "check the chroot, or set bootstrap.servers in --consumer.config where brokers run without ZooKeeper"
            )
        offsets = f"{GroupPaths(config.group_id).root}/offsets"
        if options.delete_consumer_offsets:
            session.znodes.delete_tree(offsets)
        elif options.from_beginning and session.znodes.exists(offsets):
            raise ConfigurationError(
                f"Found previous offset information for this group {config.group_id}. Please use "
                "--delete-consumer-offsets to delete previous offsets metadata"
            )
