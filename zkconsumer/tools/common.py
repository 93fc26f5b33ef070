"""What the tools have in common: connections for a moment, and how things are printed."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import queue
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tenacity import Retrying

from zkconsumer import retry
from zkconsumer.broker.cluster import Cluster, cluster_of
from zkconsumer.broker.log_offsets import LogOffsets
from zkconsumer.broker.security import Security
from zkconsumer.config import ConsumerConfig, read_properties
from zkconsumer.errors import ConfigurationError
from zkconsumer.offsets.coordinator import GroupCoordinator
from zkconsumer.zookeeper.session import ZooKeeperSession

CLIENT_ID = "zkconsumer-tools"

#: Seconds that a broker may take to answer.
_PATIENCE = 10.0

#: What the old tools take where no ensemble is named.
LOCAL = "localhost:2181"


def add_tool(tools: Any, name: str, run: Any, description: str) -> argparse.ArgumentParser:
    """Add a sub-command that ``run`` does."""
    parser: argparse.ArgumentParser = tools.add_parser(
        name,
        help=description.strip().splitlines()[0].rpartition("``: ")[2].rstrip("."),
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    return parser


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add ``--json``."""
    parser.add_argument("--json", action="store_true", help="print JSON instead, for programs")


def add_access(parser: argparse.ArgumentParser, *, brokers: bool = True) -> None:
    """Add ``--command-config``, and ``--bootstrap-server`` where brokers are asked."""
    parser.add_argument(
        "--command-config",
        metavar="FILE",
        help="properties for logins and TLS (security.protocol, zookeeper.sasl.*)",
    )
    if not brokers:
        return
    parser.add_argument(
        "--bootstrap-server", metavar="HOSTS", help="brokers, where they are not registered in that ZooKeeper (KRaft)"
    )


def positive(text: str) -> int:
    """Read a whole number from 1 on."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


class Access:
    """A tool's connections; all are closed with it.

    Attributes:
        session: to ZooKeeper.
        cluster: the brokers that it knows, or those that are named.
    """

    def __init__(self, config: ConsumerConfig, closing: contextlib.ExitStack) -> None:
        self._security = Security.of(config)
        self._closing = closing
        self.session = ZooKeeperSession.of(config, queue.SimpleQueue())
        self.session.start()
        closing.callback(self.session.close)
        self.cluster = cluster_of(dataclasses.replace(config, client_id=CLIENT_ID), self.session, _PATIENCE)
        closing.callback(self.cluster.close)

    def logs(self, timeout: float = _PATIENCE) -> LogOffsets:
        """Return what asks for offsets of logs."""
        logs = LogOffsets(self.cluster.brokers, CLIENT_ID, timeout=timeout, security=self._security)
        self._closing.callback(logs.close)
        return logs

    def coordinator(self, group: str, timeout: float = _PATIENCE) -> GroupCoordinator:
        """Return what asks for a group's offsets in Kafka."""
        found = GroupCoordinator(group, self.cluster.brokers, CLIENT_ID, timeout=timeout, security=self._security)
        self._closing.callback(found.close)
        return found


@contextlib.contextmanager
def access(config: ConsumerConfig) -> Iterator[Access]:
    """Connect as a consumer would."""
    with contextlib.ExitStack() as closing:
        yield Access(config, closing)


def config_of(options: argparse.Namespace, hosts: str) -> ConsumerConfig:
    """Return the settings that ``--command-config`` and ``--bootstrap-server`` make, for an ensemble."""
    properties = read_properties(options.command_config) if getattr(options, "command_config", None) else {}
    if getattr(options, "bootstrap_server", None):
        properties["bootstrap.servers"] = options.bootstrap_server
    return ConsumerConfig.from_dict({**properties, "group.id": CLIENT_ID, "zookeeper.connect": hosts})


def check_brokers(cluster: Cluster) -> None:
    """Refuse to judge a group without knowing a broker, since no partition would be known either."""
    if not cluster.brokers():
        raise ConfigurationError(
            "no broker is registered in that ZooKeeper; check the chroot, or give --bootstrap-server where brokers run "
            "without it"
        )


def retrying(backoff: float = 0.5) -> Retrying:
    """Call again and again, for a while, what may succeed later: the first to ask for a coordinator waits for it."""
    return retry.retrying(15, every=backoff)


def print_json(content: object) -> None:
    """Print what a program is to read."""
    print(json.dumps(content, indent=2, sort_keys=True))


def print_json_line(content: object) -> None:
    """Print one of several objects that a program is to read, at once."""
    print(json.dumps(content, sort_keys=True), flush=True)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table: with rich on a terminal, else aligned text."""
    texts = [["-" if cell is None else str(cell) for cell in row] for row in rows]
    if sys.stdout.isatty() and (table := rich_table(columns, texts)) is not None:
        from rich.console import Console

        Console().print(table)
        return
    widths = [max(map(len, column)) for column in zip(columns, *texts, strict=True)]
    for row in (columns, *texts):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def rich_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Any:
    """Return a table for a terminal, None where the extra ``cli`` is not installed."""
    try:
        from rich.table import Table
    except ImportError:
        return None
    table = Table(*columns)
    for row in rows:
        table.add_row(*row)
    return table
