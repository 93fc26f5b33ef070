"""Functions shared by the tools: arguments, connections and output."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from tenacity import Retrying

from zkconsumer import retry
from zkconsumer.broker.connect import Connecting
from zkconsumer.config.consumer_config import ConsumerConfig, read_properties
from zkconsumer.errors import ZkConsumerError
from zkconsumer.message import TopicPartition
from zkconsumer.metadata.base import Cluster
from zkconsumer.offsets.access import Access, open_access
from zkconsumer.zookeeper import registry

CLIENT_ID = "zkconsumer-tools"

#: Maximum seconds to wait for a broker's response.
_BROKER_TIMEOUT_S = 10.0

#: Maximum time to retry a request, in seconds.
_RETRY_TIMEOUT_S = 15.0

#: Valid values of ``--log-level``.
LOG_LEVELS = ("debug", "info", "warning", "error")

#: Maximum number of characters in a table cell. Only ids written by other programs are longer.
_MAX_CELL_LENGTH = 600

#: Default of ``--zookeeper``, as in Kafka's tools.
LOCAL = "localhost:2181"


def add_tool(tools: Any, name: str, run: Any, description: str) -> argparse.ArgumentParser:
    """Add a subcommand.

    Args:
        tools: return value of ``add_subparsers``.
        name: name of the subcommand.
        run: function that takes the parsed options and returns the exit code.
        description: description for ``--help``; its first line is also shown in the list of tools.
    """
    parser: argparse.ArgumentParser = tools.add_parser(
        name,
        help=description.splitlines()[0].rstrip("."),
        description=description,
    )
    add_log_level(parser)
    parser.set_defaults(run=run, parser=parser)
    return parser


def add_log_level(parser: argparse.ArgumentParser) -> None:
    """Add ``--log-level``."""
    parser.add_argument(
        "--log-level",
        type=str.lower,
        choices=LOG_LEVELS,
        default="warning",
        help="show log events of this level and above on standard error (default: warning)",
    )


def add_group(parser: argparse.ArgumentParser) -> None:
    """Add ``--zookeeper`` and ``--group``, for a tool that operates on one group."""
    parser.add_argument("--zookeeper", default=LOCAL, metavar="HOSTS", help="ZooKeeper servers (default: %(default)s)")
    parser.add_argument("--group", required=True, help="consumer group")


def add_json(parser: argparse._ActionsContainer) -> None:
    """Add ``--json``."""
    parser.add_argument("--json", action="store_true", help="print JSON, one object per line")


def add_access(parser: argparse.ArgumentParser, *, brokers: bool = True) -> None:
    """Add ``--command-config`` and, if the tool connects to brokers, ``--bootstrap-server``."""
    parser.add_argument(
        "--command-config",
        metavar="FILE",
        help="properties file with security settings, such as security.protocol and zookeeper.sasl.*",
    )
    if brokers:
        parser.add_argument(
            "--bootstrap-server", metavar="HOSTS", help="brokers of a cluster in KRaft mode: host:port,..."
        )


def positive(text: str) -> int:
    """Parse a positive integer."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be an integer of at least 1, got {text!r}")
    return int(text)


def access(config: ConsumerConfig) -> contextlib.AbstractContextManager[Access]:
    """Connect to the configured ZooKeeper and brokers, using the tools' client id."""
    own = dataclasses.replace(config, client_id=CLIENT_ID)
    return open_access(own, Connecting.from_config(own).with_timeout(_BROKER_TIMEOUT_S))


def read_config(options: argparse.Namespace, hosts: str, group: str = CLIENT_ID) -> ConsumerConfig:
    """Build the configuration for ``hosts`` and ``group`` from ``--command-config`` and ``--bootstrap-server``.

    The group name is not validated, so that a tool can describe and delete any group.
    """
    properties = read_properties(options.command_config) if getattr(options, "command_config", None) else {}
    if getattr(options, "bootstrap_server", None):
        properties["bootstrap.servers"] = options.bootstrap_server
    config = ConsumerConfig.from_dict({**properties, "group.id": CLIENT_ID, "zookeeper.connect": hosts})
    return dataclasses.replace(config, group_id=group)


def check_brokers(cluster: Cluster) -> None:
    """Raise ``ToolError`` if no broker is registered; without brokers, partitions cannot be listed."""
    if not cluster.brokers():
        raise ToolError(
            "no broker is registered in ZooKeeper; check the chroot (a cluster in KRaft mode requires "
            "--bootstrap-server)"
        )


def check_topics(cluster: Cluster, topics: Iterable[str]) -> None:
    """Raise ``ToolError`` if any of the topics does not exist."""
    names = list(topics)
    for name in names:
        registry.check_topic_name(name)
    existing = cluster.partitions(names)
    for name in names:
        if name not in existing:
            check_brokers(cluster)
            raise ToolError(f"topic {name!r} does not exist; check the topic name and the ZooKeeper chroot")


