"""Tests of the size of a batch: shares of partitions, limits, and the wait for ``minOffsetsPerTrigger``."""

from __future__ import annotations

from collections.abc import Callable, Collection

from hypothesis import given
from hypothesis import strategies as st

from zkconsumer.message import TopicPartition
from zkconsumer.spark.options.limits import Limits
from zkconsumer.spark.options.option_reader import OptionReader
from zkconsumer.spark.planning.batch_limiter import BatchLimiter, fair_shares

P = [TopicPartition("t", number) for number in range(5)]

waits = st.dictionaries(st.sampled_from(P), st.integers(0, 10**12))


def test_small_partition_does_not_wait_for_large() -> None:
    assert fair_shares({P[0]: 10, P[1]: 1_000_000}, 1000) == {P[0]: 10, P[1]: 990}


def test_large_partitions_get_equal_shares() -> None:
    assert fair_shares({P[0]: 5000, P[1]: 1_000_000, P[2]: 0}, 1000) == {P[0]: 500, P[1]: 500}


@given(waits, st.integers(1, 10**9))
def test_shares_are_fair_and_use_whole_limit(waiting: dict[TopicPartition, int], most: int) -> None:
    shares = fair_shares(waiting, most)

    assert sum(shares.values()) == min(most, sum(waiting.values()))
    assert all(0 < share <= waiting[partition] for partition, share in shares.items())
    least_of_the_limited = [shares.get(p, 0) for p in waiting if shares.get(p, 0) < waiting[p]]
    if least_of_the_limited:
        assert max(shares.values()) <= min(least_of_the_limited) + 1


