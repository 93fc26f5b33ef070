"""``zkconsumer doctor``: reads a group and says in plain words what is wrong with it.

Nothing is changed. Exit code 0 where all is well, 1 where something was found.
"""

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


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong: what, where, and what to do."""

    problem: str
    where: str
    remedy: str


def add_to(tools: Any) -> None:
    """Add the sub-command."""
    assert __doc__
    parser = common.add_tool(tools, "doctor", run, __doc__)
    parser.add_argument("--zookeeper", default=common.LOCAL, metavar="HOSTS", help="default: %(default)s")
    parser.add_argument("--group", required=True)
    parser.add_argument(
        "--stale-after",
        type=common.positive,
        default=600,
        metavar="SECONDS",
        help="an offset that is behind and was not written for so long is named; default: %(default)s",
    )
    common.add_access(parser)
    common.add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print what is found; returns the exit code."""
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
        verdict = f"{len(findings)} problems found" if findings else "all is well"
        print(f"group {options.group}: {members} members, {owned} partitions owned: {verdict}")
    return 1 if findings else 0


def examine(state: GroupState, access: Access, stale_after: float) -> Iterator[Finding]:
    """Yield what is wrong with a group."""
    for path, error in state.unreadable.items():
        if "/ids/" in path:
            remedy = "every JVM member's rebalance fails as long as it is there: stop the program that wrote it"
        else:
            remedy = "write the next offset to consume there, or delete it to have auto.offset.reset applied"
        yield Finding(error, path, remedy)
    readable = dict(state.members)
    for consumer_id, member in state.members.items():
        yield from _not_for_jvms(consumer_id, state.registrations[consumer_id])
        if member.is_filter:
            yield from _escaped_twice(consumer_id, member)
            try:
                filter_of(member)
            except ConfigurationError as error:
                del readable[consumer_id]
                yield Finding(
                    f"its filter is one that members of zkconsumer cannot evaluate: {error}",
                    f"member {consumer_id}",
                    "they claim nothing new while it is there; have it name its topics",
                )
    threads = subscribed_threads(readable, access.cluster)
    partitions = access.cluster.partitions(sorted({*threads, *state.topics}))
    yield from _missing_topics(threads, partitions)
    yield from _ownership(state, threads, partitions)
    yield from _strategy(state, threads, partitions)
    yield from _offsets(state, access, partitions, stale_after)


def _not_for_jvms(consumer_id: str, data: bytes) -> Iterator[Finding]:
    """What this library reads and a JVM member does not: then every rebalance of every JVM member fails."""
    content = json.loads(data)
    wrong = []
    if not isinstance(content.get("timestamp", ""), str):
        wrong.append("its timestamp is no text (members before 1.0)")
    if not all(type(count) is int for count in content["subscription"].values()):
        wrong.append("a number of streams is no whole number")
    if wrong:
        yield Finding(
            f"no JVM member can read its registration: {'; '.join(wrong)}",
            f"member {consumer_id}",
            "their rebalances fail as long as it is there: stop it, or mend the program that wrote it",
        )


def _escaped_twice(consumer_id: str, member: Registration) -> Iterator[Finding]:
    [regex] = member.subscription
    if "\\\\" in regex:
        yield Finding(
            f"its filter {regex!r} is escaped twice, as Kafka 1.0.1 to 1.1 write it (KAFKA-6319): it asks for topics "
            "with a backslash in their name, which cannot exist",
            f"member {consumer_id}",
            "write the expression without backslashes, such as [.] for a dot, or run a member that is no JVM's",
        )


def _missing_topics(threads: Mapping[str, list[str]], partitions: Mapping[str, list[int]]) -> Iterator[Finding]:
    for topic in sorted(threads.keys() - partitions.keys()):
        yield Finding(
            f"read by {len(threads[topic])} threads, but it does not exist",
            f"topic {topic}",
            "create it, or correct the subscription; check the chroot of zookeeper.connect",
        )


