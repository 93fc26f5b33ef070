"""``zkconsumer simple-consumer-shell``: print the messages of one partition, without a group.

Source: Kafka 1.1 kafka.tools.SimpleConsumerShell.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from zkconsumer.broker import protocol
from zkconsumer.broker.cluster import parse_bootstrap
from zkconsumer.broker.log_offsets import LogOffsets
from zkconsumer.broker.security import Security
from zkconsumer.errors import ConfigurationError
from zkconsumer.message import Endpoint, TopicPartition
from zkconsumer.simple_consumer import SimpleConsumer
from zkconsumer.tools import common
from zkconsumer.tools.formatters import json_line, make_formatter, parse_properties


def add_to(tools: Any) -> None:
    """Add the sub-command."""
    assert __doc__
    parser = common.add_tool(tools, "simple-consumer-shell", run, __doc__)
    parser.add_argument("--broker-list", required=True, metavar="HOSTS", help="host:port with commas")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partition", type=int, default=0)
    parser.add_argument("--replica", type=int, default=-1, help="the broker's id; default: the leader (-1)")
    parser.add_argument("--offset", type=int, default=-2, help="-2: the beginning (default), -1: the end")
    parser.add_argument("--clientId", dest="client_id", default="SimpleConsumerShell")
    parser.add_argument("--fetchsize", type=common.positive, default=1 << 20)
    parser.add_argument("--formatter", default="kafka.tools.DefaultMessageFormatter")
    parser.add_argument("--property", action="append", default=[], metavar="KEY=VALUE", help="for the formatter")
    parser.add_argument("--print-offsets", action="store_true")
    parser.add_argument("--max-wait-ms", type=common.positive, default=1000)
    parser.add_argument("--max-messages", type=common.positive)
    parser.add_argument("--skip-message-on-error", action="store_true", help="go on where one cannot be printed")
    parser.add_argument("--no-wait-at-logend", action="store_true", help="stop at the end of the log")
    common.add_access(parser, brokers=False)
    common.add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print; returns the exit code."""
    if options.offset < -2:
        raise ConfigurationError(f"--offset {options.offset}: an offset, -2 (beginning) or -1 (end) is expected")
    formatter = json_line if options.json else make_formatter(options.formatter, parse_properties(options.property))
    security = Security.of(common.config_of(options, common.LOCAL))
    partition = TopicPartition(options.topic, options.partition)
    endpoint = _broker(options, partition, security)
    with SimpleConsumer(endpoint.host, endpoint.port, client_id=options.client_id, security=security) as consumer:
        offset = options.offset
        if offset < 0:
            offset = consumer.earliest_or_latest_offset(*partition, offset)
        end = None
        if options.no_wait_at_logend:
            end = consumer.earliest_or_latest_offset(*partition, protocol.LATEST)
        printed = 0
        out = sys.stdout.fileno()
        while end is None or offset < end:
            found = consumer.fetch(*partition, offset, options.fetchsize, max_wait_ms=options.max_wait_ms)
            for message in found.messages:
                try:
                    line = formatter(message)
                    line = b"next offset = %d\n" % (message.offset + 1) + line if options.print_offsets else line
                    while line:
                        line = line[os.write(out, line) :]
                except OSError:
                    print("Unable to write to standard out, closing consumer.", file=sys.stderr)
                    return 1
                except Exception as error:
                    if not options.skip_message_on_error:
                        raise
                    print(f"Error processing message, skipping this message: {error!r}", file=sys.stderr)
                printed += 1
                if printed == options.max_messages:
                    return 0
            offset = found.next_offset
    end_of_log = (
        f"Terminating. Reached the end of partition ({partition.topic}, {partition.partition}) at offset {offset}"
    )
    print(end_of_log, file=sys.stderr if options.json else sys.stdout)
    return 0


def _broker(options: argparse.Namespace, partition: TopicPartition, security: Security) -> Endpoint:
    brokers = parse_bootstrap(options.broker_list)
    if options.replica >= 0:
        first = brokers[0]
        with SimpleConsumer(first.host, first.port, client_id=options.client_id, security=security) as consumer:
            found = consumer.brokers()
        if options.replica not in found:
            known = ", ".join(map(str, sorted(found)))
            raise ConfigurationError(f"--replica {options.replica}: there are brokers {known}")
        return found[options.replica]
    logs = LogOffsets(lambda: brokers, options.client_id, timeout=30, security=security)
    try:
        leaders = logs.find_leaders([partition])
    finally:
        logs.close()
    if partition not in leaders:
        raise ConfigurationError(
            f"partition {partition.partition} of topic {partition.topic!r} does not exist, or has no leader now"
        )
    return leaders[partition][1]
