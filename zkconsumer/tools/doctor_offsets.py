"""Checks that ``doctor`` performs on committed offsets."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping

from zkconsumer.broker.leaders import no_leader_error
from zkconsumer.errors import ZkConsumerError
from zkconsumer.health import health_code
from zkconsumer.log_ends import EARLIEST, LATEST
from zkconsumer.message import TopicPartition
from zkconsumer.offsets.access import Access
from zkconsumer.tools import group_state, output
from zkconsumer.tools.findings import Commands, Finding
from zkconsumer.tools.group_state import GroupState

#: Seconds to wait before differing offsets are read again if the group has members: a member with
#: ``dual.commit.enabled`` commits to the two storages one after the other.
_DUAL_COMMIT_S = 0.5


def check(
    state: GroupState,
    access: Access,
    commands: Commands,
    partitions: Mapping[str, list[int]],
    stale_after_s: float,
) -> Iterator[Finding]:
    """Report problems with committed offsets, unavailable brokers and leaders, and lag of a group without members.

    A committed offset is a problem if it is negative or out of range, if its partition does not exist, if Kafka and
    ZooKeeper store different offsets for the partition, or if it is stale: the partition has lag, and the offset was
    committed too long ago.

    Args:
        partitions: partition numbers of each existing topic.
        stale_after_s: age of the last commit, in seconds, above which a partition with lag is reported.
    """
    existing = [TopicPartition(topic, number) for topic in sorted(partitions) for number in partitions[topic]]
    leaderless = list(_check_leaders(state, access, existing))
    yield from leaderless
    skipped = {partition for finding in leaderless for partition in finding.partitions}
    has_brokers = all(finding.partitions for finding in leaderless)
    readable = [partition for partition in existing if partition not in skipped] if has_brokers else []
    coordinator = access.coordinator()
    in_kafka, notes = group_state.in_kafka(coordinator, readable)
    # Owned partitions without an offset in ZooKeeper presumably have one in Kafka.
    in_kafka_only = tuple(sorted(state.owners.keys() - state.offsets.keys()))
    for note in notes:
        remedy = "check the brokers; only the offsets in ZooKeeper were checked"
        yield Finding(note, "brokers", remedy, "commit_failed" if in_kafka_only else "", in_kafka_only)
    differing = group_state.differing_offsets(state, in_kafka)
    if differing and state.users:
        time.sleep(_DUAL_COMMIT_S)
        later = group_state.differing_offsets(
            group_state.read(access.session, state.group), group_state.in_kafka(coordinator, readable)[0]
        )
        differing = {p: both for p, both in differing.items() if p in later and min(both) == min(later[p])}
    yield from _check_storages(state, commands, existing, differing)
    yield from _check_logs(state, access, commands, group_state.furthest(state, readable, in_kafka), stale_after_s)


def _check_storages(
    state: GroupState,
    commands: Commands,
    existing: Iterable[TopicPartition],
    differing: Mapping[TopicPartition, tuple[int, int]],
) -> Iterator[Finding]:
    """Report offsets that differ between Kafka and ZooKeeper, are negative, or belong to no existing partition."""
    if differing:
        yield Finding(
            group_state.describe_differing(differing),
            f"group {state.group}",
            "stop the members, then overwrite the offsets in the storage that they do not use. If "
            f"offsets.storage=kafka: {commands.copy_offsets('zookeeper')}; otherwise: {commands.copy_offsets('kafka')}",
        )
    for partition, content in sorted(state.negative_offsets.items()):
        yield Finding(
            f"the offset in ZooKeeper is negative ({content}), so it is ignored",
            f"partition {partition}",
            "auto.offset.reset applies when the partition is consumed next; to delete the offset: "
            f"{commands.delete_offset(partition)}",
        )
    for partition in sorted(state.offsets.keys() - state.negative_offsets.keys() - set(existing)):
        yield Finding(
            f"the group has an offset ({state.offsets[partition]}) for a partition that does not exist; if the "
            "partition is created later, consumption starts at this offset",
            f"partition {partition}",
            f"delete the offset: {commands.delete_offset(partition)}",
        )


def _check_leaders(state: GroupState, access: Access, partitions: Iterable[TopicPartition]) -> Iterator[Finding]:
    """Report unavailable brokers, partitions without a leader, and topics to which access is denied."""
    try:
        errors = access.leaders().look_up(access.cluster.brokers(), partitions).errors
    except ZkConsumerError as error:
        remedy = "check the brokers; nothing can be consumed without them. The offsets were not compared with the logs"
        yield Finding(str(error), "brokers", remedy, "leader_not_found" if state.owners or state.application else "")
        return
    for partition, error_code in sorted(errors.items()):
        failure = no_leader_error(error_code, partition)
        code = health_code(failure, "leader_not_found")
        remedy = "check the brokers and the ACLs of the topic; the partition cannot be consumed until this is fixed"
        yield Finding(
            str(failure), f"partition {partition}", remedy, code if state.find_reader(partition) else "", (partition,)
        )


def _check_logs(
    state: GroupState,
    access: Access,
    commands: Commands,
    offsets: Mapping[TopicPartition, int],
    stale_after_s: float,
) -> Iterator[Finding]:
    """Compare committed offsets with the logs."""
    logs = access.logs()
    try:
        starts, failed = group_state.log_offsets(logs, offsets, EARLIEST)
        ends, _ = group_state.log_offsets(logs, starts, LATEST)
    except ZkConsumerError as error:
        yield Finding(str(error), "brokers", "check the brokers; the offsets were not compared with the logs")
        return
    for partition, error_text in failed.items():
        yield Finding(
            error_text,
            f"partition {partition}",
            "check the brokers; the partition cannot be consumed until it has a leader",
            "leader_not_found",
            (partition,),
        )
    for partition, end in ends.items():
        yield from _check_offset(state, commands, partition, offsets[partition], starts[partition], end, stale_after_s)


def _check_offset(
    state: GroupState,
    commands: Commands,
    partition: TopicPartition,
    offset: int,
    start: int,
    end: int,
    stale_after_s: float,
) -> Iterator[Finding]:
    """Check a committed offset against the log start offset and the end offset."""
    where = f"partition {partition}"
    if start <= offset <= end:
        if offset < end:
            yield from _check_lag(state, partition, offset, end - offset, stale_after_s)
        return
    remedy = "auto.offset.reset applies when the partition is consumed next"
    if offset == state.offsets.get(partition):
        remedy += f"; to start at the log start offset instead: {commands.set_offset(partition, start)}"
    yield Finding(
        f"offset {offset} is out of range: the log start offset is {start}, and the end offset is {end}",
        where,
        remedy,
    )


def _check_lag(
    state: GroupState, partition: TopicPartition, offset: int, lag: int, stale_after_s: float
) -> Iterator[Finding]:
    """Check whether a member consumes a partition that has lag."""
    where, records = f"partition {partition}", output.count(lag, "record")
    if reader := state.find_reader(partition):
        # The commit time of an offset in Kafka is unknown.
        is_in_zookeeper = offset == state.offsets.get(partition)
        if is_in_zookeeper and (age := time.time() - state.stored_at[partition]) > stale_after_s:
            yield Finding(
                f"offset {offset} was last committed {age:.0f} s ago; lag {records}",
                where,
                f"check whether {reader} still processes records",
                "commit_failed",
                (partition,),
                state.stored_at[partition],
            )
    elif not state.sessions:
        yield Finding(f"lag {records}, no active member", where, "start a member of the group")
