"""Tests of the assignors against results of the JVM, and their properties for random groups."""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter
from itertools import cycle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkconsumer.config.properties import ROUND_ROBIN_ORDERS
from zkconsumer.errors import AssignmentError
from zkconsumer.message import TopicPartition
from zkconsumer.rebalance.assignors import (
    STRATEGIES,
    assign,
    assign_flink,
    assign_range,
    assign_roundrobin,
    candidate_assignments,
    group_threads_by_topic,
)
from zkconsumer.zookeeper.registry import Registration

Threads = dict[str, list[str]]


def owners(topic: str, partitions: int, threads: Threads, others: dict[str, int] | None = None) -> list[str]:
    """Return the owner of each partition of a topic, in numeric order."""
    sizes = {topic: partitions} | (others or {})
    result = assign_range({name: list(range(size)) for name, size in sizes.items()}, threads)
    return [result[TopicPartition(topic, number)] for number in range(partitions)]


def group(**members: Registration) -> dict[str, Registration]:
    return {f"g1_{name}": registration for name, registration in members.items()}


# ---- reference, section 3.6: results of Kafka's classes ---------------------------------------------


def test_v1_range_two_members_two_threads_two_topics() -> None:
    both = Registration({"orders": 2, "payments": 2})
    threads = group_threads_by_topic(group(a=both, b=both), ["orders", "payments"])

    assert owners("orders", 6, threads) == ["g1_a-0", "g1_a-0", "g1_a-1", "g1_a-1", "g1_b-0", "g1_b-1"]
    assert owners("payments", 4, threads) == ["g1_a-0", "g1_a-1", "g1_b-0", "g1_b-1"]


def test_v2_range_orders_threads_as_text() -> None:
    threads = group_threads_by_topic(group(c=Registration({"wide": 12})), ["wide"])

    numbers = [0, 0, 1, 1, 10, 11, 2, 3, 4, 5, 6, 7, 8, 9]
    assert owners("wide", 14, threads) == [f"g1_c-{number}" for number in numbers]


def test_v3_range_first_threads_get_one_more() -> None:
    one = Registration({"orders": 2})
    threads = group_threads_by_topic(group(a=one, b=one), ["orders"])

    assert owners("orders", 5, threads) == ["g1_a-0", "g1_a-0", "g1_a-1", "g1_b-0", "g1_b-1"]


# ---- cases ------------------------------------------------------------------------------------------


def test_range_uses_numeric_order_of_partitions() -> None:
    result = assign_range({"t": [10, 9, 100, 2]}, {"t": ["b", "a"]})

    assert result == {
        TopicPartition("t", 2): "a",
        TopicPartition("t", 9): "a",
        TopicPartition("t", 10): "b",
        TopicPartition("t", 100): "b",
    }


def test_surplus_threads_get_no_partition() -> None:
    assert assign_range({"t": [0]}, {"t": ["a", "b", "c"]}) == {TopicPartition("t", 0): "a"}


@pytest.mark.parametrize(
    ("partitions", "threads"),
    [({}, {"t": ["a"]}), ({"t": []}, {"t": ["a"]}), ({"t": [0]}, {"t": []}), ({"t": [0]}, {}), ({}, {})],
)
def test_empty_input_assigns_nothing(partitions: dict[str, list[int]], threads: Threads) -> None:
    assert assign_range(partitions, threads) == {}


def test_only_subscribed_threads_are_assigned() -> None:
    members = group(
        a=Registration({"orders": 2, "other": 1}),
        b=Registration({"payments": 1}),
        c=Registration({"orders": 1}),
    )

    assert group_threads_by_topic(members, ["orders", "nobody"]) == {
        "orders": ["g1_a-0", "g1_a-1", "g1_c-0"],
        "nobody": [],
    }


def test_empty_subscription_changes_nothing() -> None:
    alone = group(a=Registration({"orders": 1}))

    assert group_threads_by_topic(alone, ["orders"]) == group_threads_by_topic(
        alone | group(b=Registration({})), ["orders"]
    )


# ---- random groups ----------------------------------------------------------------------------------

