"""``zkconsumer migrate-offsets``: copy a group's offsets from ZooKeeper to Kafka, or back.

Without ``--execute`` it only prints what it would do. A group with live members is refused unless ``--force`` is
given: they would go on writing where they write. Running it again copies only what differs, so it can be interrupted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import Any

from zkconsumer.errors import ConfigurationError
from zkconsumer.message import TopicPartition
from zkconsumer.offsets import KafkaOffsets, Offsets, ZooKeeperOffsets
from zkconsumer.tools import common, group_state

_COLUMNS = ("TOPIC", "PARTITION", "FROM", "TO", "ACTION")


def add_to(tools: Any) -> None:
    """Add the sub-command."""
    assert __doc__
    parser = common.add_tool(tools, "migrate-offsets", run, __doc__)
    parser.add_argument("--zookeeper", default=common.LOCAL, metavar="HOSTS", help="default: %(default)s")
    parser.add_argument("--group", required=True)
    parser.add_argument("--to", choices=("kafka", "zookeeper"), required=True)
    parser.add_argument("--execute", action="store_true", help="do it; without this it is only shown")
    parser.add_argument("--force", action="store_true", help="also while members of the group run")
    parser.add_argument(
        "--allow-back", action="store_true", help="also lower offsets that are further on where they are copied to"
    )
    common.add_access(parser)
    common.add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Show or do it; returns the exit code."""
    with common.access(common.config_of(options, options.zookeeper)) as access:
        if options.to == "kafka":
            group_state.check_exists(access.session, options.group)
        state = group_state.read(access.session, options.group)
        unreadable = [error for path, error in state.unreadable.items() if "/offsets/" in path]
        if unreadable and options.to == "kafka":
            raise ConfigurationError(f"not all offsets can be read, nothing was copied: {'; '.join(unreadable)}")
        if state.sessions and not options.force:
            raise ConfigurationError(
                f"group {options.group!r} has live members: {', '.join(sorted(state.sessions))}. Stop them first, "
                "switch them to dual.commit.enabled=true instead, or give --force"
            )
        coordinator = access.coordinator(options.group)
        kafka, zookeeper = KafkaOffsets(coordinator), ZooKeeperOffsets(access.session, options.group)
        existing = set(group_state.partitions_of(access.cluster, state.topics))  # Kafka keeps none of others
        in_zookeeper = {p: offset for p, offset in state.offsets.items() if offset >= 0 and p in existing}
        for partition in sorted(state.offsets.keys() - existing) if options.to == "kafka" else ():
            print(f"left out: partition {partition} does not exist (any more)", file=sys.stderr)
        if options.to == "kafka":
            source, target = in_zookeeper, common.patiently()(kafka.fetch, in_zookeeper)
        else:
            in_kafka = common.patiently()(coordinator.fetch_offsets, None)
            source = {p: offset for p, offset in in_kafka.items() if offset >= 0}
            target = zookeeper.fetch(source)
        actions = {p: _action(offset, target[p], options.allow_back) for p, offset in sorted(source.items())}
        wanted = {p: source[p] for p, action in actions.items() if action in ("copy", "move back")}
        if options.execute and wanted:
            writer: Offsets = kafka if options.to == "kafka" else zookeeper
            writer.commit(wanted, may_go_back=options.allow_back)
    _print(options, source, target, actions)
    return 1 if "keep, it is further on" in actions.values() else 0


def _action(offset: int, stored: int, allow_back: bool) -> str:
    if offset == stored:
        return "equal"
    if offset > stored:
        return "copy"
    return "move back" if allow_back else "keep, it is further on"


def _print(
    options: argparse.Namespace,
    source: Mapping[TopicPartition, int],
    target: Mapping[TopicPartition, int],
    actions: Mapping[TopicPartition, str],
) -> None:
    rows = [(*p, source[p], target[p] if target[p] >= 0 else None, action) for p, action in actions.items()]
    if options.json:
        named = [dict(zip(map(str.lower, _COLUMNS), row, strict=True)) for row in rows]
        common.print_json({"group": options.group, "to": options.to, "executed": options.execute, "offsets": named})
        return
    common.print_table(_COLUMNS, rows)
    copied = sum(action in ("copy", "move back") for action in actions.values())
    if not rows:
        print(f"group {options.group!r} has no offsets to copy")
    elif options.execute:
        print(f"{copied} of {len(rows)} offsets copied to {options.to}")
    else:
        print(f"{copied} of {len(rows)} offsets would be copied to {options.to}; --execute does it")