class Clock:
    """A clock that the test advances."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def limits(**options: object) -> Limits:
    return Limits.parse(OptionReader({name: str(value) for name, value in options.items()}))


def no_sizes(_partitions: Collection[TopicPartition]) -> dict[TopicPartition, float]:
    raise AssertionError("records are sampled although bytes are not limited")


def limit(
    limiter: BatchLimiter,
    available: dict[TopicPartition, int],
    *,
    max_offsets: int | None,
    at_once: bool = False,
    backlog: int = 0,
    sizes: Callable[[Collection[TopicPartition]], dict[TopicPartition, float]] = no_sizes,
) -> dict[TopicPartition, int]:
    return limiter.limit(available, max_offsets=max_offsets, at_once=at_once, backlog=backlog, sizes=sizes)


def test_small_batch_waits_for_max_trigger_delay() -> None:
    clock = Clock()
    limiter = BatchLimiter(limits(maxOffsetsPerTrigger=100, minOffsetsPerTrigger=10, maxTriggerDelay="60s"), clock)
    assert limit(limiter, {P[0]: 9}, max_offsets=100) == {}
    clock.now += 59
    assert limit(limiter, {P[0]: 9}, max_offsets=100) == {}
    clock.now += 1
    assert limit(limiter, {P[0]: 9}, max_offsets=100) == {P[0]: 9}
    assert limit(limiter, {P[0]: 9}, max_offsets=100) == {}, "the delay starts again with each batch"
    assert limit(limiter, {P[0]: 5, P[1]: 5}, max_offsets=100) == {P[0]: 5, P[1]: 5}


def test_bounded_query_does_not_wait() -> None:
    limiter = BatchLimiter(limits(maxOffsetsPerTrigger=100, minOffsetsPerTrigger=10), Clock())
    assert limit(limiter, {P[0]: 3}, max_offsets=100, at_once=True) == {P[0]: 3}
    assert limit(limiter, {P[0]: 0}, max_offsets=100, at_once=True) == {}


def test_everything_is_read_without_limit() -> None:
    assert limit(BatchLimiter(limits(), Clock()), {P[0]: 10**12}, max_offsets=None) == {P[0]: 10**12}


def of_size(**sizes: float) -> Callable[[Collection[TopicPartition]], dict[TopicPartition, float]]:
    """Return a function that returns the record size in bytes of each partition."""
    return lambda some: {partition: sizes[f"p{partition.partition}"] for partition in some}


def test_bytes_are_shared_fairly() -> None:
    limiter = BatchLimiter(limits(maxBytesPerTrigger=10_000), Clock())
    shares = limit(limiter, {P[0]: 1000, P[1]: 1000, P[2]: 3}, max_offsets=10**6, sizes=of_size(p0=10, p1=1000, p2=100))
    assert shares == {P[0]: 485, P[1]: 4, P[2]: 3}, "300 bytes for partition 2, and half of the rest for the others"


def test_partitions_are_limited() -> None:
    limiter = BatchLimiter(limits(maxOffsetsPerPartition=50), Clock())
    assert limit(limiter, {P[0]: 1000, P[1]: 7}, max_offsets=10**6) == {P[0]: 50, P[1]: 7}

    limiter = BatchLimiter(limits(maxBytesPerPartition=1_000, maxOffsetsPerPartition=50), Clock())
    shares = limit(limiter, {P[0]: 1000, P[1]: 1000, P[2]: 3}, max_offsets=10**6, sizes=of_size(p0=10, p1=900, p2=2000))
    assert shares == {P[0]: 50, P[1]: 1, P[2]: 1}


def test_record_larger_than_limit_is_read_alone() -> None:
    limiter = BatchLimiter(limits(maxBytesPerTrigger=100), Clock())
    assert limit(limiter, {P[0]: 5, P[1]: 5}, max_offsets=10**6, sizes=of_size(p0=10_000, p1=5000)) == {P[1]: 1}


def test_offset_of_unknown_size_counts_as_one_byte() -> None:
    """No partition could be sampled, for example because its next record is corrupt."""
    limiter = BatchLimiter(limits(maxBytesPerTrigger=100), Clock())
    assert limit(limiter, {P[0]: 500}, max_offsets=10**6, sizes=lambda _: {}) == {P[0]: 100}


def test_large_records_are_not_starved() -> None:
    limiter = BatchLimiter(limits(maxBytesPerTrigger=1000), Clock())
    taken = [limit(limiter, {P[0]: 10**6, P[1]: 10}, max_offsets=10**6, sizes=of_size(p0=1, p1=1500)) for _ in range(6)]
    assert [shares.get(P[1], 0) for shares in taken] == [0, 0, 1, 0, 0, 1]


def test_batch_does_not_wait_for_aligned_partitions() -> None:
    limiter = BatchLimiter(limits(minOffsetsPerTrigger=100), Clock())
    assert limit(limiter, {P[0]: 9}, max_offsets=1000) == {}
    assert limit(limiter, {P[0]: 9}, max_offsets=1000, backlog=500) == {P[0]: 9}


def test_sizes_are_a_running_average() -> None:
    limiter = BatchLimiter(limits(maxBytesPerTrigger=1000), Clock())
    assert limit(limiter, {P[0]: 99}, max_offsets=10**6, sizes=of_size(p0=100)) == {P[0]: 10}
    assert limit(limiter, {P[0]: 99}, max_offsets=10**6, sizes=of_size(p0=300)) == {P[0]: 5}


def test_byte_rate_is_kept_without_bursts() -> None:
    clock = Clock()
    limiter = BatchLimiter(limits(maxBytesPerSecond=1000), clock)
    assert limit(limiter, {P[0]: 99}, max_offsets=10**6, sizes=of_size(p0=100)) == {P[0]: 10}
    assert limit(limiter, {P[0]: 89}, max_offsets=10**6, sizes=of_size(p0=100)) == {}, "the bytes are used up"
    clock.now += 0.5
    assert limit(limiter, {P[0]: 89}, max_offsets=10**6, sizes=of_size(p0=100)) == {P[0]: 5}
    clock.now += 3600
    assert limit(limiter, {P[0]: 0}, max_offsets=10**6, sizes=of_size(p0=100)) == {}
    clock.now += 1
    assert limit(limiter, {P[0]: 99}, max_offsets=10**6, sizes=of_size(p0=100)) == {P[0]: 20}, (
        "the bytes of this second and of the previous one"
    )


def test_sizes_are_sampled_only_with_byte_limit() -> None:
    assert limit(BatchLimiter(limits(), Clock()), {P[0]: 7}, max_offsets=10**6, sizes=of_size()) == {P[0]: 7}


def test_few_of_many_partitions_are_sampled_per_batch() -> None:
    wide = [TopicPartition("t", number) for number in range(1000)]
    limiter = BatchLimiter(limits(maxbytespertrigger=1_000_000), lambda: 0.0)
    sampled: list[list[TopicPartition]] = []

    def sizes(partitions: Collection[TopicPartition]) -> dict[TopicPartition, float]:
        sampled.append(list(partitions))
        return dict.fromkeys(partitions, 100.0)

    for _ in range(16):
        shares = limit(limiter, dict.fromkeys(wide, 10**6), max_offsets=10**7, sizes=sizes)
        assert shares == dict.fromkeys(wide, 10), "the size of other partitions is that of the sampled ones"
    assert [len(partitions) for partitions in sampled] == [64] * 16
    assert {partition for partitions in sampled for partition in partitions} == set(wide)