topic_names = st.sampled_from(["orders", "payments", "clicks", "AaAa", "BBBB"])
consumer_ids = st.from_regex(r"g_[a-zA-Z0-9._-]{1,8}", fullmatch=True)
subscriptions = st.dictionaries(topic_names, st.integers(1, 12), max_size=4)
groups = st.dictionaries(consumer_ids, subscriptions.map(Registration), min_size=1, max_size=8)
topics = st.dictionaries(topic_names, st.sets(st.integers(0, 200), max_size=40).map(list), max_size=5)


@given(members=groups, partitions=topics)
def test_every_partition_has_one_subscribed_owner(
    members: dict[str, Registration], partitions: dict[str, list[int]]
) -> None:
    threads = group_threads_by_topic(members, partitions)

    result = assign_range(partitions, threads)

    assert sorted(result) == sorted(
        TopicPartition(topic, number) for topic, numbers in partitions.items() if threads[topic] for number in numbers
    )
    assert all(thread in threads[partition.topic] for partition, thread in result.items())


@given(members=groups, partitions=topics)
def test_range_differs_by_at_most_one_partition(
    members: dict[str, Registration], partitions: dict[str, list[int]]
) -> None:
    threads = group_threads_by_topic(members, partitions)

    result = assign_range(partitions, threads)

    for topic, ids in threads.items():
        counts = Counter(thread for partition, thread in result.items() if partition.topic == topic)
        shares = [counts[thread] for thread in sorted(ids)]
        assert shares == sorted(shares, reverse=True)
        assert not shares or shares[0] - shares[-1] <= 1


@given(members=groups, partitions=topics)
def test_range_assigns_adjacent_partitions(members: dict[str, Registration], partitions: dict[str, list[int]]) -> None:
    result = assign_range(partitions, group_threads_by_topic(members, partitions))

    for topic, numbers in partitions.items():
        row = [result[TopicPartition(topic, n)] for n in sorted(numbers) if TopicPartition(topic, n) in result]
        assert row == sorted(row)


@given(members=groups, partitions=topics, seed=st.integers())
def test_assignment_is_independent_of_input_order(
    members: dict[str, Registration], partitions: dict[str, list[int]], seed: int
) -> None:
    shuffled = random.Random(seed)
    names, numbers = list(members), {topic: list(row) for topic, row in partitions.items()}
    shuffled.shuffle(names)
    for row in numbers.values():
        shuffled.shuffle(row)
    order = list(partitions)
    shuffled.shuffle(order)

    result = assign_range(
        {topic: numbers[topic] for topic in order},
        group_threads_by_topic({name: members[name] for name in names}, order),
    )

    assert result == assign_range(partitions, group_threads_by_topic(members, partitions))


@given(members=groups, partitions=topics)
def test_assignment_needs_only_own_topics(members: dict[str, Registration], partitions: dict[str, list[int]]) -> None:
    whole = assign_range(partitions, group_threads_by_topic(members, partitions))

    for consumer_id, registration in members.items():
        own = {topic: partitions[topic] for topic in registration.subscription if topic in partitions}
        alone = assign_range(own, group_threads_by_topic(members, own))
        expected = {p: thread for p, thread in whole.items() if thread.rpartition("-")[0] == consumer_id}
        assert {p: thread for p, thread in alone.items() if thread.rpartition("-")[0] == consumer_id} == expected


# ---- round-robin: reference, section 3.6 -------------------------------------------------------------


def round_robin(topic: str, partitions: dict[str, int], threads: Threads, order: str) -> list[str]:
    """Return the owner of each partition of a topic, assigned round-robin over all topics."""
    result = assign_roundrobin({name: list(range(size)) for name, size in partitions.items()}, threads, order)
    assert len(result) == sum(partitions.values())
    return [result[TopicPartition(topic, number)] for number in range(partitions[topic])]


@pytest.mark.parametrize("order", ROUND_ROBIN_ORDERS)
def test_v4_roundrobin_two_topics_in_both_orders(order: str) -> None:
    both = Registration({"orders": 2, "payments": 2})
    threads = group_threads_by_topic(group(a=both, b=both), ["payments", "orders"])
    sizes = {"orders": 6, "payments": 4}

    assert round_robin("orders", sizes, threads, order) == ["g1_a-0", "g1_a-1", "g1_b-0", "g1_b-1", "g1_a-0", "g1_a-1"]
    assert round_robin("payments", sizes, threads, order) == ["g1_b-0", "g1_b-1", "g1_a-0", "g1_a-1"]


