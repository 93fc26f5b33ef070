"""Tests of the JSON of a query's offsets, and of the tasks of a batch."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import pytest
from helpers.batch_offsets import offset_json
from hypothesis import given
from hypothesis import strategies as st
from spark.queries import check_union

from zkconsumer import TopicPartition
from zkconsumer.errors import ConfigurationError
from zkconsumer.fetcher.manager import fetcher_id
from zkconsumer.message import Endpoint
from zkconsumer.spark.offset import (
    FORMAT_VERSION,
    INITIAL,
    BatchOffset,
    Ranges,
    check_format,
    from_offset,
    total,
)
from zkconsumer.spark.options.source_options import SourceOptions
from zkconsumer.spark.options.table import MAX_TASKS
from zkconsumer.spark.planning.splitting import group_ranges, split_ranges, tasks
from zkconsumer.zookeeper.registry import OFFSET_MAX, is_valid_topic_name

pytestmark = pytest.mark.timeout(60)

topics = st.text(st.sampled_from("abcXYZ019._-"), min_size=1, max_size=12).filter(is_valid_topic_name)
partitions = st.builds(TopicPartition, topics, st.integers(0, 300))
spans = st.tuples(st.integers(0, 1 << 62), st.integers(0, 1 << 62)).map(lambda pair: (min(pair), max(pair)))
range_maps = st.dictionaries(partitions, spans, max_size=30)
brokers = st.integers(0, 5).map(lambda node: (node, Endpoint("localhost", 9092 + node)))


def test_offset_json_is_sorted_numerically() -> None:
    ranges = {TopicPartition("b", 10): (0, 1), TopicPartition("b", 9): (5, 7), TopicPartition("a", 0): (3, 3)}
    text = json.dumps(offset_json(ranges, generation=4))
    start = f'{{"version": {FORMAT_VERSION}, "sequence": 0, "generation": 4, "ranges": '
    assert text == start + '{"a": {"0": [3, 3]}, "b": {"9": [5, 7], "10": [0, 1]}}}'


def test_initial_offset_is_empty() -> None:
    assert from_offset(INITIAL) == {}
    assert json.dumps(INITIAL) == json.dumps(offset_json({}, generation=0))


@given(range_maps, st.integers(0, 1000), st.randoms())
def test_offset_json_is_deterministic(ranges: Ranges, generation: int, random: Any) -> None:
    items = list(ranges.items())
    random.shuffle(items)
    shuffled = offset_json(dict(items), generation=generation)
    assert json.dumps(shuffled) == json.dumps(offset_json(ranges, generation=generation))


@given(range_maps, st.integers(0, 1000))
def test_offset_json_round_trips(ranges: Ranges, generation: int) -> None:
    text = json.dumps(offset_json(ranges, generation=generation))
    again = from_offset(json.loads(text))
    assert again == ranges
    assert json.dumps(offset_json(again, generation=generation)) == text
    assert "\n" not in text


@given(range_maps)
def test_total_counts_offsets(ranges: Ranges) -> None:
    assert total(ranges) == sum(until - start for start, until in ranges.values())


def test_inverted_ranges_count_nothing() -> None:
    assert total({TopicPartition("t", 0): (10, 4), TopicPartition("t", 1): (0, 2)}) == 2


@given(
    range_maps.filter(lambda ranges: all(start < until for start, until in ranges.values())),
    st.dictionaries(partitions, brokers),
    st.integers(1, 8),
    st.integers(1, 40),
    st.data(),
)
def test_each_range_is_in_one_task(
    ranges: Ranges, others: Any, num_consumer_fetchers: int, at_least: int, data: Any
) -> None:
    known = data.draw(st.sets(st.sampled_from(sorted(ranges)) if ranges else st.nothing()))
    leaders = others | {partition: data.draw(brokers) for partition in sorted(known)}
    groups = group_ranges(ranges, leaders, num_consumer_fetchers=num_consumer_fetchers, min_groups=at_least)
    assert sorted(partition for group in groups for partition in group) == sorted(ranges)
    assert all(ranges[partition] == span for group in groups for partition, span in group.items())
    assert all(groups)
    for group in groups:
        assert len({leaders.get(partition, (-1, None))[0] for partition in group}) == 1
    natural = {
        (leaders.get(partition, (-1, None))[0], fetcher_id(partition, num_consumer_fetchers)) for partition in ranges
    }
    assert len(groups) == max(len(natural), min(at_least, len(ranges)))


@given(st.integers(1, 64), st.integers(1, 16), st.integers(1, 4))
def test_single_broker_topic_uses_all_cores(count: int, cores: int, num_consumer_fetchers: int) -> None:
    ranges = {TopicPartition("orders", number): (0, 10) for number in range(count)}
    leaders = {partition: (0, Endpoint("localhost", 9092)) for partition in ranges}
    groups = group_ranges(ranges, leaders, num_consumer_fetchers=num_consumer_fetchers, min_groups=cores)
    assert len(groups) == min(count, max(cores, num_consumer_fetchers))
    assert max(map(len, groups)) - min(map(len, groups)) <= 1


def test_same_broker_and_fetcher_id_share_task() -> None:
    # "t".hashCode() is 116, so partition p has the hash 31 * 116 + p = 3596 + p: even for even partitions.
    ranges = {TopicPartition("t", number): (0, 10) for number in range(6)}
    leaders = {partition: (partition.partition % 3, Endpoint("localhost", 9092)) for partition in ranges}
    groups = group_ranges(ranges, leaders, num_consumer_fetchers=2, min_groups=1)
    assert [sorted(p.partition for p in group) for group in groups] == [[0], [3], [4], [1], [2], [5]]
    groups = group_ranges(ranges, leaders, num_consumer_fetchers=1, min_groups=1)
    assert [sorted(p.partition for p in group) for group in groups] == [[0, 3], [1, 4], [2, 5]]


def test_empty_ranges_make_no_task() -> None:
    ranges = {TopicPartition("t", 0): (5, 5), TopicPartition("t", 1): (5, 6), TopicPartition("t", 2): (7, 6)}
    assert group_ranges(ranges, {}, num_consumer_fetchers=1, min_groups=4) == [{TopicPartition("t", 1): (5, 6)}]
    assert group_ranges({}, {}, num_consumer_fetchers=1, min_groups=4) == []


def test_union_check_detects_gaps_and_overlaps() -> None:
    key = ("t", 0)
    check_union([{key: (0, 5, 5)}, {key: (5, 7, 2)}], {key: (0, 7)})
    for wrong in ([{key: (0, 5, 5)}, {key: (6, 7, 1)}], [{key: (0, 5, 5)}, {key: (4, 7, 3)}], [{key: (0, 7, 6)}]):
        with pytest.raises(AssertionError):
            check_union(wrong, {key: (0, 7)})


def test_large_ranges_are_split_for_idle_cores() -> None:
    one = {TopicPartition("t", 0): (0, 1_000_000)}
    tasks = split_ranges(one, {}, num_consumer_fetchers=1, cores=4)
    assert sorted(span for task in tasks for span in task.values()) == [
        (0, 250_000),
        (250_000, 500_000),
        (500_000, 750_000),
        (750_000, 1_000_000),
    ]
    small = {TopicPartition("t", 0): (0, 1000)}
    assert split_ranges(small, {}, num_consumer_fetchers=1, cores=4) == [small], "a further task would be slower"


def test_number_of_tasks_follows_pieces_brokers_and_cores() -> None:
    def count(
        partitions: int, cores: int, *, offsets: int = 10, num_consumer_fetchers: int = 1, min_tasks: int | None = None
    ) -> int:
        ranges = {TopicPartition("t", number): (0, offsets) for number in range(partitions)}
        leaders = {partition: (partition.partition % 3, Endpoint("localhost", 9092)) for partition in ranges}
        return len(
            split_ranges(ranges, leaders, num_consumer_fetchers=num_consumer_fetchers, cores=cores, min_tasks=min_tasks)
        )

    assert [count(200, cores) for cores in (1, 2, 64, 500)] == [3, 3, 64, 200]
    assert count(200, 1, num_consumer_fetchers=4) == 12
    assert count(2, 64, offsets=1_000_000) == 32, "a piece has at least 50,000 offsets, so each partition has 16"
    assert count(200, 8, min_tasks=300) == 300


def test_number_of_tasks_is_limited() -> None:
    ranges = {TopicPartition("t", 0): (0, MAX_TASKS), TopicPartition("t", 1): (3, 3)}
    assert len(split_ranges(ranges, {}, num_consumer_fetchers=1, cores=1, max_offsets=1)) == MAX_TASKS
    ranges[TopicPartition("t", 1)] = (3, 4)
    with pytest.raises(ConfigurationError, match=rf"{MAX_TASKS + 1} tasks \(maximum: {MAX_TASKS}\)"):
        split_ranges(ranges, {}, num_consumer_fetchers=1, cores=1, max_offsets=1)


def test_tasks_have_leaders_and_schema_of_their_partitions() -> None:
    options = SourceOptions.parse({"zookeeper.connect": "z:1", "group.id": "g", "subscribe": "t"})
    a, b = TopicPartition("t", 0), TopicPartition("t", 1)
    leaders = {a: (0, Endpoint("h", 1)), b: (1, Endpoint("h", 2))}
    first, second = tasks(options, {a: (0, 200_000), b: (0, 5)}, leaders, [Endpoint("h", 1)], 2)
    assert [(dict(one.ranges), dict(one.leaders)) for one in (first, second)] == [
        ({a: (0, 200_000)}, {a: leaders[a]}),
        ({b: (0, 5)}, {b: leaders[b]}),
    ]
    assert (first.can_end, first.reports, first.row_schema, first.brokers) == (
        False,
        None,
        options.row_schema(),
        (Endpoint("h", 1),),
    )
    row_schema = SourceOptions.parse(
        {"zookeeper.connect": "z:1", "group.id": "g", "subscribe": "t", "columns": "key"}
    ).row_schema()
    [other] = tasks(options, {a: (0, 200_000)}, leaders, [], 4, row_schema, can_end=True)
    assert (other.row_schema, other.can_end) == (row_schema, True), "a stream that can end is read by one task"


def test_many_tasks_are_created_in_short_time() -> None:
    ranges = {TopicPartition("t", number): (0, 10**15) for number in range(2000)}
    started = time.process_time()
    assert len(split_ranges(ranges, {}, num_consumer_fetchers=1, cores=1999)) == 1999
    assert len(split_ranges(ranges, {}, num_consumer_fetchers=1, cores=1, min_tasks=20_000)) == 20_000
    assert time.process_time() - started < 5
    with pytest.raises(ConfigurationError, match="maxRecordsPerPartition = 1 would divide .* increase its value"):
        split_ranges(ranges, {}, num_consumer_fetchers=1, cores=1, max_offsets=1)


@given(range_maps, st.integers(1, 9), st.none() | st.integers(1, 40), st.none() | st.integers(1, 1000))
def test_each_offset_is_in_one_task(ranges: Ranges, cores: int, at_least: int | None, at_most: int | None) -> None:
    ranges = {p: (start, min(until, start + 3000)) for p, (start, until) in ranges.items()}
    tasks = split_ranges(ranges, {}, num_consumer_fetchers=1, cores=cores, min_tasks=at_least, max_offsets=at_most)

    pieces = sorted((p, span) for task in tasks for p, span in task.items())
    joined: dict[TopicPartition, tuple[int, int]] = {}
    for partition, (start, until) in pieces:
        assert start < until
        if partition in joined:
            assert joined[partition][1] == start
            start = joined[partition][0]
        joined[partition] = (start, until)
    assert joined == {p: span for p, span in ranges.items() if span[0] < span[1]}
    if at_most is not None:
        assert all(span[1] - span[0] <= at_most for _, span in pieces)
    if at_least is not None:
        assert len(tasks) >= min(at_least, total(ranges))


@given(range_maps, st.sets(partitions))
def test_offset_contains_known_partitions(ranges: Ranges, known: set[TopicPartition]) -> None:
    text = json.dumps(offset_json(ranges, known=frozenset(known), group="g"))
    assert BatchOffset.from_json(json.loads(text)).partitions == known.union(ranges)
    assert json.loads(text)["group"] == "g"


def test_offset_contains_ends_of_earlier_batches() -> None:
    a, b = TopicPartition("t", 0), TopicPartition("t", 1)
    offset = offset_json({a: (3, 7)}, earlier_ends={b: 9})
    assert from_offset(offset) == {a: (3, 7)}
    assert BatchOffset.from_json(offset).ends == {a: 7, b: 9}
    assert BatchOffset.from_json(offset).end_of_stream().ranges == {a: (7, 7), b: (9, 9)}


def test_offset_contains_idle_partitions() -> None:
    idle = frozenset({TopicPartition("t", 1), TopicPartition("u", 0)})
    offset = offset_json({TopicPartition("t", 0): (3, 7)}, idle=idle)
    assert offset["idle"] == {"t": [1], "u": 1}
    assert BatchOffset.from_json(json.loads(json.dumps(offset))).idle == idle


def test_offset_of_repeated_range_differs_from_predecessor() -> None:
    ranges = {TopicPartition("t", 0): (0, 5)}
    before = BatchOffset(ranges=ranges, generation=1, sequence=3)
    assert json.dumps(replace(before, sequence=4).to_json()) != json.dumps(before.to_json())
    assert before.end_of_stream().sequence == 4


def test_offset_of_this_version_is_accepted() -> None:
    check_format(INITIAL)


@pytest.mark.parametrize("known", [10**10, -1, "5", [10**10], [-1], 1.5, None])
def test_impossible_partition_numbers_are_rejected(known: Any) -> None:
    offset = {"version": FORMAT_VERSION, "sequence": 1, "generation": 1, "ranges": {}, "known": {"t": known}}
    with pytest.raises(ConfigurationError, match="an offset in the checkpoint cannot be parsed.*topic 't'"):
        BatchOffset.from_json(offset)


@pytest.mark.parametrize(
    "changed",
    [
        {"ranges": {"t": {"00": [0, 1]}}},
        {"ranges": {"t": {"0": [0, OFFSET_MAX + 1]}}},
        {"ranges": {"../x": {"0": [0, 1]}}},
        {"ranges": {"t": {"0": [True, 1]}}},
        {"known": {"t": 600_000, "u": 600_000}},
        {"before": {"t": {"0": "5"}}},
        {"ids": {"t": {}}},
        {"gone": "tu"},
        {"generation": "1"},
        {"sequence": -1},
        {"group": 5},
    ],
    ids=str,
)
def test_impossible_values_are_rejected(changed: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="an offset in the checkpoint cannot be parsed"):
        BatchOffset.from_json({"version": FORMAT_VERSION, "sequence": 1, "generation": 1, "ranges": {}, **changed})


@pytest.mark.parametrize(
    ("offset", "message"),
    [
        ([], r"not written by format\('zkconsumer'\)"),
        ({"generation": 1, "ranges": {}}, r"not written by format\('zkconsumer'\)"),
        ({"t": {"0": 5}}, r"not written by format\('zkconsumer'\).*migrate-offsets"),
        (
            {"version": FORMAT_VERSION + 1, "generation": 1, "ranges": {}},
            f"format version {FORMAT_VERSION + 1}.*upgrade zkconsumer",
        ),
        ({"version": "x", "generation": 1, "ranges": {}}, "format version 'x'"),
    ],
)
def test_offset_of_unknown_format_is_rejected(offset: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        check_format(offset)
