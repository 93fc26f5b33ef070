"""The tool ``doctor``: reports the problems of a consumer group."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from zkconsumer.errors import RegistrationError, RetriableError, ZkConsumerError
from zkconsumer.health import Health, HealthReason, HealthState
from zkconsumer.offsets.access import Access
from zkconsumer.rebalance.context import resolve_filter
from zkconsumer.tools import common, doctor_group, doctor_offsets, group_state, output
from zkconsumer.tools.arguments import ToolParser
from zkconsumer.tools.findings import Commands, Finding, assess_health
from zkconsumer.tools.group_state import GroupState
from zkconsumer.tools.groups import list_subscribed_threads
from zkconsumer.tools.output import Line
from zkconsumer.tools.terminal import Severity
from zkconsumer.zookeeper.registry import GroupPaths, Registration

_DETAILS = """\
The first line, `health`, reports whether the group makes progress, according to ZooKeeper and the brokers: healthy,
rebalancing, stalled, or failed (the group has no members). The reason codes are the same as in a consumer's
health report.

The tool is read-only. The exit code is 0 if there is no problem, 1 if there are problems, and 3 if the group could
not be examined, for example because ZooKeeper is unreachable.
"""

#: Seconds to wait before a group is checked again if its problems may be caused by a rebalance.
_REBALANCE_S = 2.0

#: Codes of problems that occur temporarily during a rebalance.
_TRANSIENT = ("partition_not_released", "rebalance_failed")

#: Severity by health state; other states are errors.
_SEVERITIES = {HealthState.HEALTHY: Severity.GOOD, HealthState.REBALANCING: Severity.WARNING}

#: Maximum number of partitions printed per health reason.
_MAX_PARTITIONS = 5


def add_options(parser: ToolParser) -> None:
    """Add the description, the options and the function that runs the tool."""
    parser.set_defaults(run=run)
    parser.describe(_DETAILS)
    common.add_group(parser)
    parser.add_argument(
        "--stale-after",
        type=common.positive,
        default=600,
        metavar="SECONDS",
        help="report a partition with lag if its last commit is older than this (default: %(default)s)",
    )
    common.add_access(parser)
    common.add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print the health and the problems of the group, and return the exit code."""
    with common.access(common.read_config(options, options.zookeeper, options.group)) as access:
        group_state.check_exists(access.session, options.group)
        common.check_brokers(access.cluster)
        state, partitions, findings = _examine_group(options.group, access, Commands(options))
        findings.extend(doctor_offsets.check(state, access, Commands(options), partitions, options.stale_after))
    health = assess_health(findings)
    content = {
        "group": options.group,
        "health": health.state.name.lower(),
        "healthReasons": list(map(_reason_as_json, health.reasons)),
        "findings": [finding.as_json() for finding in findings],
    }
    output.report(options, content, _lines(state, health, findings))
    return 1 if findings else 0


def _lines(state: GroupState, health: Health, findings: Sequence[Finding]) -> Iterator[str | Line]:
    """Yield the health and then the findings. Findings that prevent progress are errors, others are warnings."""
    yield Line(f"health: {_describe(health)}", _SEVERITIES.get(health.state, Severity.ERROR))
    yield (
        f"group {state.group}: {state.members_text}, {output.count(len(state.owners), 'partition')} owned: "
        f"{output.count(len(findings), 'problem') if findings else 'no problems'} found"
    )
    for finding in findings:
        is_error = bool(finding.code) and finding.code != "rebalancing"
        yield Line(f"{finding.where}: {finding.problem}", Severity.ERROR if is_error else Severity.WARNING)
        yield f"    {finding.remedy}"


def _describe(health: Health) -> str:
    """Return one line with the health state and its reasons."""
    reasons = "; ".join(map(_describe_reason, health.reasons))
    return health.state.name.lower() + (f" ({reasons})" if reasons else "")


def _describe_reason(reason: HealthReason) -> str:
    partitions = sorted(reason.partitions)
    shown = ", ".join(map(str, partitions[:_MAX_PARTITIONS]))
    if len(partitions) > _MAX_PARTITIONS:
        shown += f" and {len(partitions) - _MAX_PARTITIONS} more"
    return f"{reason.code}{f': {shown}' if shown else ''}; since {reason.since_utc}"


def _reason_as_json(reason: HealthReason) -> dict[str, Any]:
    return {
        **reason.as_json(),
        "since": reason.since,
        "partitions": [{"topic": p.topic, "partition": p.partition} for p in sorted(reason.partitions)],
    }


def _examine_group(
    group: str, access: Access, commands: Commands
) -> tuple[GroupState, Mapping[str, list[int]], list[Finding]]:
    """Return the state of a group, the partitions of its topics, and the problems of its members and owners.

    Some problems also occur temporarily during a rebalance. Therefore, a group that has both members and problems that
    prevent progress is checked twice. If the transient problems of the two checks differ, the group is rebalancing.
    """
    state, partitions, findings = _read_and_check(group, access, commands)
    first = {finding for finding in findings if finding.code}
    if not first or not state.users:
        return state, partitions, findings
    started = time.time()
    time.sleep(_REBALANCE_S)
    state, partitions, findings = _read_and_check(group, access, commands)
    has_changed = {f for f in findings if f.code in _TRANSIENT} != {f for f in first if f.code in _TRANSIENT}
    return state, partitions, [_confirm(f, started, has_changed=has_changed) for f in findings]


def _confirm(finding: Finding, started: float, *, has_changed: bool) -> Finding:
    """Return a finding of the second check, with the code and start time determined by both checks."""
    if has_changed and finding.code in _TRANSIENT:
        return replace(finding, code="rebalancing", since=started)
    return replace(finding, since=started) if finding.code and finding.since is None else finding


def _read_and_check(
    group: str, access: Access, commands: Commands
) -> tuple[GroupState, Mapping[str, list[int]], list[Finding]]:
    state = group_state.read(access.session, group)
    partitions: dict[str, list[int]] = {}
    return state, partitions, list(_check_group(state, access, commands, partitions))


def _check_group(
    state: GroupState, access: Access, commands: Commands, partitions: dict[str, list[int]]
) -> Iterator[Finding]:
    """Yield the problems of members and owners, and add the partitions of the group's topics to ``partitions``."""
    yield from doctor_group.check_members(state, commands)
    topics = access.cluster.topics() if any(member.is_filter for member in state.members.values()) else []
    readable: dict[str, Registration] = {}
    for consumer_id, member in state.members.items():
        try:
            readable[consumer_id] = resolve_filter(GroupPaths(state.group).registration(consumer_id), member, topics)
        except RegistrationError as error:
            yield Finding(
                f"zkconsumer members cannot evaluate the topic filter of {consumer_id}: {error}",
                f"member {consumer_id}",
                "subscribe this member to topics by name",
                "registration_invalid",
                since=state.written_at[GroupPaths(state.group).registration(consumer_id)],
            )
    threads = list_subscribed_threads(readable)
    for topic in sorted({*threads, *state.topics}):
        try:
            partitions.update(access.cluster.partitions([topic]))
        except RetriableError:
            raise
        except ZkConsumerError as error:
            yield Finding(
                str(error),
                f"topic {topic}",
                "restore the partition list in this znode, for example from the output of kafka-topics.sh --describe "
                "on a broker; do not delete the topic, because this would delete its records",
            )
    yield from doctor_group.check_owners(state, threads, partitions)
