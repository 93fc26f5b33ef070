"""``zkconsumer console-consumer``: print the values of a topic's messages, one a line.

Source: Kafka 1.1 kafka.tools.ConsoleConsumer with ``--zookeeper``. Different on purpose: a value is written
out before its offset can be committed, so that killing the tool loses nothing.
"""

from __future__ import annotations

import argparse
import os
import queue
import random
import signal
import sys
from typing import Any

from zkconsumer.config import ConsumerConfig, read_properties
from zkconsumer.consumer import create_consumer
from zkconsumer.errors import ConfigurationError, ConsumerTimeoutError
from zkconsumer.registry import BROKER_IDS, GroupPaths
from zkconsumer.stream import KafkaStream
from zkconsumer.zookeeper import ZooKeeperSession


def add_to(tools: Any) -> None:
    """Add the sub-command."""
    parser = tools.add_parser(
        "console-consumer",
        help="print the values of a topic's messages, one a line",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--zookeeper", required=True, metavar="HOSTS", help="zookeeper.connect: host:port,.../chroot")
    parser.add_argument("--topic", required=True, help="the topic to read")
    parser.add_argument("--consumer.config", dest="consumer_config", metavar="FILE", help="an old consumer.properties")
    parser.add_argument("--from-beginning", action="store_true", help="start at the earliest message")
    parser.add_argument("--max-messages", type=_positive, metavar="N", help="stop after so many; default: go on")
    parser.set_defaults(run=run)


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def run(options: argparse.Namespace) -> int:
    """Consume until told to stop; returns the exit code."""
    if sys.stdout is None:  # closed by the shell; its number may be a socket's by now
        print("Unable to write to standard out, closing consumer.", file=sys.stderr)
        return 1
    properties = read_properties(options.consumer_config) if options.consumer_config else {}
    properties["zookeeper.connect"] = options.zookeeper
    group_is_ours = "group.id" not in properties
    properties.setdefault("group.id", f"console-consumer-{random.randrange(100_000)}")
    reset = properties.get("auto.offset.reset")
    if options.from_beginning and reset not in (None, "smallest"):
        raise ConfigurationError(
            f"Can't simultaneously specify --from-beginning and 'auto.offset.reset={reset}', please remove one option"
        )
    properties.setdefault("auto.offset.reset", "smallest" if options.from_beginning else "largest")
    config = ConsumerConfig.from_dict(properties)
    _check(config, options.from_beginning)

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    printer = _Printer(options.max_messages)
    try:
        with create_consumer(config) as consumer:
            [stream] = consumer.create_message_streams({options.topic: 1})[options.topic]
            printer.print_values(stream)
    except KeyboardInterrupt:
        pass  # the usual way to end it
    except _OutputEndedError:
        print("Unable to write to standard out, closing consumer.", file=sys.stderr)
    finally:
        print(f"Processed a total of {printer.count} messages", file=sys.stderr)
        if group_is_ours:
            _delete_group(config)
    return 0


class _OutputEndedError(Exception):
    """The output takes no more; what was to be written must not count as consumed."""


class _Printer:
    """Writes values to standard output, unbuffered, and counts them."""

    def __init__(self, limit: int | None) -> None:
        self.count = 0
        self._limit = limit

    def print_values(self, stream: KafkaStream) -> None:
        """Write until the stream or the limit ends it."""
        out = sys.stdout.fileno()
        try:
            for message in stream:
                line = b"null\n" if message.value is None else message.value + b"\n"
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


def _session(config: ConsumerConfig) -> ZooKeeperSession:
    session = ZooKeeperSession(
        config.zookeeper_connect,
        session_timeout=config.zookeeper_session_timeout_ms / 1000,
        connection_timeout=config.connection_timeout,
        events=queue.SimpleQueue(),
    )
    session.start()
    return session


def _check(config: ConsumerConfig, from_beginning: bool) -> None:
    session = _session(config)
    try:
        if not config.bootstrap_servers and not session.children(BROKER_IDS):
            raise ConfigurationError(
                f"No brokers found in ZK. Nothing is registered in {BROKER_IDS} at {config.zookeeper_connect!r}; "
                "check the chroot, or set bootstrap.servers in --consumer.config where brokers run without ZooKeeper"
            )
        if from_beginning and session.exists(f"{GroupPaths(config.group_id).root}/offsets"):
            raise ConfigurationError(
                f"Found previous offset information for this group {config.group_id}, which --from-beginning would "
                "ignore; remove that option, or use another group.id"
            )
    finally:
        session.close()


def _delete_group(config: ConsumerConfig) -> None:
    session = _session(config)
    try:
        session.delete_tree(GroupPaths(config.group_id).root)
    finally:
        session.close()
