"""Checks that ``doctor`` performs on members, owners and the assignment."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from zkconsumer.excerpt import excerpt
from zkconsumer.message import TopicPartition
from zkconsumer.rebalance.assignors import candidate_assignments
from zkconsumer.tools.findings import Commands, Finding
from zkconsumer.tools.group_state import GroupState
from zkconsumer.zookeeper.registry import GroupPaths, Registration, parse_partition_number

_MIXED_CLIENTS = (
    "other clients assign partitions differently, so partitions remain without an owner or are never released; use a "
    "different group.id for them"
)


# ---- members ----


def check_members(state: GroupState, commands: Commands) -> Iterator[Finding]:
    """Report malformed znodes, registrations that cause problems, and a group without members."""
    for path, error in state.unreadable.items():
        problem = error.removeprefix(path).removeprefix(":").strip()
        code, partitions = _effect_of_znode(path)
        yield Finding(problem, path, _remedy_of_znode(path, commands), code, partitions, state.written_at[path])
    for consumer_id, member in state.members.items():
        content = json.loads(state.registrations[consumer_id])
        yield from _check_jvm_compatibility(consumer_id, content)
        if member.is_filter:
            yield from _check_filter(consumer_id, member, content)
    if not state.users:
        yield Finding(
            "the group has no members, so nothing is consumed",
            f"group {state.group}",
            f"start a member; if the group is no longer used, delete it: {commands.delete_group()}",
            "no_members",
        )


def _effect_of_znode(path: str) -> tuple[str, tuple[TopicPartition, ...]]:
    """Return the ``HealthReason`` code for a malformed znode, and the affected partitions.

    The code is "" if the znode does not prevent progress.
    """
    *_, topic, name = path.split("/")
    number = parse_partition_number(name)
    if "/ids/" in path:
        return "registration_invalid", ()
    if "/offsets/" in path and number is not None:
        return "rebalance_failed", (TopicPartition(topic, number),)
    return "", ()


def _remedy_of_znode(path: str, commands: Commands) -> str:
    *_, topic, name = path.split("/")
    number = parse_partition_number(name)
    if "/ids/" in path:
        return "every JVM member fails to rebalance while this znode exists; stop the program that created it"
    if "/owners/" in path:
        return (
            "a client such as pykafka creates owner znodes with names of this form; the members of this group ignore "
            "them and read the same partitions; use a different group.id for that client"
        )
    if number is None:
        return "no member of this group reads this znode; delete it unless a Kafka 0.7 consumer needs it"
    return (
        "set this znode to the next offset to be consumed; to apply auto.offset.reset instead, stop the members and "
        f"delete the offset: {commands.delete_offset(TopicPartition(topic, number))}"
    )


def _check_jvm_compatibility(consumer_id: str, content: Mapping[str, Any]) -> Iterator[Finding]:
    """Report a registration that zkconsumer accepts but that makes every rebalance of a JVM member fail.

    JVM members before 1.0 reject a registration if any number in its JSON is not a 32-bit integer.

    Source: Kafka 0.8.2 kafka.utils.Json.
    """
    reasons = [
        f"{key} {excerpt(str(number))} is not a 32-bit integer, as JVM members before 1.0 require"
        for key in ("version", "timestamp")
        if isinstance(number := content.get(key), int | float)
        and not (type(number) is int and -(1 << 31) <= number < 1 << 31)
    ]
    if not all(type(count) is int for count in content["subscription"].values()):
        reasons.append("a stream count is not an integer")
    if reasons:
        yield Finding(
            f"JVM members cannot read the registration of {consumer_id}: {'; '.join(reasons)}",
            f"member {consumer_id}",
            "stop this member; JVM members fail to rebalance while it is registered",
        )


def _check_filter(consumer_id: str, member: Registration, content: Mapping[str, Any]) -> Iterator[Finding]:
    [expression] = member.subscription
    if "\\\\" in expression:
        yield Finding(
            f"topic filter {excerpt(expression)} is escaped twice (KAFKA-6319 in Kafka 1.0.1 to 1.1), so it matches no "
            "topic",
            f"member {consumer_id}",
            "use an expression without backslashes, such as [.] for a dot",
        )
    if len(content["subscription"]) > 1:
        yield Finding(
            f"registration of {consumer_id} contains {len(content['subscription'])} topic filters, as written by "
            f"kafka-node; JVM members and zkconsumer use only the first, {excerpt(expression)}",
            f"member {consumer_id}",
            _MIXED_CLIENTS,
        )


# ---- owners ----


def check_owners(
    state: GroupState, threads: Mapping[str, list[str]], partitions: Mapping[str, list[int]]
) -> Iterator[Finding]:
    """Report topics that do not exist, partitions without a valid owner, and mixed clients or assignment strategies.

    Args:
        threads: ids of the threads subscribed to each topic.
        partitions: partition numbers of each existing topic.
    """
    for topic in sorted(threads.keys() - partitions.keys()):
        yield Finding(
            f"the topic does not exist, but {len(threads[topic])} threads subscribe to it",
            f"topic {topic}",
            "create the topic, or correct the subscription or the chroot of zookeeper.connect",
        )
    other_clients = sorted(set(state.owners.values()) & state.sessions.keys())
    for consumer_id in other_clients:
        owned = [str(partition) for partition, owner in sorted(state.owners.items()) if owner == consumer_id]
        yield Finding(
            f"member {consumer_id} is not a JVM member or zkconsumer, but a client such as kafka-node or "
            f"wvanbergen/kafka: its owner znodes ({len(owned)}, first: {owned[0]}) have no thread number",
            f"member {consumer_id}",
            _MIXED_CLIENTS,
        )
    yield from _check_each_owner(state, threads)
    yield from _check_unowned(state, threads, partitions, other_clients)
    yield from _check_strategy(state, threads, partitions)


def _check_each_owner(state: GroupState, threads: Mapping[str, list[str]]) -> Iterator[Finding]:
    for partition, owner in sorted(state.owners.items()):
        problem = _problem_of_owner(state, threads, partition, owner)
        if problem is not None:
            text, remedy = problem
            since = state.written_at[GroupPaths(state.group).owner(partition)]
            yield Finding(text, f"partition {partition}", remedy, "partition_not_released", (partition,), since)


def _problem_of_owner(
    state: GroupState, threads: Mapping[str, list[str]], partition: TopicPartition, owner: str
) -> tuple[str, str] | None:
    """Return the problem of an owner znode and its remedy, or None if there is no problem."""
    member = state.find_consumer(owner)
    if state.owner_sessions[partition] == 0:
        return (
            f"owner znode of {excerpt(owner)} is persistent, so it is not deleted when a session ends",
            "delete the znode if no process reads the partition; no member can claim the partition while it exists",
        )
    if member not in state.sessions:
        return (
            f"owner {excerpt(owner)} is not a member of the group",
            "stop the owner's process; if it already terminated, the znode will be deleted when the session expires",
        )
    if state.owner_sessions[partition] != state.sessions[member]:
        return (
            f"owner znode and registration of {excerpt(owner)} belong to different sessions: the owner znode will be "
            "deleted, and two members may read the partition",
            "restart this member",
        )
    if member != owner and owner not in threads.get(partition.topic, ()):
        return f"owner {excerpt(owner)} does not subscribe to the topic", "restart this member"
    return None


def _check_unowned(
    state: GroupState,
    threads: Mapping[str, list[str]],
    partitions: Mapping[str, list[int]],
    other_clients: list[str],
) -> Iterator[Finding]:
    owned = set(state.owners)
    cause = f" Another cause may be the client {', '.join(other_clients)}." if other_clients else ""
    for topic in sorted(threads):
        for number in partitions.get(topic, ()):
            if threads[topic] and (topic, number) not in owned:
                yield Finding(
                    "the partition has no owner, so it is not consumed",
                    f"partition {topic}-{number}",
                    "a rebalance may be in progress: run this tool again in a few seconds. JVM members that gave up "
                    '("can\'t rebalance after 4 retries") rebalance only when the group changes: '
                    f"restart one of them.{cause}",
                    "rebalance_failed",
                    (TopicPartition(topic, number),),
                )


def _check_strategy(
    state: GroupState, threads: Mapping[str, list[str]], partitions: Mapping[str, list[int]]
) -> Iterator[Finding]:
    """Report members that own partitions according to different assignment strategies, or to no known strategy."""
    owners = {p: owner for p, owner in state.owners.items() if owner in threads.get(p.topic, ())}
    members = {state.find_consumer(owner) for owner in owners.values()}
    if len(members) < 2:
        return
    followers: dict[str, set[str]] = {}
    for strategy, order, assignment in candidate_assignments(partitions, threads):
        for member in members:
            owned = {p: owner for p, owner in owners.items() if state.find_consumer(owner) == member}
            if owned.items() <= assignment.items():
                followers.setdefault(f"{strategy} {order}".strip(), set()).add(member)
    if members in followers.values():
        return
    if not followers:
        yield Finding(
            "the partition owners do not match any assignment strategy of Kafka's old consumer",
            f"group {state.group}",
            f"a rebalance may be in progress: run this tool again in a few seconds. Otherwise, {_MIXED_CLIENTS}",
            "partition_not_released",
        )
        return
    detail = "; ".join(f"{name}: {', '.join(sorted(names))}" for name, names in followers.items())
    yield Finding(
        f"the members use different partition assignment strategies and block each other permanently ({detail})",
        f"group {state.group}",
        "set the same partition.assignment.strategy for all members; with roundrobin, JVM members before 1.0 cannot "
        "share a group with later versions (KAFKA-5822)",
        "partition_not_released",
    )
