"""The tool ``migrate-offsets``: copies a group's offsets between ZooKeeper, Kafka, Spark checkpoints and JSON."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Collection, Mapping
from pathlib import Path

from zkconsumer.errors import ConfigurationError
from zkconsumer.message import TopicPartition
from zkconsumer.offsets.base import OF_DELETED_TOPIC
from zkconsumer.spark import checkpoint
from zkconsumer.tools import common, group_state, output, terminal
from zkconsumer.tools.arguments import ToolParser
from zkconsumer.tools.common import ToolError

_COLUMNS = ("TOPIC", "PARTITION", "FROM", "TO", "ACTION")

_DETAILS = """\
PLACE is one of

  zookeeper        the group's offsets in ZooKeeper
  kafka            the group's offsets in Kafka
  checkpoint:DIR   the checkpoint of a query; as a target, a new directory
  json:FILE        offsets such as {"topic":{"0":23}}; - for stdin or stdout

A checkpoint can belong to a query with zkconsumer or with Spark's Kafka source. The JSON has the format of
the option startingOffsets.

Without --execute, the tool only prints what it would do. A group with live members requires --force, because its
members would overwrite the copied offsets. The tool can be interrupted and run again: it copies only offsets that
differ. The exit code is 1 if the target has higher offsets, which are kept unless --allow-back is set.
"""

#: Maximum number of offsets per commit.
_PART = 500

_HIGHER = "skip, target is higher"
_IN_CLUSTER = ("zookeeper", "kafka")


def add_options(parser: ToolParser) -> None:
    """Add the description, the options and the function that runs the tool."""
    parser.set_defaults(run=run)
    parser.describe(_DETAILS)
    common.add_group(parser)
    parser.add_argument(
        "--from",
        dest="source",
        type=_place,
        metavar="PLACE",
        help="where to read offsets (default: zookeeper if --to is kafka, otherwise kafka)",
    )
    parser.add_argument("--to", type=_place, required=True, metavar="PLACE", help="where to write offsets")
    parser.add_argument(
        "--checkpoint-of",
        choices=("zkconsumer", "kafka"),
        default="zkconsumer",
        help="Spark data source for which the checkpoint is created (default: %(default)s)",
    )
    parser.add_argument("--execute", action="store_true", help="copy the offsets; without this option, only print them")
    parser.add_argument("--force", action="store_true", help="copy the offsets even if the group has live members")
    parser.add_argument("--allow-back", action="store_true", help="overwrite higher offsets in the target")
    common.add_access(parser)
    common.add_json(parser)


def _place(text: str) -> tuple[str, str]:
    kind, colon, where = text.partition(":")
    if kind in ("zookeeper", "kafka") and not colon:
        return kind, ""
    if kind in ("checkpoint", "json") and where:
        return kind, where
    raise argparse.ArgumentTypeError(f"must be zookeeper, kafka, checkpoint:DIR or json:FILE, got {text!r}")


def run(options: argparse.Namespace) -> int:
    """Print the offsets to copy, copy them if ``--execute`` is given, and return the exit code."""
    to, where = options.to
    if options.source is None:
        options.source = ("zookeeper", "") if to == "kafka" else ("kafka", "")
    if options.source == options.to:
        raise ConfigurationError(f"--from and --to must differ, got {':'.join(filter(None, options.to))!r} for both")
    with contextlib.ExitStack() as closing:
        group = _Group(options, closing)
        source = _read(options, group)
        target = group.fetch_committed(to, source) if to in _IN_CLUSTER else dict.fromkeys(source, -1)
        actions = {p: _action(offset, target[p], options.allow_back) for p, offset in sorted(source.items())}
        selected = {p: source[p] for p, action in actions.items() if action in ("copy", "move back")}
        if options.execute and selected:
            if to in _IN_CLUSTER:
                group.commit(to, selected, options.allow_back)
            elif to == "checkpoint":
                _create_checkpoint(options, Path(where), selected)
            elif where != "-":
                with common.replace_file(Path(where)) as file:
                    file.write_text(json.dumps(checkpoint.as_json(selected)) + "\n")
    if options.to == ("json", "-"):
        output.echo(json.dumps(checkpoint.as_json(selected)))
    else:
        _print(options, source, target, actions)
    return 1 if _HIGHER in actions.values() else 0


class _Group:
    """A group's offsets in ZooKeeper and Kafka. Connects only if either storage is the source or target of the copy."""

    def __init__(self, options: argparse.Namespace, closing: contextlib.ExitStack) -> None:
        self._name = options.group
        if not {options.source[0], options.to[0]} & set(_IN_CLUSTER):
            return
        access = self._access = closing.enter_context(
            common.access(common.read_config(options, options.zookeeper, options.group))
        )
        if options.source[0] == "zookeeper":
            group_state.check_exists(access.session, options.group)
        self._state = state = group_state.read(access.session, options.group)
        if state.users and not options.force and options.to[0] in _IN_CLUSTER:
            raise ToolError(
                f"group {options.group!r} has live members: {', '.join(state.users)}; stop them before "
                "migrating (--force skips this check)"
            )
        self._kafka = access.offsets("kafka")
        self._zookeeper = access.offsets("zookeeper")

    def in_zookeeper(self) -> dict[TopicPartition, int]:
        """Return the valid offsets in ZooKeeper; see ``_valid``."""
        state = self._state
        unreadable = [error for path, error in state.unreadable.items() if "/offsets/" in path]
        if unreadable:
            raise ToolError(
                f"offsets of group {self._name!r} could not be read, so no offsets were copied: {'; '.join(unreadable)}"
            )
        return self._valid("zookeeper", state.offsets)

    def in_kafka(self) -> dict[TopicPartition, int]:
        """Return the valid offsets in Kafka; see ``_valid``."""
        return self._valid("kafka", common.retrying()(self._access.coordinator().fetch_offsets, None))

    def _valid(self, storage: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the valid offsets, and print the partitions that are skipped.

        An offset is valid if its partition exists and it was not committed for a deleted topic of the same name.
        """
        # Kafka rejects offsets of partitions that do not exist.
        existing = set(group_state.list_partitions(self._access.cluster, {partition.topic for partition in partitions}))
        offsets = self.fetch_committed(storage, sorted(existing.intersection(partitions)))
        skipped = dict.fromkeys(sorted(set(partitions) - existing), "does not exist")
        of_deleted = [partition for partition, offset in offsets.items() if offset == OF_DELETED_TOPIC]
        skipped |= dict.fromkeys(of_deleted, "has the offset of a deleted topic of the same name")
        for partition, reason in skipped.items():
            output.note(f"skipped: partition {partition} {reason}")
        return {partition: offset for partition, offset in offsets.items() if offset >= 0}

    def fetch_committed(self, storage: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the committed offsets in ``zookeeper`` or ``kafka``; negative if a partition has no valid offset."""
        self._access.cluster.partitions(sorted({partition.topic for partition in partitions}))  # loads the topic ids
        if storage == "zookeeper":
            return self._zookeeper.fetch(partitions)
        return dict(common.retrying()(self._kafka.fetch, partitions))

    def commit(self, storage: str, offsets: Mapping[TopicPartition, int], allow_back: bool) -> None:
        """Commit offsets to ``zookeeper`` or ``kafka``; on a terminal, show the progress."""
        target = self._zookeeper if storage == "zookeeper" else self._kafka
        partitions = list(offsets)
        parts = [partitions[first : first + _PART] for first in range(0, len(partitions), _PART)]
        for part in terminal.count_steps(f"parts of up to {_PART} offsets", parts):
            target.commit({partition: offsets[partition] for partition in part}, allow_lower=allow_back)


def _create_checkpoint(options: argparse.Namespace, directory: Path, offsets: Mapping[TopicPartition, int]) -> None:
    try:
        checkpoint.create(directory, offsets, kind=options.checkpoint_of, group=options.group)
    except OSError as error:
        raise ToolError(f"cannot write the checkpoint {str(directory)!r}: {error}") from error


def _read(options: argparse.Namespace, group: _Group) -> dict[TopicPartition, int]:
    kind, where = options.source
    if kind == "zookeeper":
        return group.in_zookeeper()
    if kind == "kafka":
        return group.in_kafka()
    if kind == "checkpoint":
        return dict(checkpoint.read(Path(where)))
    try:
        return dict(checkpoint.parse(sys.stdin.read() if where == "-" else Path(where).read_text()))
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f'could not read offsets of the form {{"topic":{{"0":23}}}} from json:{where}: {error}'
        ) from error


def _action(offset: int, committed: int, allow_back: bool) -> str:
    if offset == committed:
        return "equal"
    if offset > committed:
        return "copy"
    return "move back" if allow_back else _HIGHER


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
        output.print_json({"group": options.group, "to": to, "executed": options.execute, "partitions": named})
        return
    output.print_table(_COLUMNS, rows)
    copied = sum(action in ("copy", "move back") for action in actions.values())
    if not rows:
        output.echo(f"group {options.group!r} has no offsets to copy")
    elif options.execute:
        output.echo(f"{copied} of {len(rows)} offsets copied to {to}")
    else:
        output.echo(f"{copied} of {len(rows)} offsets would be copied to {to}; use --execute to copy them")
