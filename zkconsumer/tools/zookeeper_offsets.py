"""``export-offsets``, ``import-offsets``, ``update-offsets``: a group's offset znodes, to a file, from it, or anew.

Source: Kafka 0.8.2 kafka.tools.ExportZkOffsets, ImportZkOffsets, UpdateOffsetsInZK. Different on purpose: an import
writes offsets only (the original writes whatever path a line names), all lines are checked before the first is
written, and groups with live members are refused unless ``--force`` is given.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any

from zkconsumer.broker import protocol
from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import ConfigurationError
from zkconsumer.message import TopicPartition
from zkconsumer.offsets.base import Offsets
from zkconsumer.offsets.dual import DualOffsets
from zkconsumer.offsets.kafka import KafkaOffsets
from zkconsumer.offsets.zookeeper import ZooKeeperOffsets
from zkconsumer.tools import common, group_state
from zkconsumer.tools.common import Access
from zkconsumer.zookeeper.registry import OFFSET_MAX, GroupPaths
from zkconsumer.zookeeper.session import ZooKeeperSession

_LINE = re.compile(r"/consumers/(?P<group>[^/]+)/offsets/(?P<topic>[^/]+)/(?P<partition>[0-9]+):(?P<offset>-?[0-9]+)")


def add_to(tools: Any) -> None:
    """Add the three sub-commands."""
    export = common.add_tool(tools, "export-offsets", run_export, "Write the offsets of groups to a file.")
    export.add_argument("--zkconnect", default=common.LOCAL, metavar="HOSTS", help="default: %(default)s")
    export.add_argument("--group", action="append", help="may be given more than once; default: all")
    export.add_argument("--output-file", required=True, type=Path, metavar="FILE")
    common.add_access(export, brokers=False)
    common.add_json(export)
    imports = common.add_tool(tools, "import-offsets", run_import, "Write the offsets in a file to ZooKeeper.")
    imports.add_argument("--zkconnect", default=common.LOCAL, metavar="HOSTS", help="default: %(default)s")
    imports.add_argument("--input-file", required=True, type=Path, metavar="FILE", help="what export-offsets wrote")
    imports.add_argument("--force", action="store_true", help="also while members of the group run")
    common.add_access(imports, brokers=False)
    common.add_json(imports)
    update = common.add_tool(tools, "update-offsets", run_update, "Set a group's offsets to an end of the log.")
    update.add_argument("where", choices=("earliest", "latest"))
    update.add_argument("config", metavar="consumer.properties", help="names ZooKeeper and the group")
    update.add_argument("topic")
    update.add_argument("--force", action="store_true", help="also while members of the group run")
    common.add_json(update)


def run_export(options: argparse.Namespace) -> int:
    """Write one line per partition: ``/consumers/group/offsets/topic/partition:offset``."""
    with common.access(common.config_of(options, options.zkconnect)) as access:
        session = access.session
        lines, left_out, counts = [], [], {}
        for group in options.group or group_state.groups(session):
            group_state.check_exists(session, group)
            state = group_state.read(session, group)
            for path, error in state.unreadable.items():
                if "/offsets/" in path:
                    left_out.append(error)
                    print(f"left out: {error}", file=sys.stderr)
            paths = GroupPaths(group)
            counts[group] = len(state.offsets)
            lines += [f"{paths.offset(partition)}:{offset}\n" for partition, offset in sorted(state.offsets.items())]
    try:
        options.output_file.write_text("".join(lines))
    except OSError as error:
        raise ConfigurationError(f"cannot write {str(options.output_file)!r}: {error.strerror}") from error
    if options.json:
        common.print_json({"file": str(options.output_file), "offsets": counts, "leftOut": left_out})
    return 0


def run_import(options: argparse.Namespace) -> int:
    """Write the offsets that a file names, up to its first empty line."""
    wanted = _read(options.input_file)
    with common.access(common.config_of(options, options.zkconnect)) as access:
        session = access.session
        _check_idle(session, list(wanted), options.force)
        for group, offsets in wanted.items():
            ZooKeeperOffsets(session, group).commit(offsets, may_go_back=True)
    if options.json:
        common.print_json({"offsets": {group: len(offsets) for group, offsets in wanted.items()}})
    print(f"wrote {sum(map(len, wanted.values()))} offsets of {len(wanted)} groups", file=sys.stderr)
    return 0


def run_update(options: argparse.Namespace) -> int:
    """Set the offset of each partition of a topic."""
    config = ConsumerConfig.from_properties(options.config)
    timestamp = protocol.EARLIEST if options.where == "earliest" else protocol.LATEST
    with common.access(config) as access:
        partitions = group_state.partitions_of(access.cluster, [options.topic])
        if not partitions:
            raise ConfigurationError(f"there is no topic {options.topic!r}")
        _check_idle(access.session, [config.group_id], options.force)
        offsets = access.logs(config.socket_timeout_ms / 1000).offsets(partitions, timestamp)
        _store_of(access, config).commit(offsets, may_go_back=True)
    if options.json:
        rows = [{"topic": p.topic, "partition": p.partition, "offset": offset} for p, offset in sorted(offsets.items())]
        common.print_json({"group": config.group_id, "partitions": rows})
        return 0
    for partition, offset in sorted(offsets.items()):
        print(f"updating partition {partition.partition} with new offset: {offset}")
    print(f"updated the offset for {len(offsets)} partitions")
    return 0


def _store_of(access: Access, config: ConsumerConfig) -> Offsets:
    """Return where the group keeps its offsets, by its properties."""
    zookeeper = ZooKeeperOffsets(access.session, config.group_id)
    if config.offsets_storage == "zookeeper":
        return zookeeper
    coordinator = access.coordinator(config.group_id)
    common.retrying()(coordinator.fetch_offsets, [])
    kafka = KafkaOffsets(coordinator)
    return DualOffsets(kafka, zookeeper) if config.dual_commit_enabled else kafka


def _read(path: Path) -> dict[str, dict[TopicPartition, int]]:
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeError) as error:
        raise ConfigurationError(f"cannot read {str(path)!r}: {error}") from error
    found: dict[str, dict[TopicPartition, int]] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            break  # the original stops here too
        parts = _LINE.fullmatch(line.strip())
        if parts is None or int(parts["offset"]) > OFFSET_MAX:
            raise ConfigurationError(
                f"{path}:{number}: {line!r} is not /consumers/GROUP/offsets/TOPIC/PARTITION:OFFSET; nothing was written"
            )
        partition = TopicPartition(parts["topic"], int(parts["partition"]))
        found.setdefault(parts["group"], {})[partition] = int(parts["offset"])
    return found


def _check_idle(session: ZooKeeperSession, groups: list[str], force: bool) -> None:
    for group in groups:
        members = session.znodes.children(GroupPaths(group).ids)
        if members and not force:
            raise ConfigurationError(
                f"group {group!r} has live members, which would overwrite the offsets or read on from where they are: "
                f"{', '.join(members)}. Stop them first, or give --force"
            )
