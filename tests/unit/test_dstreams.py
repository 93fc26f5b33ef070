"""Tests of the classes of KafkaUtils and of the ledger of DStream batches."""

from __future__ import annotations

import pickle

import pytest

from zkconsumer.spark.dstreams import Ledger
from zkconsumer.spark.kafka_utils import (
    KafkaMessageAndMetadata,
    OffsetRange,
    TopicAndPartition,
    utf8_decoder,
)


def test_topic_and_partition_equality() -> None:
    same, other = TopicAndPartition("a", 1), TopicAndPartition("a", 2)
    assert same == TopicAndPartition("a", 1)
    assert same != other
    assert hash(same) == hash(TopicAndPartition("a", 1))


def test_repr_and_pickle_match_original() -> None:
    assert str(OffsetRange("t", 0, 0, 6)) == "OffsetRange(topic: t, partition: 0, range: [0 -> 6]"
    message = pickle.loads(pickle.dumps(KafkaMessageAndMetadata("t", 0, 7, None, b"v")))
    assert (message.topic, message.offset, message.key, message.message) == ("t", 7, None, "v")
    assert utf8_decoder(None) is None


def test_batches_after_unfinished_one_are_not_committed() -> None:
    ledger = Ledger()
    for time_ in (1, 2, 3):
        ledger.add(time_, f"batch {time_}")
    assert ledger.complete({2}) == []
    assert ledger.complete({1}) == ["batch 1", "batch 2"]
    assert ledger.complete({1}) == []
    assert ledger.complete({3}) == ["batch 3"]


def test_recovered_ledger_waits_only_for_replayed_batches() -> None:
    ledger = Ledger()
    for time_ in (1, 2, 3):
        ledger.add(time_, f"batch {time_}")
    ledger.complete({1})
    recovered: Ledger = pickle.loads(pickle.dumps(ledger))
    assert recovered.uncompleted() == {2, 3}
    recovered.add(4, "batch 4")
    assert [recovered.is_restored(time_) for time_ in (1, 2, 3, 4)] == [True, True, True, False]
    assert recovered.complete({2, 4}) == ["batch 2"]
    assert recovered.complete({3}) == ["batch 3", "batch 4"]


def test_ledger_forgets_committed_batches_before_time() -> None:
    ledger = Ledger()
    for time_ in range(100):
        ledger.add(time_, f"batch {time_}")
    ledger.complete(set(range(100)) - {50})
    ledger.forget_before(40)
    assert len(pickle.loads(pickle.dumps(ledger)).uncompleted()) == 1
    assert [time_ in ledger for time_ in (39, 40, 99)] == [False, True, True]
    ledger.forget_before(90)
    assert [time_ in ledger for time_ in (49, 50, 51)] == [False, True, True], "batch 50 has not been completed"


def test_ledger_removes_only_committed_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zkconsumer.spark.dstreams.ledger._RETAINED_BATCHES", 2)
    ledger = Ledger()
    for time_ in range(5):
        ledger.add(time_, time_)
    assert 0 in ledger
    for time_ in range(5):
        ledger.complete({time_})
    ledger.add(5, 5)
    assert [time_ in ledger for time_ in range(6)] == [False, False, False, False, True, True]
