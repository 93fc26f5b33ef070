"""The tool ``doctor``: report problems of a group."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from zkconsumer.broker import protocol
from zkconsumer.errors import AssignmentError, ConfigurationError, ZkConsumerError
from zkconsumer.message import TopicPartition
from zkconsumer.rebalance.assignors import STRATEGIES, assign
from zkconsumer.rebalance.topic_filter import filter_of
from zkconsumer.tools import common, group_state
from zkconsumer.tools.common import Access
from zkconsumer.tools.group_state import GroupState
from zkconsumer.tools.groups import subscribed_threads
from zkconsumer.zookeeper.registry import Registration

_DESCRIPTION = """\
Report problems of a consumer group: members, owners, assignment and offsets.

The tool changes nothing. The exit code is 0 if there is no problem, and 1 otherwise.
"""


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem of a group.

    Attributes:
        problem: what is wrong.
        where: the member, topic, partition or znode.
        remedy: what to do.
    """

    problem: str
    where: str
    remedy: str


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
        findings = list(examine(state, access, options.stale_after))
    if options.json:
        common.print_json({"group": options.group, "findings": [asdict(finding) for finding in findings]})
    else:
        for finding in findings:
            print(f"{finding.where}: {finding.problem}\n    {finding.remedy}")
        members, owned = len(state.sessions), len(state.owners)
        result = f"{len(findings)} problems found" if findings else "no problems found"
        print(f"group {options.group}: {members} members, {owned} partitions owned: {result}")
    return 1 if findings else 0


def examine(state: GroupState, access: Access, stale_after: float) -> Iterator[Finding]:
    """Yield the problems of a group.

    Args:
        state: state of the group.
        access: connections for queries of topics and offsets.
        stale_after: seconds without a commit after which a partition with lag is reported.
    """
    yield from _check_znodes(state)
    readable = dict(state.members)
    for consumer_id, member in state.members.items():
        yield from _check_jvm_compatibility(consumer_id, state.registrations[consumer_id])
        if member.is_filter:
            yield from _check_escaping(consumer_id, member)
            try:
                filter_of(member)
            except ConfigurationError as error:
                del readable[consumer_id]
                yield Finding(
                    f"zkconsumer members cannot evaluate its topic filter: {error}",
                    f"member {consumer_id}",
                    "they claim no further partitions while this member is registered; subscribe it to topics by name",
                )
    threads = subscribed_threads(state.group, readable, access.cluster)
    partitions = access.cluster.partitions(sorted({*threads, *state.topics}))
    yield from _check_topics(threads, partitions)
    yield from _check_owners(state, threads)
    yield from _check_unowned(state, threads, partitions)
    yield from _check_strategy(state, threads, partitions)
    yield from _check_offsets(state, access, partitions, stale_after)


# ---- members --------------------------------------------------------------------------------------------


def _check_znodes(state: GroupState) -> Iterator[Finding]:
    for path, error in state.unreadable.items():
        if "/ids/" in path:
            remedy = "every JVM member fails to rebalance while this znode exists; stop the program that created it"
        else:
            remedy = "write the next offset to consume, or delete the znode so that auto.offset.reset applies"
        yield Finding(error, path, remedy)


def _check_jvm_compatibility(consumer_id: str, data: bytes) -> Iterator[Finding]:
    """Find registrations that zkconsumer accepts but that make every rebalance of a JVM member fail."""
    content = json.loads(data)
    reasons = []
    if not isinstance(content.get("timestamp", ""), str):
        reasons.append("the timestamp is not a string, as members before 1.0 require")
    if not all(type(count) is int for count in content["subscription"].values()):
        reasons.append("a number of streams is not an integer")
    if reasons:
        yield Finding(
            f"JVM members cannot read its registration: {'; '.join(reasons)}",
            f"member {consumer_id}",
            "JVM members fail to rebalance while this member is registered; stop the member, or fix its program",
        )


def _check_escaping(consumer_id: str, member: Registration) -> Iterator[Finding]:
    [regex] = member.subscription
    if "\\\\" in regex:
        yield Finding(
            f"its topic filter {regex!r} is escaped twice, a defect of Kafka 1.0.1 to 1.1 (KAFKA-6319); it "
            "matches only topics with a backslash in their name, which cannot exist",
            f"member {consumer_id}",
            "use an expression without backslashes, such as [.] for a dot, or replace it by a zkconsumer member",
        )


def _check_topics(threads: Mapping[str, list[str]], partitions: Mapping[str, list[int]]) -> Iterator[Finding]:
    for topic in sorted(threads.keys() - partitions.keys()):
        yield Finding(
            f"the topic does not exist, but {len(threads[topic])} threads subscribe to it",
            f"topic {topic}",
            "create the topic, or correct the subscription; check the chroot of zookeeper.connect",
        )


# ---- owners ---------------------------------------------------------------------------------------------


