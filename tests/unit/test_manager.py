"""Tests of ConsumerFetcherManager: fetcher ids as in the JVM, partitions that are added again, and failed lookups."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from helpers.batches import Record, entry
from helpers.configurations import fetch_settings
from helpers.waiting import wait_for
from hypothesis import given
from hypothesis import strategies as st

from zkconsumer.broker.protocol import PartitionData
from zkconsumer.errors import ZkConsumerError
from zkconsumer.fetcher.chunk import QueueItem
from zkconsumer.fetcher.manager import ConsumerFetcherManager, fetcher_id
from zkconsumer.fetcher.partition import PartitionTopicInfo
from zkconsumer.fetcher.queues import ByteBudget, PartitionQueue, StreamQueue
from zkconsumer.fetcher.requests import FetchAnswer, FetchRequests
from zkconsumer.fetcher.thread import ConsumerFetcherThread
from zkconsumer.javahash import java_hash
from zkconsumer.message import Endpoint, TopicPartition
from zkconsumer.metrics import Metrics

# Topic, hash, and the fetcher ids of partitions 0 to 3 with 2, 3 and 4 fetchers, from the JVM consumer.
VECTORS = [
    ("topic1", -868034334, {2: [0, 1, 0, 1], 3: [0, 2, 1, 0], 4: [2, 1, 0, 3]}),
    ("orders", -1008770331, {2: [1, 0, 1, 0], 3: [2, 1, 0, 2], 4: [1, 0, 3, 2]}),
    ("payments", 1382682413, {2: [1, 0, 1, 0], 3: [2, 1, 0, 2], 4: [1, 0, 3, 2]}),
    ("test_topic", 2071215938, {2: [0, 1, 0, 1], 3: [1, 0, 2, 1], 4: [2, 1, 0, 3]}),
    ("wide", 3649235, {2: [1, 0, 1, 0], 3: [2, 0, 1, 2], 4: [1, 2, 3, 0]}),
]


@pytest.mark.parametrize(("text", "value"), [(topic, value) for topic, value, _ in VECTORS])
def test_topic_hash_equals_java(text: str, value: int) -> None:
    assert java_hash(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("orders-0", 1234322248),
        ("orders-1", 1234322249),
        ("payments-0", 1612905872),
        ("[orders,0]", -1093576615),
        ("[orders,1]", -1093576584),
        ("[orders,2]", -1093576553),
        ("[payments,0]", 1617066449),
        ("[payments,1]", 1617066480),
        ("polygenelubricants", -(1 << 31)),
    ],
)
def test_string_hash_equals_java(text: str, value: int) -> None:
    assert java_hash(text) == value


def test_hash_collision_of_java_is_reproduced() -> None:
    assert java_hash("AaAa") == java_hash("BBBB") == java_hash("AaBB")


@given(text=st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"])))
def test_hash_is_signed_32_bit_polynomial(text: str) -> None:
    exact = sum(ord(c) * 31 ** (len(text) - 1 - i) for i, c in enumerate(text))

    assert (java_hash(text) - exact) % (1 << 32) == 0
    assert -(1 << 31) <= java_hash(text) < 1 << 31


@pytest.mark.parametrize(
    ("topic", "fetchers", "expected"),
    [(topic, fetchers, expected) for topic, _, rows in VECTORS for fetchers, expected in rows.items()],
)
def test_fetcher_id_equals_jvm(topic: str, fetchers: int, expected: list[int]) -> None:
    assert [fetcher_id(TopicPartition(topic, number), fetchers) for number in range(4)] == expected


def test_absolute_value_of_minimum_is_zero() -> None:
    # 31 * hash("wide") + p wraps to -2^31 for this p.
    partition = (-(1 << 31) - 31 * java_hash("wide")) % (1 << 32)

    assert fetcher_id(TopicPartition("wide", partition), 7) == 0
    assert fetcher_id(TopicPartition("wide", partition + 1), 1 << 31) == (1 << 31) - 1


@given(topic=st.from_regex(r"[a-zA-Z0-9._-]{1,30}", fullmatch=True), partition=st.integers(0, 10_000))
def test_single_fetcher_has_all_partitions(topic: str, partition: int) -> None:
    assert fetcher_id(TopicPartition(topic, partition), 1) == 0


@given(
    topic=st.from_regex(r"[a-zA-Z0-9._-]{1,30}", fullmatch=True),
    partition=st.integers(0, 10_000),
    fetchers=st.integers(1, 16),
)
def test_fetcher_id_counts_from_zero(topic: str, partition: int, fetchers: int) -> None:
    assert 0 <= fetcher_id(TopicPartition(topic, partition), fetchers) < fetchers


# ---- partitions and leaders --------------------------------------------------------------------------------

NOWHERE = Endpoint("127.0.0.1", 1)
PARTITION = TopicPartition("t", 0)


def test_reassigned_partition_with_queued_response_stays() -> None:
    failures: list[Any] = []
    budget = ByteBudget(1 << 30)
    settings = fetch_settings()
    fetcher = ConsumerFetcherThread(
        "t",
        FetchRequests(NOWHERE, settings, budget, Metrics()),
        settings,
        budget,
        failures.extend,
        lambda *failure: failures.append(failure),
    )
    stream = StreamQueue(budget)
    added_again = PartitionTopicInfo(PARTITION, PartitionQueue(stream, 2), 5)

    class Queue(PartitionQueue):
        """A queue that removes its partition and adds it again while the fetcher puts a chunk."""

        def put(self, item: QueueItem) -> None:
            fetcher.remove_partitions([PARTITION])
            fetcher.add_partitions([added_again])
            super().put(item)

    old = PartitionTopicInfo(PARTITION, Queue(stream, 2), 0)
    fetcher.add_partitions([old])
    data = PartitionData(PARTITION, 0, 1, (), entry(2, [Record(0)]))

    assert fetcher.process_partition_data(old, data, FetchAnswer([data], is_fast=True, truncates_batches=False))

    assert fetcher.infos == [added_again]
    assert failures == []


def test_failed_leader_search_is_logged_and_retried() -> None:
    failures: list[tuple[TopicPartition, str]] = []
    called_again = threading.Event()

    def brokers() -> list[Endpoint]:
        if failures:
            called_again.set()
            return []
        raise RuntimeError("unexpected")

    def on_failure(info: PartitionTopicInfo, error: ZkConsumerError) -> None:
        failures.append((info.partition, str(error)))

    manager = ConsumerFetcherManager(
        "t",
        fetch_settings(refresh_leader_backoff_ms=10),
        brokers,
        on_failure=on_failure,
    )
    manager.start_connections()
    try:
        manager.add_partitions([PartitionTopicInfo(PARTITION, PartitionQueue(StreamQueue(ByteBudget(1 << 30)), 2), 0)])
        wait_for(called_again.is_set, what="the lookup is retried")
        assert manager.no_leader_partitions == {PARTITION}
    finally:
        manager.stop_connections()
    text = f"failed to find the leader of {PARTITION}: RuntimeError('unexpected')"
    assert failures == [(PARTITION, text)]
