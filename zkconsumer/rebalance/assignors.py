"""Who gets which partition: pure functions that every member of a group computes alike.

Source: Kafka 1.1 kafka.consumer.RangeAssignor, kafka.consumer.AssignmentContext.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from zkconsumer.message import TopicPartition
from zkconsumer.registry import Registration, thread_ids

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