def _check_owners(state: GroupState, threads: Mapping[str, list[str]]) -> Iterator[Finding]:
    for partition, owner in sorted(state.owners.items()):
        member = _member_of(owner)
        where = f"partition {partition}"
        if member not in state.sessions:
            yield Finding(
                f"owned by {owner}, which is not a member of the group",
                where,
                "if the process of the owner has terminated, the znode is deleted when the session expires; otherwise "
                "stop the process",
            )
        elif state.owner_sessions[partition] != state.sessions[member]:
            yield Finding(
                f"the owner znode and the registration of {owner} belong to different sessions, so the owner znode "
                "will be deleted and two members may read the partition",
                where,
                "restart this member",
            )
        elif owner not in threads.get(partition.topic, ()):
            yield Finding(f"owned by {owner}, which does not subscribe to the topic", where, "restart this member")


def _check_unowned(
    state: GroupState, threads: Mapping[str, list[str]], partitions: Mapping[str, list[int]]
) -> Iterator[Finding]:
    for topic in sorted(threads):
        for number in partitions.get(topic, ()):
            partition = TopicPartition(topic, number)
            if threads[topic] and partition not in state.owners:
                yield Finding(
                    "the partition has no owner, so it is not consumed",
                    f"partition {partition}",
                    "a rebalance may be in progress: run this tool again after some seconds. JVM members that have "
                    'stopped retrying ("can\'t rebalance after 4 retries") retry only at the next change of the group: '
                    "restart one of them",
                )


def _check_strategy(
    state: GroupState, threads: Mapping[str, list[str]], partitions: Mapping[str, list[int]]
) -> Iterator[Finding]:
    """Find members that own partitions according to different assignment strategies."""
    if len({_member_of(owner) for owner in state.owners.values()}) < 2:
        return
    owners = {p: owner for p, owner in state.owners.items() if owner in threads.get(p.topic, ())}
    members = {_member_of(owner) for owner in owners.values()}
    followers: dict[str, set[str]] = {}
    for strategy, order in STRATEGIES:
        try:
            assignment = assign(strategy, order, partitions, threads)
        except AssignmentError:
            continue
        for member in members:
            owned = {p for p, owner in owners.items() if _member_of(owner) == member}
            if owned and all(assignment.get(p) == owners[p] for p in owned):
                followers.setdefault(f"{strategy} {order}".strip(), set()).add(member)
    if not followers or members in followers.values():
        return
    detail = "; ".join(f"{name}: {', '.join(sorted(names))}" for name, names in followers.items())
    yield Finding(
        f"the members use different partition assignment strategies and block each other permanently ({detail})",
        f"group {state.group}",
        "set the same partition.assignment.strategy for all members; with roundrobin, JVM members before and after 1.0 "
        "cannot be in one group (KAFKA-5822)",
    )


def _member_of(owner: str) -> str:
    """Return the consumer id of a thread id."""
    return owner.rpartition("-")[0]


# ---- offsets --------------------------------------------------------------------------------------------


def _check_offsets(
    state: GroupState, access: Access, partitions: Mapping[str, list[int]], stale_after: float
) -> Iterator[Finding]:
    existing = [TopicPartition(topic, number) for topic in sorted(partitions) for number in partitions[topic]]
    fetch = partial(common.retrying(), access.coordinator(state.group).fetch_offsets)
    offsets, notes = group_state.furthest(state, existing, fetch)
    for note in notes:
        yield Finding(note, "brokers", "check the brokers; only the offsets in ZooKeeper were examined")
    for partition in sorted(state.offsets.keys() - set(existing)):
        yield Finding(
            f"the group has an offset ({state.offsets[partition]}) of a partition that does not exist",
            f"partition {partition}",
            "delete it: zkconsumer consumer-groups --delete --group GROUP --topic TOPIC; otherwise a re-created topic "
            "is consumed from this offset",
        )
    logs = access.logs()
    try:
        starts, failed = group_state.log_offsets(logs, offsets, protocol.EARLIEST)
        ends, _ = group_state.log_offsets(logs, starts, protocol.LATEST)
    except ZkConsumerError as error:
        yield Finding(str(error), "brokers", "check the brokers; the offsets were not compared with the logs")
        return
    for partition, error_text in failed.items():
        yield Finding(
            error_text,
            f"partition {partition}",
            "check the brokers; the partition cannot be consumed until it has a leader",
        )
    for partition, end in ends.items():
        yield from _check_offset(state, partition, offsets[partition], starts[partition], end, stale_after)


def _check_offset(
    state: GroupState, partition: TopicPartition, offset: int, start: int, end: int, stale_after: float
) -> Iterator[Finding]:
    """Check a committed offset against the log start offset and the end offset."""
    where = f"partition {partition}"
    if not start <= offset <= end:
        yield Finding(
            f"the offset {offset} is out of range; the log start offset is {start} and the end offset is {end}",
            where,
            "auto.offset.reset applies when the partition is consumed next; to set another offset, use update-offsets",
        )
    elif offset == end:
        return
    elif partition in state.owners:
        # The commit time of an offset in Kafka is unknown.
        is_in_zookeeper = offset == state.offsets.get(partition)
        if is_in_zookeeper and (age := time.time() - state.stored_at[partition]) > stale_after:
            yield Finding(
                f"the offset {offset} was not committed for {age:.0f} s, and the lag is {end - offset} records",
                where,
                f"check whether {state.owners[partition]} still processes records",
            )
    elif not state.sessions:
        yield Finding(
            f"the lag is {end - offset} records, and the group has no members",
            where,
            "start a member, or delete the group if it is not used any longer",
        )
