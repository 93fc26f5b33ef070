"""The tools ``consumer-groups`` and ``verify-rebalance``.

Source: Kafka 1.1 kafka.admin.ConsumerGroupCommand with ``--zookeeper``; Kafka 0.9 kafka.tools.VerifyConsumerRebalance.
Deliberate differences: ``--list`` is sorted, ``--delete`` also deletes a group that has never had members,
``--partition`` deletes the offset of one partition, errors cause exit code 1, and a group without members fails
``verify-rebalance``.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from zkconsumer.errors import ConfigurationError
from zkconsumer.log_ends import LATEST
from zkconsumer.message import TopicPartition
from zkconsumer.metadata.base import Cluster
from zkconsumer.offsets.access import Access
from zkconsumer.rebalance.assignors import group_threads_by_topic
from zkconsumer.rebalance.context import resolve_filter
from zkconsumer.tools import common, group_state, output
from zkconsumer.tools.arguments import ToolParser
from zkconsumer.tools.common import ToolError
from zkconsumer.tools.failures import ExitCode, print_error
from zkconsumer.tools.group_state import GroupState
from zkconsumer.zookeeper.registry import GroupPaths, Registration, is_valid_topic_name, parse_partition_number
from zkconsumer.zookeeper.session import ZooKeeperSession

_COLUMNS = ("TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID")


def add_groups(parser: ToolParser) -> None:
    """Add the options of ``consumer-groups``."""
    parser.set_defaults(run=run_groups)
    common.add_zookeeper(parser, is_required=True)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--list", action="store_true", help="list all consumer groups")
    action.add_argument("--describe", action="store_true", help="describe a consumer group: offsets, lag and owners")
    action.add_argument(
        "--delete", action="store_true", help="delete consumer groups, or only their offsets and owners for a topic"
    )
    parser.add_argument("--group", action="append", default=[], help="consumer group; can be repeated with --delete")
    parser.add_argument(
        "--topic",
        help="with --delete, delete only the offsets and owners of this topic, in all groups if --group is not given",
    )
    parser.add_argument(
        "--partition",
        type=_partition_number,
        metavar="N",
        help="with --delete, delete only the offset of this partition of --topic",
    )
    common.add_access(parser)
    common.add_json(parser)


def add_verify(parser: ToolParser) -> None:
    """Add the options of ``verify-rebalance``."""
    parser.set_defaults(run=run_verify)
    common.add_zookeeper(parser, "--zookeeper.connect")
    parser.add_argument("--group", required=True, help="consumer group")
    common.add_access(parser)
    common.add_json(parser)


def _partition_number(text: str) -> int:
    number = parse_partition_number(text)
    if number is None:
        raise argparse.ArgumentTypeError(f"must be a partition number, got {text!r}")
    return number


def run_groups(options: argparse.Namespace) -> int:
    """List, describe or delete groups, and return the exit code."""
    if options.partition is not None and not (options.delete and options.topic and options.group):
        raise ConfigurationError("--partition requires --delete, --topic and --group")
    if options.list:
        return _run_list(options)
    return _run_describe(options) if options.describe else _run_delete(options)


def _run_list(options: argparse.Namespace) -> int:
    with common.access(common.read_config(options, options.zookeeper)) as access:
        names = group_state.groups(access.session)
    output.report(options, {"groups": names}, names)
    return 0


def _run_describe(options: argparse.Namespace) -> int:
    if len(options.group) != 1:
        raise ConfigurationError("--describe requires exactly one --group")
    [group] = options.group
    with common.access(common.read_config(options, options.zookeeper, group)) as access:
        return _describe(access, group, options.json)


def _run_delete(options: argparse.Namespace) -> int:
    if not options.group and not options.topic:
        raise ConfigurationError("--delete requires --group, --topic, or both")
    with common.access(common.read_config(options, options.zookeeper)) as access:
        groups = options.group or _groups_of(access.session, options.topic)
        errors = {group: _delete(access, group, options.topic, options.partition) for group in groups}
    rows = [{"group": group, "deleted": not error, "error": error or None} for group, error in errors.items()]
    lines = (error or _describe_deleted(options, group) for group, error in errors.items())
    output.report(options, {"topic": options.topic, "groups": rows}, lines)
    return 1 if any(errors.values()) else 0


def run_verify(options: argparse.Namespace) -> int:
    """Print problems, such as partitions without a live owner; return exit code 1 if there are any, otherwise 0."""
    with common.access(common.read_config(options, options.zookeeper)) as access:
        problems = _find_unowned(access.session, access.cluster, options.group)
    content = {"group": options.group, "successful": not problems, "problems": problems}
    output.report(options, content, [*problems, f"Rebalance operation {'failed' if problems else 'successful'} !"])
    return 1 if problems else 0


def _find_unowned(session: ZooKeeperSession, cluster: Cluster, group: str) -> list[str]:
    group_state.check_exists(session, group)
    common.check_brokers(cluster)
    state = group_state.read(session, group)
    if not state.sessions:
        return [f"Group {group} has no members"]
    problems = [error for path, error in state.unreadable.items() if "/ids/" in path]
    existing = cluster.topics() if any(member.is_filter for member in state.members.values()) else []
    members = {
        consumer_id: resolve_filter(GroupPaths(group).registration(consumer_id), member, existing)
        for consumer_id, member in state.members.items()
    }
    threads = list_subscribed_threads(members)
    for partition in group_state.list_partitions(cluster, threads):
        owner = state.owners.get(partition)
        if owner is None:
            problems.append(f"No owner for partition {partition}")
        elif owner not in threads[partition.topic]:
            problems.append(f"Owner {owner} for partition {partition} is not a thread of a live member")
    return problems


def list_subscribed_threads(members: Mapping[str, Registration]) -> dict[str, list[str]]:
    """Return the ids of the threads subscribed to each topic. Topics with invalid names are omitted.

    Args:
        members: registrations by consumer id; topic filters must already be expanded to topics.
    """
    topics = {topic for member in members.values() for topic in member.subscription if is_valid_topic_name(topic)}
    return group_threads_by_topic(members, sorted(topics))


def _describe(access: Access, group: str, as_json: bool) -> int:
    output.note(
        "Note: This will only show information about consumers that use ZooKeeper (not those using the Java consumer "
        "API)."
    )
    if not group_state.exists(access.session, group):
        problem = f"The consumer group '{group}' does not exist."
        if as_json:
            print_error(ToolError.__name__, problem)
        else:
            output.echo(f"Error: {problem}")
        return ExitCode.PROBLEM
    state = group_state.read(access.session, group)
    partitions = group_state.list_partitions(access.cluster, state.topics)
    ends, failed = group_state.log_offsets(access.logs(), partitions, LATEST)
    in_kafka, notes = group_state.in_kafka(access.coordinator(), partitions, backoff_s=None)
    offsets, unreadable = group_state.offsets(state, partitions, in_kafka)
    errors = [*failed.values(), *notes, *unreadable]
    # Offsets in Kafka are requested once, so they can be missing while the offsets topic is created.
    code = ExitCode.UNDETERMINED if failed or unreadable else ExitCode.SUCCESS
    if as_json:
        found = [common.partition_json(p, offsets.get(p), ends.get(p), state.owners.get(p)) for p in partitions]
        output.print_json({"group": group, "members": sorted(state.sessions), "partitions": found, "errors": errors})
        return code
    for partition in partitions:
        if offsets.get(partition, -1) < 0 and partition not in state.offsets:
            output.echo(
                f"Error: Could not fetch offset from zookeeper for group '{group}' partition '{partition}' due to "
                "missing offset data in zookeeper."
            )
    output.echo()
    texts = [[output.cell(value) for value in row] for row in _rows(state, partitions, offsets, ends)]
    first = max([15, *(len(row[0]) for row in texts)])
    last = max([15, *(len(row[5]) for row in texts)])
    line = f"%-{first}s %-10s %-15s %-15s %-15s %-{last}s "
    for row in (_COLUMNS, *texts):
        output.echo(line % tuple(row))
    return code


def _rows(
    state: GroupState,
    partitions: Sequence[TopicPartition],
    offsets: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> list[list[Any]]:
    """Return one row per partition, and one per member that owns no partition."""
    rows: list[list[Any]] = []
    for partition in partitions:
        offset, end = offsets.get(partition, -1), ends.get(partition)
        has_offset = offset >= 0
        lag = end - offset if has_offset and end is not None else None
        owner = state.owners.get(partition)
        rows.append([*partition, offset if has_offset else None, end, lag, owner and state.find_consumer(owner)])
    owning = {state.find_consumer(owner) for owner in state.owners.values()}
    rows += [[None, None, None, None, None, member] for member in sorted(state.sessions) if member not in owning]
    return rows


def _groups_of(session: ZooKeeperSession, topic: str) -> list[str]:
    """Return the groups that have committed offsets for a topic."""
    return [group for group in group_state.groups(session) if session.znodes.exists(_offsets(group, topic))]


def _offsets(group: str, topic: str) -> str:
    return GroupPaths(group).offset(TopicPartition(topic, 0)).rpartition("/")[0]


def _delete(access: Access, group: str, topic: str | None, partition: int | None) -> str:
    """Delete a group, its offsets and owners for a topic, or one offset; return the error message, or "" on success.

    Without ``partition``, a group that has no other topic is deleted completely. The offset of a partition that does
    not exist is deleted even if the group has members, because no member uses it.
    """
    znodes, paths = access.session.znodes, GroupPaths(group)
    if not group_state.exists(access.session, group):
        return f"Error: Delete for group '{group}' failed because group does not exist."
    only = None if topic is None or partition is None else TopicPartition(topic, partition)
    is_used = only is None or only in group_state.list_partitions(access.cluster, [only.topic])
    if is_used and group_state.list_users(access.session, group):
        about = f" topic '{topic}'" if topic else ""
        return f"Error: Delete for group '{group}'{about} failed because its consumers are still active."
    if only is not None:
        znodes.delete(paths.offset(only))
        znodes.delete(paths.offset_topic_id(only))
    elif topic is None or _topics_of(access.session, paths) == {topic}:
        znodes.delete_tree(paths.root)
    else:
        znodes.delete_tree(_offsets(group, topic))
        znodes.delete_tree(paths.owners(topic))
        znodes.delete_tree(paths.offset_topic_ids(topic))
    return ""


def _topics_of(session: ZooKeeperSession, paths: GroupPaths) -> set[str]:
    _, *parents = paths.subtrees
    return {topic for parent in parents for topic in session.znodes.children(parent) or ()}


def _describe_deleted(options: argparse.Namespace, group: str) -> str:
    if options.partition is not None:
        partition = TopicPartition(options.topic, options.partition)
        return f"Deleted the offset for partition {partition} of group '{group}' in zookeeper."
    about = f"group '{group}' topic '{options.topic}'" if options.topic else f"group '{group}'"
    kind = "consumer group information" if options.topic else "all consumer group information"
    return f"Deleted {kind} for {about} in zookeeper."
