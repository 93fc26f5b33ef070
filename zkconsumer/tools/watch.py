"""``zkconsumer watch``: a live table of a group: owners, offsets, lag and rates.

A terminal is drawn anew; a file or a pipe gets a table for each look.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from zkconsumer.broker import protocol
from zkconsumer.message import TopicPartition
from zkconsumer.tools import common, group_state
from zkconsumer.tools.common import Access

_COLUMNS = ("TOPIC", "PARTITION", "OFFSET", "LOG-END", "LAG", "CONSUMED/S", "PRODUCED/S", "OWNER")


def add_to(tools: Any) -> None:
    """Add the sub-command."""
    assert __doc__
    parser = common.add_tool(tools, "watch", run, __doc__)
    parser.add_argument("--zookeeper", default=common.LOCAL, metavar="HOSTS", help="default: %(default)s")
    parser.add_argument("--group", required=True)
    parser.add_argument("--interval", type=common.positive, default=2, metavar="SECONDS", help="default: %(default)s")
    parser.add_argument("--count", type=common.positive, metavar="N", help="looks; default: until Ctrl-C")
    common.add_access(parser)
    common.add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Look again and again; returns the exit code."""
    with common.access(common.config_of(options, options.zookeeper)) as access:
        try:
            _watch(options, access)
        except KeyboardInterrupt:
            pass  # the usual way to end it
    return 0


@dataclass(frozen=True, slots=True)
class _Look:
    """When it was looked, and what was seen."""

    at: float
    offsets: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]


def _watch(options: argparse.Namespace, access: Access) -> None:
    logs, coordinator = access.logs(), access.coordinator(options.group)
    fetch = partial(common.retrying(), coordinator.fetch_offsets)
    live = _live() if not options.json else None
    before: _Look | None = None
    looks = 0
    with live if live is not None else contextlib.nullcontext():
        while True:
            looked_at = time.monotonic()
            state = group_state.read(access.session, options.group)
            partitions = group_state.partitions_of(access.cluster, state.topics)
            ends, _ = group_state.log_offsets(logs, partitions, protocol.LATEST)
            offsets, _ = group_state.furthest(state, partitions, fetch)
            look = _Look(looked_at, offsets, ends)
            rows = [_row(partition, state.owners.get(partition), look, before) for partition in partitions]
            before = look
            lag = sum(row[4] or 0 for row in rows)
            title = f"group {options.group}: {len(state.sessions)} members, {len(rows)} partitions, lag {lag:,}"
            if not group_state.exists(access.session, options.group):
                title += " (there is no such group)"
            if options.json:
                named = [dict(zip(map(str.lower, _COLUMNS), row, strict=True)) for row in rows]
                common.print_json_line({"group": options.group, "members": sorted(state.sessions), "partitions": named})
            elif live is not None:
                table = common.rich_table(_COLUMNS, [["-" if c is None else str(c) for c in row] for row in rows])
                table.title = title
                live.update(table, refresh=True)
            else:
                print(title)
                common.print_table(_COLUMNS, rows)
            sys.stdout.flush()
            looks += 1
            if looks == options.count:
                return
            time.sleep(max(0.0, looked_at + options.interval - time.monotonic()))


def _row(partition: TopicPartition, owner: str | None, look: _Look, before: _Look | None) -> tuple[Any, ...]:
    offset, end = look.offsets.get(partition), look.ends.get(partition)
    rates: list[int | None] = [None, None]
    if before is not None:
        seconds = look.at - before.at
        for index, (current, old) in enumerate(
            ((offset, before.offsets.get(partition)), (end, before.ends.get(partition)))
        ):
            if current is not None and old is not None:
                rates[index] = round((current - old) / seconds)
    lag = None if offset is None or end is None else end - offset
    return (*partition, offset, end, lag, *rates, owner)


def _live() -> Any:
    if not sys.stdout.isatty() or common.rich_table((), ()) is None:
        return None
    from rich.live import Live

    return Live(auto_refresh=False, screen=False)
