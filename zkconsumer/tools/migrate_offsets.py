"""``zkconsumer migrate-offsets``: copy a group's offsets between ZooKeeper, Kafka, Spark checkpoints and JSON.

PLACE is one of

  zookeeper        the group's offsets in ZooKeeper
  kafka            the group's offsets in Kafka
  checkpoint:DIR   the checkpoint of a Spark query, of this source or of Spark's own; written, it is a new one
  json:FILE        as startingOffsets has them, {"topic":{"0":23}}; - for standard input or output

Without ``--execute`` it only prints what it would do. A group with live members is refused unless ``--force`` is
given: they would go on writing where they write. Running it again copies only what differs, so it can be interrupted.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zkconsumer.errors import ConfigurationError
from zkconsumer.message import TopicPartition
from zkconsumer.offsets.kafka import KafkaOffsets
from zkconsumer.offsets.zookeeper import ZooKeeperOffsets
from zkconsumer.spark import checkpoint
from zkconsumer.tools import common, group_state

_COLUMNS = ("TOPIC", "PARTITION", "FROM", "TO", "ACTION")

Offsets = Mapping[TopicPartition, int]


def add_to(tools: Any) -> None:
    """Add the sub-command."""
    assert __doc__
    parser = common.add_tool(tools, "migrate-offsets", run, __doc__)
    parser.add_argument("--zookeeper", default=common.LOCAL, metavar="HOSTS", help="default: %(default)s")
    parser.add_argument("--group", required=True)
    parser.add_argument(
        "--from",
        dest="source",
        type=_place,
        metavar="PLACE",
        help="zookeeper where it goes to kafka, and else kafka, by default",
    )
    parser.add_argument("--to", type=_place, required=True, metavar="PLACE")
    parser.add_argument(
        "--checkpoint-of", choices=checkpoint.KINDS, default=checkpoint.KINDS[0], help="whose checkpoint is made"
    )
    parser.add_argument("--execute", action="store_true", help="do it; without this it is only shown")
    parser.add_argument("--force", action="store_true", help="also while members of the group run")
    parser.add_argument(
        "--allow-back", action="store_true", help="also lower offsets that are further on where they are copied to"
    )
    common.add_access(parser)
    common.add_json(parser)


def _place(text: str) -> tuple[str, str]:
    kind, colon, where = text.partition(":")
    if kind in ("zookeeper", "kafka") and not colon:
        return kind, ""
    if kind in ("checkpoint", "json") and where:
        return kind, where
    raise argparse.ArgumentTypeError(f"{text!r} is not zookeeper, kafka, checkpoint:DIR or json:FILE")


def run(options: argparse.Namespace) -> int:
    """Show or do it; returns the exit code."""
    to, where = options.to
    if options.source is None:
        options.source = ("zookeeper", "") if to == "kafka" else ("kafka", "")
    if options.source == options.to:
        raise ConfigurationError(f"--from and --to are the same: {to}")
    with contextlib.ExitStack() as closing:
        group = _Group(options, closing)
        source = _read(options, group)
        target = group.stored(to, source) if to in _IN_CLUSTER else dict.fromkeys(source, -1)
        actions = {p: _action(offset, target[p], options.allow_back) for p, offset in sorted(source.items())}
        wanted = {p: source[p] for p, action in actions.items() if action in ("copy", "move back")}
        if options.execute and wanted:
            if to in _IN_CLUSTER:
                group.store(to, wanted, options.allow_back)
            elif to == "checkpoint":
                checkpoint.create(Path(where), wanted, kind=options.checkpoint_of, group=options.group)
            elif where != "-":
                Path(where).write_text(json.dumps(checkpoint.as_json(wanted)) + "\n")
    if options.to == ("json", "-"):
        print(json.dumps(checkpoint.as_json(wanted)))
    else:
        _print(options, source, target, actions)
    return 1 if "keep, it is further on" in actions.values() else 0


_IN_CLUSTER = ("zookeeper", "kafka")


class _Group:
    """The group's offsets in ZooKeeper and Kafka; connected to where they are asked for."""

    def __init__(self, options: argparse.Namespace, closing: contextlib.ExitStack) -> None:
        self._name = options.group
        if not {options.source[0], options.to[0]} & set(_IN_CLUSTER):
            return
        access = self._access = closing.enter_context(common.access(common.config_of(options, options.zookeeper)))
        if options.source[0] == "zookeeper":
            group_state.check_exists(access.session, options.group)
        self._state = state = group_state.read(access.session, options.group)
        if state.sessions and not options.force and options.to[0] in _IN_CLUSTER:
            raise ConfigurationError(
                f"group {options.group!r} has live members: {', '.join(sorted(state.sessions))}. Stop them first, "
                "switch them to dual.commit.enabled=true instead, or give --force"
            )
        self._coordinator = access.coordinator(options.group)
        self._kafka = KafkaOffsets(self._coordinator)
        self._zookeeper = ZooKeeperOffsets(access.session, options.group)

    def in_zookeeper(self) -> dict[TopicPartition, int]:
        """Return what ZooKeeper has of partitions that exist."""
        state = self._state
        unreadable = [error for path, error in state.unreadable.items() if "/offsets/" in path]
        if unreadable:
            raise ConfigurationError(f"not all offsets can be read, nothing was copied: {'; '.join(unreadable)}")
        existing = set(group_state.partitions_of(self._access.cluster, state.topics))  # Kafka keeps none of others
        for partition in sorted(state.offsets.keys() - existing):
            print(f"left out: partition {partition} does not exist (any more)", file=sys.stderr)
        return {p: offset for p, offset in state.offsets.items() if offset >= 0 and p in existing}

    def in_kafka(self) -> dict[TopicPartition, int]:
        """Return what Kafka has."""
        found = common.retrying()(self._coordinator.fetch_offsets, None)
        return {p: offset for p, offset in found.items() if offset >= 0}

    def stored(self, where: str, partitions: Offsets) -> dict[TopicPartition, int]:
        """Return what is stored of some partitions, -1 for nothing."""
        if where == "zookeeper":
            return self._zookeeper.fetch(partitions)
        return dict(common.retrying()(self._kafka.fetch, partitions))

    def store(self, where: str, offsets: Offsets, allow_back: bool) -> None:
        """Store some."""
        (self._zookeeper if where == "zookeeper" else self._kafka).commit(offsets, may_go_back=allow_back)


def _read(options: argparse.Namespace, group: _Group) -> dict[TopicPartition, int]:
    kind, where = options.source
    if kind == "zookeeper":
        return group.in_zookeeper()
    if kind == "kafka":
        return group.in_kafka()
    if kind == "checkpoint":
        return checkpoint.read(Path(where))
    try:
        return checkpoint.from_json(json.loads(sys.stdin.read() if where == "-" else Path(where).read_text()))
    except (OSError, ValueError, AttributeError) as error:
        raise ConfigurationError(f'{where}: offsets such as {{"topic":{{"0":23}}}} are expected: {error}') from error


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
    to = ":".join(filter(None, options.to))
    if options.json:
        named = [dict(zip(map(str.lower, _COLUMNS), row, strict=True)) for row in rows]
        common.print_json({"group": options.group, "to": to, "executed": options.execute, "offsets": named})
        return
    common.print_table(_COLUMNS, rows)
    copied = sum(action in ("copy", "move back") for action in actions.values())
    if not rows:
        print(f"group {options.group!r} has no offsets to copy")
    elif options.execute:
        print(f"{copied} of {len(rows)} offsets copied to {to}")
    else:
        print(f"{copied} of {len(rows)} offsets would be copied to {to}; --execute does it")