def delete_group(config: ConsumerConfig) -> None:
    """Delete the znodes of the configured group."""
    with access(config) as closing:
        closing.session.znodes.delete_tree(registry.GroupPaths(config.group_id).root)


@contextlib.contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """Yield the path of a new file, which replaces ``path`` at the end of the block unless an error is raised.

    For a device or pipe such as ``/dev/stdout``, which cannot be replaced, ``path`` itself is yielded.

    Raises:
        ToolError: the file cannot be written.
    """
    is_replaced = os.path.isfile(path) or not os.path.exists(path)
    target = path.resolve() if is_replaced else path
    new = target.with_name(f".{target.name}.{os.getpid()}.new") if is_replaced else path
    try:
        yield new
        if is_replaced:
            if target.exists():
                shutil.copymode(target, new)
            new.replace(target)
    except OSError as error:
        raise ToolError(f"cannot write {str(path)!r}: {error}") from error
    finally:
        if is_replaced:
            # Deletion also fails if the file could not be created, for example because its name is too long.
            with contextlib.suppress(OSError):
                new.unlink(missing_ok=True)


def retrying(backoff_s: float = 0.5) -> Retrying:
    """Return a tenacity ``Retrying`` that retries calls that raise ``RetriableError``, for up to 15 seconds.

    The first requests for a group coordinator fail until the brokers have created the offsets topic.

    Args:
        backoff_s: seconds between two attempts.
    """
    return retry.retrying(_RETRY_TIMEOUT_S, interval_s=backoff_s)


def printable(text: object) -> str:
    """Return ``text`` as a string in which each unprintable character is replaced with an escape sequence.

    Znodes can contain terminal control sequences, and line breaks that would forge output lines.
    """
    line = str(text)
    if line.isprintable():
        return line
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


def count(number: int, noun: str) -> str:
    """Return a number with its noun in the singular or plural."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def cell(value: object) -> str:
    """Return the text of a table cell: ``-`` for None; control characters are escaped, and long text is truncated."""
    text = "-" if value is None else printable(value)
    return text if len(text) <= _MAX_CELL_LENGTH else f"{text[:_MAX_CELL_LENGTH]}..."


class ToolError(ZkConsumerError):
    """Raised when a tool cannot perform its task, for example because a group or topic does not exist."""


class OutputClosedError(Exception):
    """Raised when a line cannot be written to standard output. An unwritten message's offset must not be committed."""


def echo(line: object = "", file: TextIO | None = None, *, flush: bool = False) -> None:
    """Print one line. All tools print text with this function, ``print_table``, ``print_json`` or ``report``."""
    _write(printable(line), file, flush=flush)


def print_json(content: Mapping[str, object]) -> None:
    """Print an object as one line of JSON, and flush. Keys are in camel case, except property names."""
    _write(json.dumps(content), None, flush=True)


def report(options: argparse.Namespace, content: Mapping[str, object], lines: Iterable[str]) -> None:
    """Print the result of a tool: a JSON object with ``--json``, otherwise lines of text."""
    if options.json:
        print_json(content)
        return
    for line in lines:
        echo(line, flush=True)


def _write(line: str, file: TextIO | None, *, flush: bool) -> None:
    """Write a line.

    Raises:
        BrokenPipeError: the reader of the pipe exited.
        OutputClosedError: the line cannot be written, for example because the disk is full.
    """
    try:
        print(line, file=file, flush=flush)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputClosedError from error


def partition_json(
    partition: TopicPartition, offset: int | None, end: int | None, owner: str | None, **more: object
) -> dict[str, object]:
    """Return the JSON object that describes one partition of a group.

    Args:
        offset: committed offset; None or negative if it is missing or unknown.
        end: end offset of the log; None if it is unknown.
        owner: thread id of the owner; None if there is none.
        more: additional keys and values.
    """
    known = None if offset is None or offset < 0 else offset
    lag = None if known is None or end is None else end - known
    names = {"topic": partition.topic, "partition": partition.partition}
    return {**names, "offset": known, "endOffset": end, "lag": lag, "owner": owner, **more}


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table: with rich on a terminal, as aligned text otherwise."""
    texts = [[cell(value) for value in row] for row in rows]
    if sys.stdout.isatty() and (table := rich_table(columns, texts)) is not None:
        from rich.console import Console

        Console().print(table)
        return
    widths = [max(map(len, column)) for column in zip(columns, *texts, strict=True)]
    for row in (columns, *texts):
        echo("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())


def rich_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Any:
    """Return a ``rich`` table without markup, or None if the extra ``cli`` is not installed."""
    try:
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        return None
    table = Table(*columns)
    for row in rows:
        table.add_row(*map(Text, row))
    return table
