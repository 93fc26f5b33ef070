"""The tool ``watch``: prints the owners, offsets, lag and rates of a group at regular intervals."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from zkconsumer.broker.log_offsets import LogOffsets
from zkconsumer.log_ends import LATEST
from zkconsumer.message import TopicPartition
from zkconsumer.offsets.access import Access
from zkconsumer.offsets.coordinator import GroupCoordinator
from zkconsumer.tools import common, group_state, output, terminal
from zkconsumer.tools.arguments import ToolParser
from zkconsumer.tools.group_state import GroupState
from zkconsumer.zookeeper.registry import GroupPaths

_COLUMNS = ("TOPIC", "PARTITION", "OFFSET", "LOG-END", "LAG", "CONSUMED/S", "PRODUCED/S", "OWNER")


def add_options(parser: ToolParser) -> None:
    """Add the description, the options and the function that runs the tool."""
    parser.set_defaults(run=run)
    parser.describe("On a terminal, one table is updated in place. A file or pipe receives one table per interval.")
    common.add_group(parser)
    parser.add_argument(
        "--interval", type=common.positive, default=2, metavar="SECONDS", help="refresh interval (default: %(default)s)"
    )
    parser.add_argument(
        "--count",
        type=common.positive,
        metavar="N",
        help="number of tables to print before exiting (default: run until interrupted)",
    )
    common.add_access(parser)
    common.add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print tables until ``--count`` is reached or the tool is stopped, and return the exit code."""
    with common.access(common.read_config(options, options.zookeeper, options.group)) as access:
        _watch(options, access)
    return 0


@dataclass(frozen=True, slots=True)
class _Sample:
    """The offsets of a group at one point in time.

    Attributes:
        time_s: ``time.monotonic()`` when the sample was taken.
        state: state of the group.
        partitions: partitions of the group's topics.
        offsets: committed offsets.
        ends: end offsets.
    """

    time_s: float
    state: GroupState
    partitions: Sequence[TopicPartition]
    offsets: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]

    def rows(self, previous: _Sample | None) -> list[tuple[Any, ...]]:
        """Return one row per partition, with rates if there is a previous sample."""
        return [self._row(partition, previous) for partition in self.partitions]

    def _row(self, partition: TopicPartition, previous: _Sample | None) -> tuple[Any, ...]:
        offset, end = self.offsets.get(partition), self.ends.get(partition)
        consumed = produced = None
        if previous is not None:
            duration_s = self.time_s - previous.time_s
            consumed = _rate(offset, previous.offsets.get(partition), duration_s)
            produced = _rate(end, previous.ends.get(partition), duration_s)
        lag = None if offset is None or end is None else end - offset
        return (*partition, offset, end, lag, consumed, produced, self.state.owners.get(partition))


def _rate(current: int | None, previous: int | None, duration_s: float) -> int | None:
    return None if current is None or previous is None else round((current - previous) / duration_s)


def _watch(options: argparse.Namespace, access: Access) -> None:
    logs, coordinator = access.logs(), access.coordinator()
    live = _live() if not options.json else None
    previous: _Sample | None = None
    with live if live is not None else contextlib.nullcontext():
        for number in itertools.count(1):
            sample = _sample(options.group, access, logs, coordinator)
            _show(
                options, sample, sample.rows(previous), live, exists=group_state.exists(access.session, options.group)
            )
            if number == options.count or output.is_closed():
                return
            previous = sample
            time.sleep(max(0.0, sample.time_s + options.interval - time.monotonic()))


def _sample(group: str, access: Access, logs: LogOffsets, coordinator: GroupCoordinator) -> _Sample:
    time_s = time.monotonic()
    state = group_state.read(access.session, group)
    # The topic znodes below ``owners`` remain after the members stop, even if no offsets were committed.
    owned = access.session.znodes.children(f"{GroupPaths(group).root}/owners") or []
    partitions = group_state.list_partitions(access.cluster, [*state.topics, *owned])
    ends, _ = group_state.log_offsets(logs, partitions, LATEST)
    in_kafka, _ = group_state.in_kafka(coordinator, partitions)
    offsets = group_state.furthest(state, partitions, in_kafka)
    return _Sample(time_s, state, partitions, offsets, ends)


def _show(
    options: argparse.Namespace, sample: _Sample, rows: Sequence[tuple[Any, ...]], live: Any, *, exists: bool
) -> None:
    members = sample.state.sessions
    if options.json:
        found = [
            common.partition_json(
                TopicPartition(*names), offset, end, owner, consumedPerSecond=read, producedPerSecond=new
            )
            for *names, offset, end, _, read, new, owner in rows
        ]
        output.print_json({"group": options.group, "members": sorted(members), "partitions": found})
    elif live is not None:
        texts = [[output.cell(value) for value in row] for row in rows]
        title = output.printable(_title(sample.state, rows, exists=exists))
        table = terminal.create_table(_COLUMNS, texts, live.console.width, title)
        with output.writing():
            live.update(table, refresh=True)
    else:
        output.echo(_title(sample.state, rows, exists=exists))
        output.print_table(_COLUMNS, rows)
    output.flush()


def _title(state: GroupState, rows: Sequence[tuple[Any, ...]], *, exists: bool) -> str:
    if not exists:
        return f"group {state.group}: the group does not exist"
    lags = [row[4] for row in rows if row[4] is not None]
    title = f"group {state.group}: {state.members_text}, {output.count(len(rows), 'partition')}, lag "
    title += f"{sum(lags):,}" if lags else "unknown"
    if lags and len(lags) < len(rows):
        title += f", excluding {output.count(len(rows) - len(lags), 'partition')} with unknown lag"
    return title


def _live() -> Any:
    """Return a ``rich`` live display, or None if the output is not a terminal or the ``cli`` extra is not installed."""
    console = terminal.create_console() if output.is_terminal() else None
    if console is None:
        return None
    from rich.live import Live

    return Live(console=console, auto_refresh=False, screen=False)
