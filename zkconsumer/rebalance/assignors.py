"""Who gets which partition: pure functions that every member of a group computes alike.

Source: Kafka 1.1 kafka.consumer.PartitionAssignor, RangeAssignor, RoundRobinAssignor; Flink 1.15
KafkaTopicPartitionAssigner.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle

from zkconsumer.config import ROUND_ROBIN_ORDERS
from zkconsumer.errors import AssignmentError
from zkconsumer.javahash import java_hash
from zkconsumer.message import TopicPartition
from zkconsumer.zookeeper.registry import Registration, thread_ids

#: Partition to thread id.
Assignment = dict[TopicPartition, str]


def threads_by_topic(members: Mapping[str, Registration], topics: Iterable[str]) -> dict[str, list[str]]:
    """Return the thread ids that read each of ``topics``, of all members.

    Args:
        members: consumer id to registration; those with a filter are for callers that resolve it first.
    """
    return {
        topic: [
            thread
            for consumer_id, registration in members.items()
            if topic in registration.subscription
            for thread in thread_ids(consumer_id, registration.subscription[topic])
        ]
        for topic in topics
    }


def assign_range(partitions: Mapping[str, Sequence[int]], threads: Mapping[str, Sequence[str]]) -> Assignment:
    """Give each topic's partitions, in numeric order, to its threads, in string order.

    The first ``len(partitions) % len(threads)`` threads get one partition more. Neither argument's order
    matters, since every member must compute the same.

    Args:
        partitions: partition numbers of each topic that exists.
        threads: all thread ids of the group that read each topic, this member's included.

    Returns:
        an owner for each partition of each topic that has threads.

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
    """Deal the partitions of all topics, in an order that looks random, to all threads of the group in turn.

    A thread that does not read the topic is skipped. The order is that of a hash of the partition's text, which
    Kafka 1.0 changed (KAFKA-5822), so members before and after it disagree in one group.

    Args:
        partitions: partition numbers of each topic that exists, of all topics that the group reads.
        threads: all thread ids of the group that read each topic.
        order: the setting ``roundrobin.order``. ``1.0`` hashes ``topic-0``, the others ``[topic,0]``; ``0.8.2`` to
            0.10.1 refuse groups in which not all threads read all topics (KAFKA-2434 lifted that).

    Raises:
        AssignmentError: the order is ``0.8.2`` and the members' subscriptions differ.

    Source: Kafka 1.1 RoundRobinAssignor.assign.
    """
    if order == "0.8.2" and len({frozenset(ids) for ids in threads.values()}) > 1:
        raise AssignmentError(
            "Round-robin assignment is allowed only if all consumers in the group subscribe to the same topics, AND "
            "if the stream counts across topics are identical for a given consumer instance. From 0.10.2 on it is "
            "allowed always: set roundrobin.order=0.10.2 where all members are that new"
        )
    everyone = sorted({thread for ids in threads.values() for thread in ids})
    readers = {topic: frozenset(ids) for topic, ids in threads.items()}
    text = "{}-{}" if order == "1.0" else "[{},{}]"
    dealt = sorted(
        (TopicPartition(topic, number) for topic in threads if threads[topic] for number in partitions.get(topic, ())),
        key=lambda p: (java_hash(text.format(*p)), p),
    )
    turn = cycle(everyone)
    return {partition: next(thread for thread in turn if thread in readers[partition.topic]) for partition in dealt}


def assign_flink(partitions: Mapping[str, Sequence[int]], threads: Mapping[str, Sequence[str]]) -> Assignment:
    """Give each topic's partitions to its threads, in string order, in turn, from the one that its name decides.

    A topic's partitions differ by at most one among its threads, and topics with few partitions begin with
    different threads. No JVM consumer deals so; whole groups move between Flink and here.

    Source: Flink 1.15 KafkaTopicPartitionAssigner.
    """
    assignment = {}
    for topic, ids in threads.items():
        if not ids:
            continue
        in_order = sorted(ids)
        start = ((java_hash(topic) * 31) & 0x7FFFFFFF) % len(ids)
        for number in partitions.get(topic, ()):
            assignment[TopicPartition(topic, number)] = in_order[(start + number) % len(ids)]
    return assignment


#: All ways of dealing: ``partition.assignment.strategy`` and ``roundrobin.order``, which the others have no use for.
WAYS = (("range", ""), *(("roundrobin", order) for order in ROUND_ROBIN_ORDERS), ("flink", ""))


def assign(
    strategy: str, order: str, partitions: Mapping[str, Sequence[int]], threads: Mapping[str, Sequence[str]]
) -> Assignment:
    """Assign as ``partition.assignment.strategy`` and ``roundrobin.order`` say."""
    if strategy == "roundrobin":
        return assign_roundrobin(partitions, threads, order)
    if strategy == "flink":
        return assign_flink(partitions, threads)
    return assign_range(partitions, threads)
