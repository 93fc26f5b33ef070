"""Tests of the classes of KafkaUtils, of the ledger of DStream batches, and of the connections of sources."""

from __future__ import annotations

import pickle
import threading

import pytest
from helpers.batch_offsets import offset_json
from helpers.fake_broker import FakeBroker
from helpers.threads import in_thread
from helpers.waiting import wait_for
from pyspark.streaming import StreamingContext

from zkconsumer import ConsumerConfig, TopicPartition
from zkconsumer.errors import BrokerUnavailableError, ClosedError, ConfigurationError, ZooKeeperUnavailableError
from zkconsumer.spark.dstreams import batches
from zkconsumer.spark.dstreams.clients import ClientsBySource
from zkconsumer.spark.dstreams.follower import Follower, follow
from zkconsumer.spark.dstreams.ledger import Ledger
from zkconsumer.spark.dstreams.rates import RateLimits
from zkconsumer.spark.dstreams.sources import DirectSource, GroupSource
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
        ledger.add(time_, f"batch {time_}", time_)
    assert ledger.complete({2}) == []
    assert ledger.complete({1}) == ["batch 1", "batch 2"]
    assert ledger.complete({1}) == []
    assert ledger.complete({3}) == ["batch 3"]


def test_recovered_ledger_waits_only_for_replayed_batches() -> None:
    ledger = Ledger()
    for time_ in (1, 2, 3):
        ledger.add(time_, f"batch {time_}", time_)
    ledger.complete({1})
    recovered: Ledger = pickle.loads(pickle.dumps(ledger))
    assert recovered.uncompleted() == {2, 3}
    recovered.add(4, "batch 4", 4)
    assert recovered.complete({2, 4}) == ["batch 2"]
    assert recovered.complete({3}) == ["batch 3", "batch 4"]


def test_ledger_forgets_committed_batches_before_time() -> None:
    ledger = Ledger()
    for time_ in range(100):
        ledger.add(time_, f"batch {time_}", time_)
    ledger.complete(set(range(100)) - {50})
    ledger.forget_before(40)
    assert len(pickle.loads(pickle.dumps(ledger)).uncompleted()) == 1
    assert [time_ in ledger for time_ in (39, 40, 99)] == [False, True, True]
    ledger.forget_before(90)
    assert [time_ in ledger for time_ in (49, 50, 51)] == [False, True, True], "batch 50 has not been completed"


def test_ledger_removes_only_committed_batches() -> None:
    ledger = Ledger()
    for time_ in range(1005):
        ledger.add(time_, time_, time_)
    assert 0 in ledger
    ledger.complete(set(range(1005)) - {500})
    ledger.add(1005, 1005, 1005)
    assert [time_ in ledger for time_ in (0, 5, 6, 1005)] == [False, False, True, True], "the last 1000 are kept"
    for time_ in range(1006, 2000):
        ledger.add(time_, time_, time_)
    assert [time_ in ledger for time_ in (499, 500, 501)] == [False, True, True], "batch 500 has not been completed"


def group_source(context: str = "context") -> GroupSource:
    """A source of a group whose ZooKeeper is unreachable."""
    settings = {"zookeeper.connect": "127.0.0.1:1", "group.id": "g", "zookeeper.connection.timeout.ms": "100"}
    return GroupSource(0.5, ConsumerConfig.from_dict(settings), {"t": 1}, context)


def test_closed_source_does_not_join_again() -> None:
    """The listener thread may complete a batch after the streaming context has stopped."""
    source = group_source()
    source._ledger.add(1, offset_json({TopicPartition("t", 0): (0, 5)}), 1)
    source.close()
    with pytest.raises(ClosedError, match="the stream was closed"):
        source.complete({1})
    with pytest.raises(ClosedError, match="the stream was closed"):
        source.ranges_at(2)


def test_used_sources_of_context_are_siblings() -> None:
    first, second, unused, other = (group_source(context) for context in ("a", "a", "a", "b"))
    for source in (other, second, first):
        source.mark_used()
    assert list(first.siblings()) == list(second.siblings()) == [first, second]
    assert list(unused.siblings()) == [first, second, unused]
    first.close()
    assert list(second.siblings()) == [second]
    second.close()
    other.close()


def test_recovered_sources_are_siblings_in_order_of_creation() -> None:
    states = [pickle.dumps(group_source("recovered")) for _ in range(3)]
    recovered = [pickle.loads(state) for state in reversed(states)]
    assert list(recovered[0].siblings()) == recovered[::-1]
    for source in recovered:
        source.close()


class Connection:
    """A client that counts how often it is closed."""

    closed = 0

    def close(self) -> None:
        self.closed += 1


