"""The tools ``export-offsets``, ``import-offsets`` and ``update-offsets`` for the offsets in ZooKeeper.

Source: Kafka 0.8.2 kafka.tools.ExportZkOffsets, ImportZkOffsets, UpdateOffsetsInZK. Deliberate differences: an import
writes only offset znodes (Kafka's tool writes any path). Before an import writes the first offset, it validates all
lines and checks that the partitions exist. ``--force`` is required if a group has live members. An export omits offset
znodes whose content is empty, negative or malformed.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import ConfigurationError
from zkconsumer.excerpt import excerpt
from zkconsumer.log_ends import EARLIEST, LATEST
from zkconsumer.message import TopicPartition
from zkconsumer.metadata.base import Cluster
from zkconsumer.offsets.zookeeper import ZooKeeperOffsets
from zkconsumer.tools import common, group_state, output, terminal
from zkconsumer.tools.arguments import ToolParser
from zkconsumer.tools.common import ToolError
from zkconsumer.zookeeper.registry import OFFSET_MAX, GroupPaths, parse_partition_number
from zkconsumer.zookeeper.session import ZooKeeperSession

_LINE = re.compile(
    r"/consumers/(?P<group>[^/]+)/offsets/(?P<topic>[^/]+)/(?P<partition>[0-9]+):(?P<offset>[0-9]{1,19})"
)


def add_export(parser: ToolParser) -> None:
    """Add the options of ``export-offsets``."""
    parser.set_defaults(run=run_export)
    common.add_zookeeper(parser, "--zkconnect")
    parser.add_argument("--group", action="append", help="consumer group; can be repeated (default: all groups)")
    parser.add_argument("--output-file", required=True, type=Path, metavar="FILE", help="file to write")
    common.add_access(parser, brokers=False)
    common.add_json(parser)


def add_import(parser: ToolParser) -> None:
    """Add the options of ``import-offsets``."""
    parser.set_defaults(run=run_import)
    common.add_zookeeper(parser, "--zkconnect")
    parser.add_argument("--input-file", required=True, type=Path, metavar="FILE", help="file written by export-offsets")
    parser.add_argument("--force", action="store_true", help="import the offsets even if a group has live members")
    common.add_access(parser)
    common.add_json(parser)


def add_update(parser: ToolParser) -> None:
    """Add the options of ``update-offsets``."""
    parser.set_defaults(run=run_update)
    parser.add_argument("where", choices=("earliest", "latest"), help="offset to set")
    parser.add_argument(
        "config", metavar="consumer.properties", help="properties file with zookeeper.connect and group.id"
    )
    parser.add_argument("topic", help="topic whose offsets are set")
    common.add_help_properties(parser)
    parser.add_argument(
        "--zookeeper",
        metavar="HOSTS",
        help=f"ZooKeeper servers (default: zookeeper.connect in the properties file, or {common.ZOOKEEPER_VARIABLE})",
    )
    parser.add_argument("--force", action="store_true", help="set the offsets even if the group has live members")
    common.add_json(parser)


def run_export(options: argparse.Namespace) -> int:
    """Write one line per partition, ``/consumers/GROUP/offsets/TOPIC/PARTITION:OFFSET``, and return the exit code."""
    with common.access(common.read_config(options, options.zookeeper)) as access:
        session = access.session
        lines, skipped, counts = [], [], {}
        for group in terminal.count_steps("groups", options.group or group_state.groups(session)):
            group_state.check_exists(session, group)
            state = group_state.read(session, group)
            for path, error in state.unreadable.items():
                if "/offsets/" in path:
                    skipped.append(error)
                    output.note(f"skipped: {error}")
            paths = GroupPaths(group)
            found = {partition: offset for partition, offset in sorted(state.offsets.items()) if offset >= 0}
            for partition in sorted(state.offsets.keys() - found.keys()):
                skipped.append(f"{paths.offset(partition)} contains no offset")
                output.note(f"skipped: {skipped[-1]}")
            counts[group] = len(found)
            lines += [f"{paths.offset(partition)}:{offset}\n" for partition, offset in found.items()]
    with common.replace_file(options.output_file) as file:
        file.write_text("".join(lines))
    output.report(options, {"file": str(options.output_file), "offsets": counts, "skipped": skipped}, ())
    return 0


def run_import(options: argparse.Namespace) -> int:
    """Import the offsets in a file, up to its first empty line, and return the exit code."""
    offsets_by_group = _read(options.input_file)
    with common.access(common.read_config(options, options.zookeeper)) as access:
        session = access.session
        _check_partitions(access.cluster, options.input_file, offsets_by_group)
        _check_idle(session, list(offsets_by_group), options.force)
        for group, offsets in offsets_by_group.items():
            ZooKeeperOffsets(session, group).commit(offsets, allow_lower=True)
    output.report(options, {"offsets": {group: len(offsets) for group, offsets in offsets_by_group.items()}}, ())
    count = sum(map(len, offsets_by_group.values()))
    groups = output.count(len(offsets_by_group), "group")
    output.note(f"imported {output.count(count, 'offset')} of {groups}")
    return 0


def run_update(options: argparse.Namespace) -> int:
    """Set the group's offsets for a topic to the earliest or latest offsets, and return the exit code."""
    address = {"zookeeper.connect": os.environ[name]} if os.environ.get(name := common.ZOOKEEPER_VARIABLE) else {}
    given = {"zookeeper.connect": options.zookeeper} if options.zookeeper else {}
    config = ConsumerConfig.from_dict({**address, **common.read_consumer_properties(options.config), **given})
    timestamp = EARLIEST if options.where == "earliest" else LATEST
    with common.access(config) as access:
        partitions = group_state.list_partitions(access.cluster, [options.topic])
        if not partitions:
            raise ToolError(f"topic {options.topic!r} does not exist")
        _check_idle(access.session, [config.group_id], options.force)
        offsets = access.logs(config.socket_timeout_s).offsets(partitions, timestamp)
        if config.offsets_storage == "kafka":
            common.retrying()(access.coordinator().fetch_offsets, [])
        dual_commit = config.dual_commit_enabled
        committed = access.offsets(config.offsets_storage, dual_commit=dual_commit, topic_ids=dict)
        committed.commit(offsets, allow_lower=True)
    rows = [{"topic": p.topic, "partition": p.partition, "offset": offset} for p, offset in sorted(offsets.items())]
    lines = [f"updating partition {row['partition']} with new offset: {row['offset']}" for row in rows]
    lines.append(f"updated the offset for {len(offsets)} partitions")
    output.report(options, {"group": config.group_id, "partitions": rows}, lines)
    return 0


