"""Tests of the metadata of a member that polls brokers on sockets."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, cast

import pytest
from helpers.configurations import plaintext
from helpers.fake_broker import FakeBroker
from helpers.group_members import unregistered_watch
from helpers.threads import in_thread
from helpers.waiting import wait_for

from zkconsumer.errors import BrokerUnavailableError, ClosedError
from zkconsumer.message import Endpoint
from zkconsumer.metadata.bootstrap import BootstrapCluster
from zkconsumer.rebalance.broker_requests import BrokerRequestThread, ClusterProxy
from zkconsumer.zookeeper.session import Event, EventKind


@pytest.fixture
def requests() -> Iterator[BrokerRequestThread]:
    requests = BrokerRequestThread("test-requests", unregistered_watch())
    requests.start()
    yield requests
    requests.close(abort=lambda: None)
    requests.join()


def block(requests: BrokerRequestThread) -> tuple[threading.Event, Future[bool]]:
    """Block the thread until the event is set; returns the event and the result of the call."""
    running, end = threading.Event(), threading.Event()

    def wait() -> bool:
        running.set()
        return end.wait(60)

    call = requests.submit(wait)
    assert running.wait(10)
    return end, call


def test_only_polls_announce_changes(requests: BrokerRequestThread) -> None:
    """The other members receive the event that causes any other lookup, too."""
    changes: list[str] = []
    with FakeBroker() as broker:
        broker.partition_counts = {"t": 1}
        bootstrap = BootstrapCluster([broker.endpoint], plaintext(5))
        cluster = ClusterProxy(bootstrap, requests, lambda: changes.append("changed"))
        cluster.mark_next_lookup_as_poll()
        assert cluster.partitions(["t"]) == {"t": [0]}
        assert changes == [], "nothing was known before"
        broker.partition_counts = {"t": 2}
        assert cluster.partitions(["t"]) == {"t": [0, 1]}
        assert changes == []
        for expected in (1, 1):
            broker.partition_counts = {"t": 3}
            cluster.mark_next_lookup_as_poll()
            assert cluster.partitions(["t"]) == {"t": [0, 1, 2]}
            assert len(changes) == expected
        bootstrap.close()


def test_call_that_does_not_return_does_not_block_join(caplog: pytest.LogCaptureFixture) -> None:
    requests = BrokerRequestThread("test-requests", unregistered_watch(), join_timeout_s=0.2)
    requests.start()
    end, _ = block(requests)
    try:
        called = ClusterProxy(cast("Any", FewTopics()), requests, lambda: None)
        called.close()
        joining = in_thread(called.join)
        joining.result(10)
    finally:
        end.set()
    assert "broker_call_abandoned" in caplog.text
    wait_for(lambda: not requests._thread.is_alive)


class FewTopics:
    """A cluster of one broker and one topic; records the threads of its requests."""

    poll_interval_s = 7.0
    topic_ids: Mapping[str, str] = {"t": "id"}

    def __init__(self) -> None:
        self.threads: list[str] = []
        self.is_closed = False

    def brokers(self) -> list[Endpoint]:
        return [Endpoint("h", 1)]

    def topics(self) -> list[str]:
        self.threads.append(threading.current_thread().name)
        return ["t"]

    def partitions(self, topics: Sequence[str]) -> dict[str, list[int]]:
        self.threads.append(threading.current_thread().name)
        return {topic: [0] for topic in topics}

    def close(self) -> None:
        self.is_closed = True


def test_brokers_are_called_in_other_thread_only(requests: BrokerRequestThread) -> None:
    few = FewTopics()
    called = ClusterProxy(cast("Any", few), requests, lambda: None)
    assert (called.poll_interval_s, called.topic_ids, called.brokers()) == (7.0, {"t": "id"}, [Endpoint("h", 1)])
    assert (called.topics(), called.partitions(["t"])) == (["t"], {"t": [0]})
    assert few.threads == ["test-requests"] * 2
    called.close()
    called.join()
    assert few.is_closed


def test_slow_lookup_is_abandoned_later_each_time(requests: BrokerRequestThread) -> None:
    """A group that changes all the time must not keep slow brokers from being heard."""
    called = ClusterProxy(cast("Any", FewTopics()), requests, lambda: None, lookup_grace_s=0.1)
    waited = []
    for _ in range(3):
        end, _lookup = block(requests)
        requests.watch.mailbox.queue.put(Event(EventKind.CHANGED, "/ids"))
        started = time.monotonic()
        with pytest.raises(BrokerUnavailableError, match="the group changed"):
            called.partitions(["t"])
        waited.append(time.monotonic() - started)
        end.set()
    assert [duration >= least for duration, least in zip(waited, (0.1, 0.2, 0.4), strict=True)] == [True] * 3

    end, _lookup = block(requests)
    threading.Timer(0.3, end.set).start()
    requests.watch.mailbox.queue.put(Event(EventKind.CHANGED, "/ids"))
    assert called.partitions(["t"]) == {"t": [0]}, "the lookup may take 0.8 s now"

    end, _lookup = block(requests)
    started = time.monotonic()
    with pytest.raises(BrokerUnavailableError):
        called.partitions(["t"])
    assert time.monotonic() - started < 0.8, "the time starts again after a lookup that succeeded"
    end.set()


def test_calls_fail_after_close(requests: BrokerRequestThread) -> None:
    end, first = block(requests)
    waiting = requests.submit(lambda: "waiting")
    requests.close(abort=end.set)

    assert first.result(10) is True, "the function that is running was aborted"
    for rejected in (waiting, requests.submit(lambda: "late")):
        with pytest.raises(ClosedError, match="shut down"):
            rejected.result(10)
    requests.join()
    assert not requests._thread.is_alive


def test_failed_abort_ends_thread(requests: BrokerRequestThread) -> None:
    def fail() -> None:
        raise OSError("x")

    with pytest.raises(OSError, match="x"):
        requests.close(abort=fail)
    requests.join()
    assert not requests._thread.is_alive


def test_call_that_is_not_begun_in_time_does_not_run(requests: BrokerRequestThread) -> None:
    end, _ = block(requests)
    ran: list[bool] = []
    with pytest.raises(TimeoutError):
        requests.call(lambda: ran.append(True), time.monotonic() + 0.05)
    end.set()
    assert requests.call(lambda: "next") == "next"
    assert ran == []


def test_call_raises_error_of_its_function(requests: BrokerRequestThread) -> None:
    def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        requests.call(fail)


def test_member_is_woken_when_call_returns(requests: BrokerRequestThread) -> None:
    assert requests.call(lambda: "result") == "result"
    started = time.monotonic()
    requests.watch.wake()
    requests.process_events_for(0.05)
    assert 0.05 <= time.monotonic() - started < 10


def test_function_may_join_its_own_thread(requests: BrokerRequestThread) -> None:
    assert requests.submit(requests.join).result(10) is None
