"""Tests of the metadata of a member that polls brokers on sockets."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from fake_broker import FakeBroker
from support import in_thread

from zkconsumer.broker.cluster import BootstrapCluster
from zkconsumer.rebalance import broker_calls
from zkconsumer.rebalance.broker_calls import BrokerCalls, CalledCluster


@pytest.fixture
def calls() -> Iterator[BrokerCalls]:
    calls = BrokerCalls("test-calls", wait=lambda timeout_s: time.sleep(min(timeout_s or 1, 0.001)), wake=lambda: None)
    calls.start()
    yield calls
    calls.close(abort=lambda: None)
    calls.join()


def test_only_polls_announce_changes(calls: BrokerCalls) -> None:
    """The other members receive the event that causes any other lookup, too."""
    changes: list[str] = []
    with FakeBroker() as broker:
        broker.partition_counts = {"t": 1}
        bootstrap = BootstrapCluster([broker.endpoint], "test", timeout=5)
        cluster = CalledCluster(bootstrap, calls, lambda: changes.append("changed"))
        cluster.poll()
        assert cluster.partitions(["t"]) == {"t": [0]}
        assert changes == [], "nothing was known before"
        broker.partition_counts = {"t": 2}
        assert cluster.partitions(["t"]) == {"t": [0, 1]}
        assert changes == []
        for expected in (1, 1):
            broker.partition_counts = {"t": 3}
            cluster.poll()
            assert cluster.partitions(["t"]) == {"t": [0, 1, 2]}
            assert len(changes) == expected
        bootstrap.close()


def test_call_that_does_not_return_does_not_block_join(
    calls: BrokerCalls, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_calls, "_JOIN_TIMEOUT_S", 0.2)
    running, end = threading.Event(), threading.Event()
    calls.submit(lambda: (running.set(), end.wait(60)))
    assert running.wait(10)
    try:
        calls.close(abort=lambda: None)
        joining = in_thread(calls.join)
        joining.result(10)
    finally:
        end.set()
    assert "broker_call_abandoned" in caplog.text


def test_function_may_join_its_own_thread(calls: BrokerCalls) -> None:
    assert calls.submit(calls.join).result(10) is None