def _read(path: Path) -> dict[str, dict[TopicPartition, int]]:
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeError) as error:
        raise ConfigurationError(f"cannot read {str(path)!r}: {error}") from error
    offsets: dict[str, dict[TopicPartition, int]] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            break  # Kafka 0.8.2 also stops at the first empty line
        parts = _LINE.fullmatch(line.strip())
        partition_number = None if parts is None else parse_partition_number(parts["partition"])
        if parts is None or partition_number is None or int(parts["offset"]) > OFFSET_MAX:
            raise ToolError(
                f"{path}:{number}: must be /consumers/GROUP/offsets/TOPIC/PARTITION:OFFSET with an offset between 0 "
                f"and {OFFSET_MAX}, got {excerpt(line)}; no offsets were written"
            )
        partition = TopicPartition(parts["topic"], partition_number)
        offsets.setdefault(parts["group"], {})[partition] = int(parts["offset"])
    return offsets


def _check_partitions(cluster: Cluster, path: Path, offsets_by_group: Mapping[str, Iterable[TopicPartition]]) -> None:
    """Raise ``ToolError`` if the file at ``path`` contains offsets for a partition that does not exist."""
    wanted = {partition for offsets in offsets_by_group.values() for partition in offsets}
    missing = sorted(wanted - set(group_state.list_partitions(cluster, {partition.topic for partition in wanted})))
    if missing:
        common.check_brokers(cluster)
        raise ToolError(
            f"{path} contains offsets for {output.count(len(missing), 'nonexistent partition')} "
            f"({'first: ' if len(missing) > 1 else ''}{missing[0]}); no offsets were written; remove the lines for "
            "nonexistent partitions from the file"
        )


def _check_idle(session: ZooKeeperSession, groups: list[str], force: bool) -> None:
    for group in () if force else groups:
        if users := group_state.list_users(session, group):
            raise ToolError(
                f"group {group!r} has live members: {', '.join(users)}; stop them first, because they would ignore "
                "and overwrite the new offsets (--force skips this check)"
            )
