"""Partition assignment strategies: pure functions that return the same result in every group member.

Source: Kafka 1.1 kafka.consumer.PartitionAssignor, RangeAssignor, RoundRobinAssignor; Flink 1.15
KafkaTopicPartitionAssigner.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import cycle

from zkconsumer.config.properties import ROUND_ROBIN_ORDERS
from zkconsumer.errors import AssignmentError
from zkconsumer.javahash import java_hash
from zkconsumer.message import TopicPartition
from zkconsumer.zookeeper.registry import Registration, thread_ids

#: Thread ids by partition.
Assignment = dict[TopicPartition, str]


def group_threads_by_topic(members: Mapping[str, Registration], topics: Iterable[str]) -> dict[str, list[str]]:
    """For each topic, return the thread ids of all members subscribed to it.

    Args:
        members: registrations by consumer id; topic filters must already be expanded to topics.
        topics: topic names.
    """
    threads: dict[tuple[tuple[str, int], ...], list[str]] = {}  # topics with the same subscribers share one list
    by_topic = {}
    for topic in topics:
        subscribers = tuple((name, m.subscription[topic]) for name, m in members.items() if topic in m.subscription)
        if subscribers not in threads:
            threads[subscribers] = [thread for name, streams in subscribers for thread in thread_ids(name, streams)]
        by_topic[topic] = threads[subscribers]
    return by_topic


def assign_range(partitions: Mapping[str, Sequence[int]], threads: Mapping[str, Sequence[str]]) -> Assignment:
    """Assign contiguous ranges of each topic's partitions to the subscribed threads, in string order of thread ids.

    The first ``len(partitions) % len(threads)`` threads are assigned one additional partition. The result does not
    depend on the order of the arguments' items, because every member must compute the same assignment.

    Args:
        partitions: partition numbers by existing topic.
        threads: thread ids by topic, for all subscribed members of the group, including this member.

    Returns:
        the thread id of each partition; partitions of topics without threads are absent.

    Source: Kafka 1.1 RangeAssignor.assign.
    """
    assignment = {}
    for topic, ids in threads.items():
        if not ids:
            continue
        numbers = sorted(partitions.get(topic, ()))
        share, extra = divmod(len(numbers), len(ids))
        start = 0
        for index, thread in enumerate(sorted(ids)):
            end = start + share + (1 if index < extra else 0)
            for number in numbers[start:end]:
                assignment[TopicPartition(topic, number)] = thread
            start = end
    return assignment


def assign_roundrobin(
    partitions: Mapping[str, Sequence[int]], threads: Mapping[str, Sequence[str]], order: str = "1.0"
) -> Assignment:
    """Assign the partitions of all topics, sorted by hash code, round-robin to all threads of the group.

    Threads that do not subscribe to a partition's topic are skipped. Kafka 1.0 changed the string that is hashed
    (KAFKA-5822), so older and newer members in one group compute different assignments.

    Args:
        partitions: partition numbers by existing topic to which the group subscribes.
        threads: thread ids by topic, for all subscribed members of the group.
        order: value of ``roundrobin.order``. ``1.0`` hashes ``topic-0``; the other values hash ``[topic,0]``.
            ``0.8.2``, which represents versions up to 0.10.1, rejects groups in which some threads do not subscribe to
            all topics (KAFKA-2434 removed that check).

    Raises:
        AssignmentError: ``order`` is ``0.8.2``, and the members' subscriptions differ.

    Source: Kafka 1.1 RoundRobinAssignor.assign.
    """
    if order == "0.8.2" and len({frozenset(ids) for ids in threads.values()}) > 1:
        raise AssignmentError(
            "Round-robin assignment is allowed only if all consumers in the group subscribe to the same topics, AND "
            "if the stream counts across topics are identical for a given consumer instance. Kafka 0.10.2 removed this "
            "restriction: if no JVM member of the group runs an earlier version, set roundrobin.order to the value for "
            "their version: 0.10.2 (Kafka 0.10.2 and 0.11) or 1.0 (Kafka 1.0 and 1.1)"
        )
    all_threads = sorted({thread for ids in threads.values() for thread in ids})
    subscribers = {topic: frozenset(ids) for topic, ids in threads.items()}
    text = "{}-{}" if order == "1.0" else "[{},{}]"
    in_order = sorted(
        (TopicPartition(topic, number) for topic in threads if threads[topic] for number in partitions.get(topic, ())),
        key=lambda p: (java_hash(text.format(*p)), p),
    )
    candidates = cycle(all_threads)
    return {
        partition: next(thread for thread in candidates if thread in subscribers[partition.topic])
        for partition in in_order
    }


def assign_flink(partitions: Mapping[str, Sequence[int]], threads: Mapping[str, Sequence[str]]) -> Assignment:
    """Assign each topic's partitions round-robin to its threads, starting with a thread selected by topic hash code.

    The partition counts of any two threads for a topic differ by at most one. Different topics usually start with
    different threads, which balances topics with few partitions. No JVM consumer implements this strategy; it is for
    groups that replace a Flink job.

    Source: Flink 1.15 KafkaTopicPartitionAssigner.
    """
    assignment = {}
    for topic, ids in threads.items():
        if not ids:
            continue
        sorted_ids = sorted(ids)
        start = ((java_hash(topic) * 31) & 0x7FFFFFFF) % len(ids)
        for number in partitions.get(topic, ()):
            assignment[TopicPartition(topic, number)] = sorted_ids[(start + number) % len(ids)]
    return assignment


#: ``(partition.assignment.strategy, roundrobin.order)`` for each assignment strategy; the order is empty for strategies
#: that do not use it.
STRATEGIES = (("range", ""), *(("roundrobin", order) for order in ROUND_ROBIN_ORDERS), ("flink", ""))


def assign(
    strategy: str, order: str, partitions: Mapping[str, Sequence[int]], threads: Mapping[str, Sequence[str]]
) -> Assignment:
    """Assign partitions with the given ``partition.assignment.strategy`` and ``roundrobin.order``."""
    if strategy == "roundrobin":
        return assign_roundrobin(partitions, threads, order)
    if strategy == "flink":
        return assign_flink(partitions, threads)
    return assign_range(partitions, threads)


def candidate_assignments(
    partitions: Mapping[str, Sequence[int]], threads: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, str, Assignment]]:
    """Yield ``(strategy, order, assignment)`` for each strategy that can assign the group's partitions.

    Registrations do not contain the members' strategies, but owner znodes show which strategies are possible: those
    that assign each owned partition to its owner.
    """
    for strategy, order in STRATEGIES:
        try:
            yield strategy, order, assign(strategy, order, partitions, threads)
        except AssignmentError:
            continue
