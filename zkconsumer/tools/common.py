"""What the tools have in common: connections for a moment, and how things are printed."""

from __future__ import annotations

import argparse
import contextlib
import json
import queue
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from zkconsumer.cluster import BootstrapCluster, Cluster, ZooKeeperCluster, parse_bootstrap
from zkconsumer.errors import RetriableError
from zkconsumer.zookeeper import ZooKeeperSession

CLIENT_ID = "zkconsumer-tools"

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


def add_bootstrap(parser: argparse.ArgumentParser) -> None:
    """Add ``--bootstrap-server``."""
    parser.add_argument(
        "--bootstrap-server", metavar="HOSTS", help="brokers, where they are not registered in that ZooKeeper (KRaft)"
    )


def positive(text: str) -> int:
    """Read a whole number from 1 on."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


@contextlib.contextmanager
def zookeeper(hosts: str, timeout: float = 6.0) -> Iterator[ZooKeeperSession]:
    """Connect to an ensemble for a while."""
    session = ZooKeeperSession(hosts, session_timeout=6.0, connection_timeout=timeout, events=queue.SimpleQueue())
    session.start()
    try:
        yield session
    finally:
        session.close()


@contextlib.contextmanager
def cluster(session: ZooKeeperSession, bootstrap_server: str | None, *, timeout: float = 10.0) -> Iterator[Cluster]:
    """Give the brokers that ZooKeeper knows, or those that are named."""
    if not bootstrap_server:
        yield ZooKeeperCluster(session)
        return
    found = BootstrapCluster(parse_bootstrap(bootstrap_server), CLIENT_ID, timeout=timeout)
    try:
        yield found
    finally:
        found.close()


def patiently(backoff: float = 0.5) -> Retrying:
    """Call again and again, for a while, what may succeed later: the first to ask for a coordinator waits for it."""
    return Retrying(
        retry=retry_if_exception_type(RetriableError), wait=wait_fixed(backoff), stop=stop_after_delay(15), reraise=True
    )


def print_json(content: object) -> None:
    """Print what a program is to read."""
    print(json.dumps(content, indent=2, sort_keys=True))


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
