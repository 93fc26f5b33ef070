"""Tests of the start offsets of a query: each mode, its fallback, and the precedence after a restart."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from zkconsumer.errors import ConfigurationError
from zkconsumer.log_ends import EARLIEST, LATEST
from zkconsumer.message import TopicPartition
from zkconsumer.spark.options.check_existence import check_offsets
from zkconsumer.spark.options.option_reader import OptionReader
from zkconsumer.spark.options.starting_offsets import StartingOffsets, StartPosition, StartSource

A0, A1, A2, B0 = (TopicPartition(*pair) for pair in (("a", 0), ("a", 1), ("a", 2), ("b", 0)))

#: Ends of the names of the options whose JSON is keyed by topic.
KINDS = ("Offsets", "OffsetsByTimestamp")

RESET = StartPosition(StartSource.AUTO_OFFSET_RESET)


def starts(**options: str) -> StartingOffsets:
    given = {name.replace("_", "."): value for name, value in options.items()}
    return StartingOffsets.parse(OptionReader(given))


def first(decided: StartingOffsets, partition: TopicPartition, group: int = -1) -> StartPosition:
    return decided.start_position(partition, group, checkpoint_offset=None, is_first_assignment=True, is_new=False)


@pytest.mark.parametrize("name", ["startingOffsets", "startingOffsetsByTimestamp"])
def test_deeply_nested_json_is_rejected(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"option '{name}' must be") as raised:
        starts(**{name: '{"a":' * 100_000})

    assert len(str(raised.value)) < 600


@pytest.mark.parametrize("name", [f"{prefix}{kind}" for prefix in ("starting", "ending") for kind in KINDS])
@pytest.mark.parametrize("key", ["a.*", "a|b", "", "é", "(.|..)+" + "b" * 60 + "[.]", "a" * 10_000])
def test_key_with_invalid_topic_name_is_rejected(name: str, key: str) -> None:
    text = json.dumps({key: "earliest"})
    with pytest.raises(ConfigurationError, match=f"option '{name}' must be .*: topic name must consist of") as raised:
        StartingOffsets.parse(OptionReader({name: text}), prefix=name.partition("Offsets")[0], default="latest")

    assert len(str(raised.value)) < 1000


@pytest.mark.parametrize("seed", range(50))
def test_key_concerns_topic_of_that_name_alone(seed: int) -> None:
    rng = random.Random(seed)
    topics = ["".join(rng.choices("ab", k=2)) + rng.choice("._-") + rng.choice("ab.") for _ in range(8)]
    offsets = {topic: number for number, topic in enumerate(topics)}
    named = rng.sample(sorted(offsets), min(4, len(offsets)))
    wanted = {topic: {"0": offsets[topic]} for topic in named}
    by_offset = starts(startingOffsets=json.dumps(wanted))
    by_time = starts(startingOffsetsByTimestamp=json.dumps(wanted))
    for topic, number in offsets.items():
        partition = TopicPartition(topic, 0)
        is_named = topic in named
        assert first(by_offset, partition) == (StartPosition(StartSource.OFFSET, number) if is_named else RESET), seed
        time = StartPosition(StartSource.TIMESTAMP, timestamp=number)
        assert first(by_time, partition) == (time if is_named else RESET), seed
        if not is_named:
            for starting in (by_offset, by_time):
                with pytest.raises(ConfigurationError, match="names topic"):
                    check_offsets(starting, [partition])


def test_offset_above_largest_one_is_rejected() -> None:
    with pytest.raises(ConfigurationError, match="option 'startingOffsets' must be"):
        starts(startingOffsets=json.dumps({"a": {"0": 1 << 63}}))


def test_blanks_may_surround_time() -> None:
    assert starts(startingTimestamp=" 5\n").timestamp == 5


# The offsets of Flink's testStartFromGroupOffsets and similar tests: 23, none and 43 are committed.


def test_default_is_group_offset_then_reset() -> None:
    assert first(starts(), A0, 23) == StartPosition(StartSource.GROUP, 23)
    assert first(starts(), A1) == RESET


def test_re_created_topic_is_read_from_beginning_by_new_query() -> None:
    decided = starts()
    position = decided.start_position(A0, -1, checkpoint_offset=None, is_first_assignment=True, is_new=True)
    assert position == StartPosition(StartSource.NEW_PARTITION, timestamp=EARLIEST)


@pytest.mark.parametrize(("mode", "end"), [("earliest", EARLIEST), ("latest", LATEST), ("LATEST", LATEST)])
def test_earliest_and_latest_ignore_group(mode: str, end: int) -> None:
    decided = starts(startingOffsets=mode)
    assert {first(decided, A0, group) for group in (23, -1)} == {
        StartPosition(StartSource(mode.lower()), timestamp=end)
    }


def test_json_offsets_fall_back_to_group() -> None:
    decided = starts(startingOffsets='{"a":{"0":19,"2":22}}')
    assert first(decided, A0, 23) == StartPosition(StartSource.OFFSET, 19)
    assert first(decided, A1, 31) == StartPosition(StartSource.GROUP, 31)
    assert first(decided, A2, 43) == StartPosition(StartSource.OFFSET, 22)
    assert first(decided, B0) == RESET


def test_spark_markers_mean_log_ends() -> None:
    decided = starts(startingOffsets='{"a":{"0":-1,"1":-2}}')
    assert first(decided, A0, 5).timestamp == LATEST
    assert first(decided, A1, 5).timestamp == EARLIEST


def test_topics_accept_modes() -> None:
    decided = starts(startingOffsets='{"a":"earliest","b":"latest"}')
    assert first(decided, A0, 5).timestamp == EARLIEST
    assert first(decided, B0, 5).timestamp == LATEST


def test_modes_in_json_are_case_insensitive() -> None:
    decided = starts(startingOffsets='{"a":"eArLiEst","b":"GROUP"}')
    assert first(decided, A0, 5) == StartPosition(StartSource.EARLIEST, timestamp=EARLIEST)
    assert first(decided, B0, 5) == StartPosition(StartSource.GROUP, 5)
    ending = StartingOffsets.parse(OptionReader({"endingOffsets": '{"a":"Latest"}'}), prefix="ending", default="latest")
    assert ending.named == {"a": "latest"}


def test_timestamps_may_be_in_the_future() -> None:
    later = 10**18 - 1
    assert starts(startingTimestamp=str(later)).timestamp == later
    decided = starts(startingOffsetsByTimestamp=json.dumps({"a": {"0": later}, "b": later}))
    assert [first(decided, partition).timestamp for partition in (A0, B0)] == [later, later]


def test_timestamp_overrides_offsets() -> None:
    decided = starts(startingTimestamp="1700000000000", startingOffsetsByTimestamp="{}", startingOffsets="earliest")
    assert first(decided, A0, 5) == StartPosition(StartSource.TIMESTAMP, timestamp=1_700_000_000_000)


def test_partition_timestamps_fall_back_to_group() -> None:
    decided = starts(
        startingOffsetsByTimestamp='{"a":{"0":1000},"b":2000}',
        startingOffsetsByTimestampStrategy="error",
        startingOffsets="latest",
    )
    assert first(decided, A0, 5) == StartPosition(StartSource.TIMESTAMP, timestamp=1000, strict=True)
    assert first(decided, B0, 5) == StartPosition(StartSource.TIMESTAMP, timestamp=2000, strict=True)
    assert first(decided, A1, 5) == StartPosition(StartSource.GROUP, 5)


@pytest.mark.parametrize("mode", ["group", "earliest", "latest", '{"a":{"0":7}}'])
def test_later_partitions_use_group_or_beginning(mode: str) -> None:
    decided = starts(startingOffsets=mode)

    def later(group: int, new: bool) -> StartPosition:
        return decided.start_position(A0, group, checkpoint_offset=None, is_first_assignment=False, is_new=new)

    assert later(23, False) == later(23, True) == StartPosition(StartSource.GROUP, 23)
    assert later(-1, True) == StartPosition(StartSource.NEW_PARTITION, timestamp=EARLIEST)
    assert later(-1, False) == RESET


@pytest.mark.parametrize(
    ("restart", "group", "reached", "expected"),
    [
        ("furthest", 10, 15, ("checkpoint", 15)),
        ("furthest", 20, 15, ("group", 20)),
        ("furthest", -1, 15, ("checkpoint", 15)),
        ("checkpoint", 20, 15, ("checkpoint", 15)),
        ("group", 10, 15, ("group", 10)),
        ("group", -1, 15, ("checkpoint", 15)),
    ],
)
def test_resume_from_decides_after_restart(restart: str, group: int, reached: int, expected: tuple[str, int]) -> None:
    decided = starts(resumeFrom=restart, startingOffsets="latest")
    position = decided.start_position(A0, group, checkpoint_offset=reached, is_first_assignment=False, is_new=False)
    source, offset = expected
    assert position == StartPosition(StartSource(source), offset)


@pytest.mark.parametrize(
    "named", [{"a": {"0": 0}}, {"a": {"0": 2**62}}, {"a": "latest"}, {"a": {}}, {}], ids=lambda value: json.dumps(value)
)
def test_every_valid_offset_is_accepted(named: dict[str, Any]) -> None:
    assert first(starts(startingOffsets=json.dumps(named)), A0).source in (
        StartSource.OFFSET,
        StartSource.LATEST,
        StartSource.AUTO_OFFSET_RESET,
    )
