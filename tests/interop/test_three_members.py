"""A JVM consumer, a plain consumer and a Spark query in one group."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest
from helpers.waiting import wait_for

from .jvm import ChildConsumer, jvm_consumer, our_consumer, spark_query
from .neighbours import Neighbours

#: Seconds for which the three members share the group.
SECONDS = 60


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_three_kinds_of_members_deliver_their_ranges(neighbours: Callable[..., Neighbours]) -> None:
    """All records are delivered, and exactly once while the group does not change."""
    group = neighbours()
    # Members join one by one and have long sessions, so a busy machine does not cause failures.
    spark = group.join(spark_query, zookeeper_session_timeout_ms=10_000)
    group.wait_until_committed()
    jvm = group.join(jvm_consumer, zookeeper_session_timeout_ms=10_000)
    group.wait_until_committed()
    group.join(our_consumer, zookeeper_session_timeout_ms=10_000)
    shares = group.wait_until_balanced()
    assert sorted(map(len, shares.values())) == [2, 3, 3]
    wait_for(lambda: assignment_in_log(jvm, group) == shares, what="the JVM has computed the same assignment")

    group.wait_until_committed()
    begin = group.load.written
    over = time.monotonic() + SECONDS
    wait_for(lambda: time.monotonic() > over or not all(member.is_running for member in group.alive), SECONDS + 1)
    end = group.load.stop()

    group.wait_until_read(end)
    assert group.wait_until_balanced() == shares
    delivered = {
        name: sorted({group.load.partition_of(number).partition for number in numbers if number >= begin})
        for name, numbers in group.read_by.items()
    }
    assert delivered == shares
    assert [number for number in range(begin, end) if group.read[number] != 1] == []
    assert group.failures == []
    group.leave(spark)
    assert group.wait_until_balanced()


def assignment_in_log(jvm: ChildConsumer, group: Neighbours) -> dict[str, list[int]]:
    """Return the partitions by member from the JVM's log of its last rebalance."""
    last = jvm.log.read_text().rpartition(" rebalancing the following partitions")[2]
    shares: dict[str, list[int]] = {}
    for thread, partition in re.findall(r"INFO (\S+) attempting to claim partition (\d+) \(kafka.consumer.Range", last):
        shares.setdefault(group.names[thread.rpartition("-")[0]], []).append(int(partition))
    return shares
