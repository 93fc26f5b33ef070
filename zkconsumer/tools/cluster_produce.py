"""The action ``produce`` of ``cluster``: writes lines from standard input, or consecutive numbers, to a topic."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from zkconsumer.broker.connect import Connecting
from zkconsumer.broker.security import PLAINTEXT
from zkconsumer.devcluster.producer import KeyValue, Producer
from zkconsumer.devcluster.servers import numbers
from zkconsumer.errors import ConfigurationError
from zkconsumer.excerpt import excerpt
from zkconsumer.metadata.bootstrap import BootstrapCluster, parse_bootstrap
from zkconsumer.tools import cluster_state, common, output
from zkconsumer.tools.common import ToolError

#: Maximum seconds to wait for a broker's response.
_TIMEOUT_S = 10.0

_DESCRIPTION = """\
Write each line of standard input, or each number from 0 to N - 1, as a record to a topic of the detached cluster.
Records without keys are distributed evenly among the partitions.
"""


def add_to(actions: Any) -> None:
    """Add the action."""
    parser = actions.add_parser(
        "produce", help="write lines from standard input, or consecutive numbers, to a topic", description=_DESCRIPTION
    )
    parser.add_argument("--topic", required=True, help="topic to write to; it must exist")
    parser.add_argument(
        "--count", type=common.positive, metavar="N", help="write the numbers from 0 to N - 1 instead of input lines"
    )
    parser.add_argument(
        "--key-separator",
        metavar="TEXT",
        help="text between the key and the value in each input line (default: records have no keys)",
    )
    parser.add_argument(
        "--rate", type=common.positive, metavar="N", help="maximum number of records per second (default: no limit)"
    )
    parser.add_argument(
        "--bootstrap-server",
        metavar="HOSTS",
        help="bootstrap brokers (default: those of the detached development cluster)",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write the records and return the exit code."""
    if options.key_separator == "":
        raise ConfigurationError("--key-separator must not be empty")
    if options.key_separator is not None and options.count is not None:
        raise ConfigurationError("--key-separator cannot be combined with --count, because the numbers have no keys")
    if options.bootstrap_server:
        servers, version = options.bootstrap_server, None
    else:
        state = cluster_state.require()
        servers, version = state["bootstrap.servers"], numbers(state["kafka"])
    partitions = _partitions(servers, options.topic)
    if options.count is None and sys.stdin.isatty():
        output.note("each line becomes a record; end with Ctrl-D")
    records: Iterable[KeyValue]
    if options.count is not None:
        records = ((None, b"%d" % number) for number in range(options.count))
    elif options.key_separator is not None:
        records = _split_lines(options.key_separator)
    else:
        records = ((None, line) for line in _lines())
    producer = Producer(servers, options.topic, partitions, kafka=version)
    try:
        with producer:
            producer.send(records, rate=options.rate)
    finally:
        written = f"{output.count(producer.acknowledged, 'record')} written to topic {options.topic!r}"
        output.note(f"{written} ({output.count(len(partitions), 'partition')})")
    return 0


def _partitions(servers: str, topic: str) -> list[int]:
    """Return the partitions of a topic.

    Raises:
        ToolError: the topic does not exist.
        BrokerUnavailableError: no broker responded.
    """
    brokers = BootstrapCluster(parse_bootstrap(servers), Connecting(common.CLIENT_ID, _TIMEOUT_S, PLAINTEXT))
    try:
        found = brokers.partitions([topic]).get(topic)
    finally:
        brokers.close()
    if not found:
        raise ToolError(
            f"topic {topic!r} does not exist; check its name, or create it (in the detached cluster: "
            f"`zkconsumer cluster topic {topic}`)"
        )
    return found


def _split_lines(separator: str) -> Iterator[KeyValue]:
    """Yield the lines of standard input, split into keys and values.

    Raises:
        ToolError: a line does not contain the separator.
    """
    between = os.fsencode(separator)
    for number, line in enumerate(_lines(), 1):
        key, found, value = line.partition(between)
        if not found:
            raise ToolError(f"line {number} does not contain the key separator {separator!r}: {excerpt(line)}")
        yield key, value


def _lines() -> Iterator[bytes]:
    """Yield the lines of standard input as they arrive, without line endings."""
    rest = b""
    while data := os.read(sys.stdin.fileno(), 1 << 16):
        *lines, rest = (rest + data).split(b"\n")
        yield from (line.removesuffix(b"\r") for line in lines)
    if rest:
        yield rest
