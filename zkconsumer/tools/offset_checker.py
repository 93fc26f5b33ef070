"""The tool ``offset-checker``: prints the offset, log end offset, lag and owner of each partition of a group.

Source: Kafka 0.8.2 kafka.tools.ConsumerOffsetChecker. Deliberate difference: an error that terminates the tool is
printed to standard error.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping

from zkconsumer.config.types import split_list
from zkconsumer.log_ends import LATEST
from zkconsumer.message import TopicPartition
from zkconsumer.offsets.access import Access
from zkconsumer.tools import common, group_state, output
from zkconsumer.tools.arguments import ToolParser
from zkconsumer.tools.common import ToolError
from zkconsumer.tools.failures import ExitCode
from zkconsumer.tools.group_state import GroupState
from zkconsumer.zookeeper.registry import GroupPaths

_ROW = "%-15s %-30s %-3s %-15s %-15s %-15s %s"


def add_options(parser: ToolParser) -> None:
    """Add the description, the options and the function that runs the tool."""
    parser.set_defaults(run=run)
    common.add_group(parser)
    parser.add_argument(
        "--topic", metavar="TOPICS", help="comma-separated list of topics (default: all topics of the group)"
    )
    parser.add_argument(
        "--socket.timeout.ms",
        dest="socket_timeout_ms",
        type=common.positive,
        default=6000,
        metavar="MS",
        help="socket timeout for offset queries (default: %(default)s)",
    )
    parser.add_argument(
        "--retry.backoff.ms",
        dest="retry_backoff_ms",
        type=common.positive,
        default=3000,
        metavar="MS",
        help="time between two attempts to fetch offsets committed to Kafka (default: %(default)s)",
    )
    parser.add_argument(
        "--broker-info", action="store_true", help="also print the ids and addresses of the partition leaders"
    )
    common.add_access(parser)
    common.add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print the table and return the exit code."""
    with common.access(common.read_config(options, options.zookeeper, options.group)) as access:
        return _check(options, access)


def _check(options: argparse.Namespace, access: Access) -> int:
    if not group_state.exists(access.session, options.group):
        raise ToolError(f"znode {GroupPaths(options.group).root} does not exist in ZooKeeper at {options.zookeeper!r}")
    state = group_state.read(access.session, options.group)
    partitions = _list_partitions(options, access)
    timeout_s = options.socket_timeout_ms / 1000
    logs, coordinator = access.logs(timeout_s), access.coordinator(timeout_s)
    in_kafka, notes = group_state.in_kafka(coordinator, partitions, backoff_s=options.retry_backoff_ms / 1000)
    offsets, unreadable = group_state.offsets(state, partitions, in_kafka)
    notes += unreadable
    warnings = []
    if differing := group_state.differing_offsets(state, in_kafka):
        warnings.append(f"{group_state.describe_differing(differing)}; the table shows the offsets in Kafka")
        output.note(f"warning: {warnings[0]}")
    ends, failed = group_state.log_offsets(logs, partitions, LATEST)
    found = [common.partition_json(p, offsets.get(p), ends.get(p), state.owners.get(p)) for p in partitions]
    content: dict[str, object] = {"group": options.group, "members": sorted(state.sessions), "partitions": found}
    errors = [*notes, *failed.values()]
    content |= {"errors": errors, "warnings": warnings}
    lines = [*notes, *_table(state, partitions, offsets, ends)]
    if options.broker_info:
        brokers = {str(node): str(endpoint) for node, endpoint in sorted(dict(logs.leaders.values()).items())}
        content["brokers"] = brokers
        lines += ["BROKER INFO", *(f"{node} -> {endpoint}" for node, endpoint in brokers.items())]
    output.report(options, content, lines)
    return ExitCode.UNDETERMINED if errors else ExitCode.SUCCESS


def _list_partitions(options: argparse.Namespace, access: Access) -> list[TopicPartition]:
    """Return the partitions of ``--topic`` or, by default, of all topics below the group's ``owners`` znode."""
    if options.topic:
        topics = split_list(options.topic)
        common.check_topics(access.cluster, topics)
        return group_state.list_partitions(access.cluster, topics)
    # The topic znodes below ``owners`` remain after the members stop.
    owned = access.session.znodes.children(f"{GroupPaths(options.group).root}/owners")
    return group_state.list_partitions(access.cluster, owned or [])


def _table(
    state: GroupState,
    partitions: Iterable[TopicPartition],
    offsets: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> Iterator[str]:
    yield _ROW % ("Group", "Topic", "Pid", "Offset", "logSize", "Lag", "Owner")
    for partition in partitions:
        offset, end = offsets.get(partition), ends.get(partition)
        if end is None:
            yield f"No broker for partition {partition.topic} - {partition.partition}"
            continue
        lag = "unknown" if offset is None or offset < 0 else end - offset
        shown = "unknown" if offset is None else offset
        yield _ROW % (state.group, *partition, shown, end, lag, state.owners.get(partition, "none"))