def _ownership(
    state: GroupState, threads: Mapping[str, list[str]], partitions: Mapping[str, list[int]]
) -> Iterator[Finding]:
    for partition, owner in sorted(state.owners.items()):
        member = owner.rpartition("-")[0]
        where = f"partition {partition}"
        if member not in state.sessions:
            yield Finding(
                f"owned by {owner}, which is no member of the group (any more)",
                where,
                "if its process has ended, so will its session, within its timeout; else it is a zombie: stop it",
            )
        elif state.owner_sessions[partition] != state.sessions[member]:
            yield Finding(
                f"owned by {owner} in another session than the one that it is registered in: the znode will vanish and "
                "two members may read the partition",
                where,
                "restart that member",
            )
        elif owner not in threads.get(partition.topic, ()):
            yield Finding(f"owned by {owner}, which does not read the topic (any more)", where, "restart that member")
    if not threads:
        return
    unowned = [
        TopicPartition(topic, number)
        for topic in sorted(threads)
        for number in partitions.get(topic, ())
        if threads[topic] and TopicPartition(topic, number) not in state.owners
    ]
    for partition in unowned:
        yield Finding(
            "has no owner, so nobody reads it",
            f"partition {partition}",
            "a rebalance may be under way: look again in some seconds; JVM members that have given up (\"can't "
            'rebalance after 4 retries") try again at the next change of the group, so restart one',
        )


def _strategy(
    state: GroupState, threads: Mapping[str, list[str]], partitions: Mapping[str, list[int]]
) -> Iterator[Finding]:
    """Members that do not follow the same way of dealing contradict each other."""
    if len({owner.rpartition("-")[0] for owner in state.owners.values()}) < 2:
        return
    owners = {p: owner for p, owner in state.owners.items() if owner in threads.get(p.topic, ())}
    followed: dict[str, set[str]] = {}
    for strategy, order in STRATEGIES:
        try:
            found = assign(strategy, order, partitions, threads)
        except AssignmentError:
            continue
        name = f"{strategy} {order}".strip()
        for member in {owner.rpartition("-")[0] for owner in owners.values()}:
            theirs = {p for p, owner in owners.items() if owner.rpartition("-")[0] == member}
            if theirs and all(found.get(p) == owners[p] for p in theirs):
                followed.setdefault(name, set()).add(member)
    members = {owner.rpartition("-")[0] for owner in owners.values()}
    if any(who == members for who in followed.values()) or not followed:
        return
    detail = "; ".join(f"{name}: {', '.join(sorted(who))}" for name, who in followed.items())
    yield Finding(
        f"its members deal partitions in different ways, so they get into each other's way for ever ({detail})",
        f"group {state.group}",
        "give all members the same partition.assignment.strategy; with roundrobin, JVM members before and after 1.0 "
        "cannot be in one group (KAFKA-5822)",
    )


def _offsets(
    state: GroupState, access: Access, partitions: Mapping[str, list[int]], stale_after: float
) -> Iterator[Finding]:
    existing = [TopicPartition(topic, number) for topic in sorted(partitions) for number in partitions[topic]]
    fetch = partial(common.retrying(), access.coordinator(state.group).fetch_offsets)
    offsets, notes = group_state.furthest(state, existing, fetch)
    for note in notes:
        yield Finding(note, "brokers", "only offsets in ZooKeeper are looked at")
    for partition in sorted(state.offsets.keys() - set(existing)):
        yield Finding(
            f"an offset ({state.offsets[partition]}) is stored of a partition that does not exist (any more)",
            f"partition {partition}",
            "delete it: zkconsumer consumer-groups --delete --group GROUP --topic TOPIC; a topic of that name that is "
            "made anew would be read from there",
        )
    logs = access.logs()
    try:
        starts, failed = group_state.log_offsets(logs, offsets, protocol.EARLIEST)
        ends, _ = group_state.log_offsets(logs, starts, protocol.LATEST)
    except ZkConsumerError as error:
        yield Finding(str(error), "brokers", "offsets are not held against the logs")
        return
    for partition, error_text in failed.items():
        yield Finding(error_text, f"partition {partition}", "nobody can read it before it has a leader")
    for partition in ends:
        offset = offsets[partition]
        if not starts[partition] <= offset <= ends[partition]:
            yield Finding(
                f"the offset {offset} is not in the log, which holds {starts[partition]} to {ends[partition]}",
                f"partition {partition}",
                "auto.offset.reset will be applied when it is read next; to decide yourself, use update-offsets",
            )
        elif (
            partition in state.owners
            and offset == state.offsets.get(partition)  # of those in Kafka nobody tells when they were stored
            and offset < ends[partition]
            and (age := time.time() - state.stored_at[partition]) > stale_after
        ):
            yield Finding(
                f"the offset {offset} has not moved for {age:.0f} s, and {ends[partition] - offset} records wait",
                f"partition {partition}",
                f"look whether {state.owners[partition]} hangs",
            )
        elif partition not in state.owners and not state.sessions and offset < ends[partition]:
            yield Finding(
                f"{ends[partition] - offset} records wait, and the group has no members",
                f"partition {partition}",
                "start a member, or delete the group if it is not used any more",
            )
