"""The tool ``doctor``: report problems of a group."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from zkconsumer.errors import RegistrationError, RetriableError, ZkConsumerError
from zkconsumer.rebalance.context import resolve_filter
from zkconsumer.tools import common, doctor_group, doctor_offsets, group_state
from zkconsumer.tools.common import Access
from zkconsumer.tools.findings import Commands, Finding
from zkconsumer.tools.group_state import GroupState
from zkconsumer.tools.groups import subscribed_threads
from zkconsumer.zookeeper.registry import GroupPaths, Registration

_DESCRIPTION = """\
Report problems of a consumer group: members, owners, assignment and offsets.

The tool changes nothing. The exit code is 0 if there is no problem, and 1 otherwise.
"""


def add_to(tools: Any) -> None:
    """Add the subcommand."""
    parser = common.add_tool(tools, "doctor", run, _DESCRIPTION)
    parser.add_argument(
        "--zookeeper", default=common.LOCAL, metavar="HOSTS", help="ZooKeeper servers (default: %(default)s)"
    )
    parser.add_argument("--group", required=True, help="consumer group")
    parser.add_argument(
        "--stale-after",
        type=common.positive,
        default=600,
        metavar="SECONDS",
        help="report a partition with lag whose offset was not committed for this time (default: %(default)s)",
    )
    common.add_access(parser)
    common.add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print the problems and return the exit code."""
    with common.access(common.config_of(options, options.zookeeper)) as access:
        group_state.check_exists(access.session, options.group)
        common.check_brokers(access.cluster)
        state = group_state.read(access.session, options.group)
        findings = list(_examine(state, access, Commands(options), options.stale_after))
    if options.json:
        common.print_json({"group": options.group, "findings": [asdict(finding) for finding in findings]})
    else:
        for finding in findings:
            common.echo(f"{finding.where}: {finding.problem}")
            common.echo(f"    {finding.remedy}")
        members, owned = len(state.sessions), len(state.owners)
        common.echo(
            f"group {options.group}: {_count(members, 'member')}, {_count(owned, 'partition')} owned: "
            f"{_count(len(findings), 'problem') if findings else 'no problems'} found"
        )
    return 1 if findings else 0


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _examine(state: GroupState, access: Access, commands: Commands, stale_after_s: float) -> Iterator[Finding]:
    """Yield the problems of a group."""
    yield from doctor_group.check_members(state, commands)
    topics = access.cluster.topics() if any(member.is_filter for member in state.members.values()) else []
    readable: dict[str, Registration] = {}
    for consumer_id, member in state.members.items():
        try:
            readable[consumer_id] = resolve_filter(GroupPaths(state.group).registration(consumer_id), member, topics)
        except RegistrationError as error:
            yield Finding(
                f"zkconsumer members cannot evaluate its topic filter: {error}",
                f"member {consumer_id}",
                "subscribe this member to topics by name",
            )
    threads = subscribed_threads(state.group, readable, access.cluster)
    partitions: dict[str, list[int]] = {}
    for topic in sorted({*threads, *state.topics}):
        try:
            partitions.update(access.cluster.partitions([topic]))
        except RetriableError:
            raise
        except ZkConsumerError as error:
            yield Finding(str(error), f"topic {topic}", "repair the znode, or delete and create the topic again")
    yield from doctor_group.check_owners(state, threads, partitions)
    yield from doctor_offsets.check(state, access, commands, partitions, stale_after_s)
