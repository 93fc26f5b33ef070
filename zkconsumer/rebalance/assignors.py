"""Partition assignment strategies: pure functions with the same result in every member of a group.

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

#: Partition to thread id.
Assignment = dict[TopicPartition, str]


def group_threads_by_topic(members: Mapping[str, Registration], topics: Iterable[str]) -> dict[str, list[str]]:
    """Return the thread ids of all members that subscribe to each of ``topics``.

    Args:
        members: consumer id to registration. Topic filters must have been replaced by the topics that they match.
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
    """Assign each topic's partitions, in numeric order, to its threads, in string order.

    The first ``len(partitions) % len(threads)`` threads are assigned one partition more. The order of the arguments
    does not matter, because every member must compute the same result.

    Args:
        partitions: partition numbers of each existing topic.
        threads: all thread ids of the group that subscribe to each topic, this member's included.

    Returns:
        a thread id for each partition of each topic that has threads.

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
    """Assign the partitions of all topics, in the order of their hash codes, to all threads of the group in turn.

    A thread that does not subscribe to the topic is skipped. The hashed text of a partition changed in Kafka 1.0
    (KAFKA-5822), so members of both kinds in one group compute different assignments.

    Args:
        partitions: partition numbers of each existing topic to which the group subscribes.
        threads: all thread ids of the group that subscribe to each topic.
        order: the property ``roundrobin.order``. ``1.0`` hashes ``topic-0``; the other values hash ``[topic,0]``.
            ``0.8.2``, which stands for versions up to 0.10.1, rejects groups in which some threads do not subscribe to
            all topics (KAFKA-2434 removed that check).

    Raises:
        AssignmentError: the order is ``0.8.2`` and the members' subscriptions differ.

    Source: Kafka 1.1 RoundRobinAssignor.assign.
    """
    if order == "0.8.2" and len({frozenset(ids) for ids in threads.values()}) > 1:
        raise AssignmentError(
            "Round-robin assignment is allowed only if all consumers in the group subscribe to the same topics, AND "
            "if the stream counts across topics are identical for a given consumer instance. Kafka 0.10.2 removed this "
            "restriction: set roundrobin.order=0.10.2 if all members of the group are at least that version"
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
    """Assign each topic's partitions to its threads, in string order, in turn; the topic's hash code selects the first.

    The numbers of a topic's partitions per thread differ by at most one, and topics with few partitions start at
    different threads. No JVM consumer has this strategy; it is for groups that replace a Flink job.

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


#: All assignment strategies: values of ``partition.assignment.strategy`` and ``roundrobin.order``. The order is empty
#: for strategies that ignore it.
STRATEGIES = (("range", ""), *(("roundrobin", order) for order in ROUND_ROBIN_ORDERS), ("flink", ""))


def assign(
    strategy: str, order: str, partitions: Mapping[str, Sequence[int]], threads: Mapping[str, Sequence[str]]
) -> Assignment:
    """Assign by the values of ``partition.assignment.strategy`` and ``roundrobin.order``."""
    if strategy == "roundrobin":
        return assign_roundrobin(partitions, threads, order)
    if strategy == "flink":
        return assign_flink(partitions, threads)
    return assign_range(partitions, threads)


def candidate_assignments(
    partitions: Mapping[str, Sequence[int]], threads: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, str, Assignment]]:
    """Yield the strategy, the order and the assignment of each strategy that can assign the partitions of a group.

    Registrations do not contain the strategies of the members. The owners of a member that uses a strategy are part of
    its assignment.
    """
    for strategy, order in STRATEGIES:
        try:
            yield strategy, order, assign(strategy, order, partitions, threads)
        except AssignmentError:
            continue