def test_threads_of_source_share_one_client() -> None:
    """A batch that is re-run after a recovery can be completed before the next one is planned."""
    clients, may_open = ClientsBySource(), threading.Event()
    opened: list[Connection] = []

    def open_connection() -> Connection:
        assert may_open.wait(10)
        opened.append(Connection())
        return opened[-1]

    threads = [in_thread(lambda: clients.get("source", open_connection)) for _ in range(4)]
    may_open.set()
    assert {id(thread.result()) for thread in threads} == {id(client) for client in opened}
    assert len(opened) == 1


def test_client_opened_during_close_is_closed() -> None:
    clients, connection = ClientsBySource(), Connection()
    is_opening, may_open = threading.Event(), threading.Event()

    def open_connection() -> Connection:
        is_opening.set()
        assert may_open.wait(10)
        return connection

    thread = in_thread(lambda: clients.get("source", open_connection))
    assert is_opening.wait(10)
    clients.close("source")
    assert connection.closed == 0
    may_open.set()
    with pytest.raises(ClosedError):
        thread.result()
    assert connection.closed == 1


def test_client_that_failed_to_open_is_opened_again() -> None:
    clients, connection = ClientsBySource(), Connection()

    def fail() -> Connection:
        raise BrokerUnavailableError("no broker")

    with pytest.raises(BrokerUnavailableError):
        clients.get("source", fail)
    assert clients.get("source", lambda: connection) is connection
    clients.close("source")
    clients.close("source")
    assert connection.closed == 1


def test_stream_plans_no_batch_after_failed_one() -> None:
    """The later batches could not be committed, and would make each checkpoint larger."""
    source = group_source()
    source._ledger.add(1, offset_json({TopicPartition("t", 0): (0, 5)}), 1)
    source._ledger.add(2, offset_json({TopicPartition("t", 0): (5, 9)}), 2)
    source.fail(1, "the sink is full")
    before = len(pickle.dumps(source))
    for time_ in range(3, 100):
        assert source.ranges_at(time_) == {}
        source.complete({time_})
        source.forget_before(time_ - 2)
    assert source.ranges_at(1) == {TopicPartition("t", 0): (0, 5)}, "the batch is run again after a recovery"
    assert source.ranges_at(2) == {TopicPartition("t", 0): (5, 9)}, "the batch was planned before the failure"
    assert len(pickle.dumps(source)) == before
    assert not pickle.loads(pickle.dumps(source)).has_failed


def test_failed_batch_without_records_stops_nothing() -> None:
    source = group_source()
    source._ledger.add(1, None, 1)
    source.fail(1, "the sink is full")
    assert not source.has_failed
    assert source.uncompleted() == set()


def test_stream_is_followed_after_failed_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a follower, no offsets of the stream would be committed."""
    started: list[str] = []

    def start(_follower: Follower) -> None:
        started.append("follower")
        if len(started) == 1:
            raise ConnectionError("the JVM does not respond")

    monkeypatch.setattr(Follower, "start", start)
    monkeypatch.setattr(StreamingContext, "_activeContext", object())
    source = group_source()
    with pytest.raises(ConnectionError):
        follow(source)
    for _ in range(2):
        follow(source)
    assert len(started) == 2


class Unlimited(RateLimits):
    """Limits of a source without a Spark session."""

    def __init__(self) -> None:
        self._configured = self._estimated = 0.0


def test_direct_stream_forgets_failed_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    # The times of this test are earlier than batches that another test ran in this process.
    monkeypatch.setattr(batches, "_latest_ms", 0)
    with FakeBroker() as broker:
        broker.partition_counts = {"t": 1}
        source = DirectSource(0.5, {"metadata.broker.list": str(broker.endpoint)}, ["t"], None)
        source.rate_limits = Unlimited()
        try:
            sizes = []
            for time_ in range(1, 200):
                broker.end += 1
                assert source.ranges_at(time_) == {TopicPartition("t", 0): (time_ - 1, time_)}
                if time_ % 2:
                    source.fail(time_, "the sink is full")
                else:
                    source.complete({time_})
                source.forget_before(time_ - 5)
                sizes.append(len(pickle.dumps(source)))
        finally:
            source.close()
    assert max(sizes) - min(sizes) < 1000
    assert not source.has_failed


def test_stream_of_missing_topic_keeps_no_connection() -> None:
    with FakeBroker() as broker:
        broker.partition_counts = {}
        with pytest.raises(ConfigurationError, match="topic 'missing' does not exist"):
            DirectSource(0.5, {"metadata.broker.list": str(broker.endpoint)}, ["missing"], None)
        wait_for(lambda: not broker._open, what="the connections of the source are closed")


def test_stream_without_zookeeper_keeps_no_thread() -> None:
    source = group_source()
    for _ in range(2):
        with pytest.raises(ZooKeeperUnavailableError):
            source.ranges_at(1)