@pytest.mark.parametrize("order", ROUND_ROBIN_ORDERS)
def test_v5_roundrobin_orders_threads_as_text(order: str) -> None:
    threads = group_threads_by_topic(group(c=Registration({"wide": 12})), ["wide"])

    numbers = [0, 1, 10, 11, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]
    assert round_robin("wide", {"wide": 14}, threads, order) == [f"g1_c-{number}" for number in numbers]


def test_v6_roundrobin_hash_interleaves_topics() -> None:
    threads = group_threads_by_topic(
        group(a=Registration({"clicks": 1, "views": 1}), b=Registration({"clicks": 2, "views": 2})), ["clicks", "views"]
    )
    order = ["clicks10", "clicks11", *(f"views{n}" for n in range(10)), *(f"clicks{n}" for n in range(10)), "views10"]
    expected = dict(zip(order, cycle(["g1_a-0", "g1_b-0", "g1_b-1"]), strict=False))

    for topic, size in (("clicks", 12), ("views", 11)):
        result = round_robin(topic, {"clicks": 12, "views": 11}, threads, "1.0")
        assert result == [expected[f"{topic}{number}"] for number in range(size)]


@pytest.mark.parametrize(
    ("order", "expected"),
    [("1.0", "cabcabcabcab"), ("0.10.2", "abcabcabcabc"), ("0.8.2", "abcabcabcabc")],
)
def test_v7_v8_roundrobin_differs_from_1_0_on(order: str, expected: str) -> None:
    one = Registration({"orders": 1})
    threads = group_threads_by_topic(group(a=one, b=one, c=one), ["orders"])

    assert round_robin("orders", {"orders": 12}, threads, order) == [f"g1_{letter}-0" for letter in expected]


def test_v9_roundrobin_skips_unsubscribed_threads() -> None:
    threads = group_threads_by_topic(
        group(a=Registration({"orders": 1}), b=Registration({"orders": 1, "payments": 1})), ["orders", "payments"]
    )
    sizes = {"orders": 6, "payments": 4}

    assert round_robin("orders", sizes, threads, "1.0") == ["g1_a-0", "g1_b-0"] * 3
    assert round_robin("payments", sizes, threads, "1.0") == ["g1_b-0"] * 4
    with pytest.raises(AssignmentError, match="Round-robin assignment is allowed only if all consumers"):
        round_robin("orders", sizes, threads, "0.8.2")


def test_equal_hashes_are_ordered_by_topic_and_partition() -> None:
    threads = {"AaAa": ["t-0", "t-1"], "BBBB": ["t-1", "t-0"]}

    result = assign_roundrobin({"BBBB": [0], "AaAa": [0]}, threads)

    assert result == {TopicPartition("AaAa", 0): "t-0", TopicPartition("BBBB", 0): "t-1"}


@given(
    st.dictionaries(st.text("abc", min_size=1, max_size=3), st.integers(0, 12), max_size=5),
    st.dictionaries(
        st.text("xyz", min_size=1, max_size=2),
        st.dictionaries(st.text("abc", min_size=1, max_size=3), st.integers(1, 3), max_size=5),
        min_size=1,
        max_size=4,
    ),
)
def test_roundrobin_assigns_each_partition_once(
    sizes: dict[str, int], subscriptions: dict[str, dict[str, int]]
) -> None:
    members = {name: Registration(topics) for name, topics in subscriptions.items()}
    threads = group_threads_by_topic(members, sizes)

    result = assign_roundrobin({name: list(range(size)) for name, size in sizes.items()}, threads)

    expected = {TopicPartition(t, n) for t, size in sizes.items() for n in range(size) if threads[t]}
    assert result.keys() == expected
    assert all(thread in threads[partition.topic] for partition, thread in result.items())


# ---- 2,000 random groups, assigned by Kafka's own classes ---------------------------------------------

JVM_ANSWERS = json.loads(gzip.decompress(Path(__file__).with_name("jvm_assignments.json.gz").read_bytes()))


@pytest.mark.parametrize(("release", "order"), [("0.8.2.2", "0.8.2"), ("0.11.0.3", "0.10.2"), ("1.1.1", "1.0")])
@pytest.mark.parametrize("strategy", ["range", "roundrobin"])
def test_assignments_equal_those_of_jvm_classes(strategy: str, release: str, order: str) -> None:
    """The expected results were computed by ``tests/interop/assignments.py``."""
    partitions = {topic: list(range(size)) for topic, size in JVM_ANSWERS["topics"].items()}
    refused = 0
    for entry in JVM_ANSWERS["groups"]:
        members = {name: Registration(topics) for name, topics in entry["members"].items()}
        threads = group_threads_by_topic(
            members, {topic for member in members.values() for topic in member.subscription}
        )
        expected = entry[strategy][release]
        if expected == "raises":
            refused += 1
            with pytest.raises(AssignmentError):
                assign(strategy, order, partitions, threads)
        else:
            result = assign(strategy, order, partitions, threads)
            assert {f"{topic},{number}": thread for (topic, number), thread in result.items()} == expected
    assert len(JVM_ANSWERS["groups"]) >= 2000
    assert (refused > 0) is (strategy == "roundrobin" and release == "0.8.2.2")


# ---- flink: computed by Flink's formula on a JVM -----------------------------------------------------


@pytest.mark.parametrize(
    ("topic", "three", "starts"),
    [
        ("orders", [0, 1, 2, 0, 1, 2, 0, 1], (3, 4, 3)),
        ("transactions", [1, 2, 0, 1, 2, 0, 1, 2], (3, 0, 5)),
        ("logs", [2, 0, 1, 2, 0, 1, 2, 0], (1, 2, 4)),
        ("payments", [0, 1, 2, 0, 1, 2, 0, 1], (3, 1, 4)),
        ("test-topic", [0, 1, 2, 0, 1, 2, 0, 1], (0, 1, 5)),
        ("events", [2, 0, 1, 2, 0, 1, 2, 0], (3, 2, 6)),
    ],
)
def test_flink_starts_at_hash_of_topic(topic: str, three: list[int], starts: tuple[int, int, int]) -> None:
    threads = {topic: ["g_c-0", "g_a-0", "g_b-0"]}
    result = assign("flink", "", {topic: [5, 3, 4, 0, 1, 2, 7, 6]}, threads)
    in_order = sorted(threads[topic])
    assert [result[TopicPartition(topic, number)] for number in range(8)] == [in_order[index] for index in three]
    for members, start in zip((4, 5, 7), starts, strict=True):
        ids = [f"g_{number}-0" for number in range(members)]
        assert assign_flink({topic: [0]}, {topic: ids}) == {TopicPartition(topic, 0): ids[start]}


@given(st.integers(0, 40), st.integers(1, 12), st.from_regex(r"\A[a-zA-Z0-9._-]{1,30}\Z"))
def test_flink_assigns_each_partition_once(partitions: int, members: int, topic: str) -> None:
    ids = [f"g_{number:02}-0" for number in range(members)]
    result = assign_flink({topic: range(partitions)}, {topic: ids})
    assert set(result) == {TopicPartition(topic, number) for number in range(partitions)}
    counts = [Counter(result.values())[thread] for thread in ids]
    assert max(counts) - min(counts) <= 1


def test_flink_ignores_unsubscribed_topics() -> None:
    assert assign_flink({"t": [0, 1]}, {"t": []}) == {}
    assert assign_flink({"t": [0], "u": [0]}, {"t": [], "u": ["g_a-0"]}) == {TopicPartition("u", 0): "g_a-0"}


def test_candidates_are_those_that_can_assign() -> None:
    partitions = {"a": [0, 1], "b": [0]}
    same = {"a": ["c-0", "d-0"], "b": ["c-0", "d-0"]}
    different = {"a": ["c-0", "d-0"], "b": ["c-0"]}

    assert [(name, order) for name, order, _ in candidate_assignments(partitions, same)] == list(STRATEGIES)
    assert "0.8.2" not in [order for _, order, _ in candidate_assignments(partitions, different)]
    for name, order, assignment in candidate_assignments(partitions, different):
        assert assignment == assign(name, order, partitions, different)
