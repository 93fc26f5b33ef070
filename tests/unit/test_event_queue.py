"""Tests of the queue on which all events of a group member arrive."""

from __future__ import annotations

import time
from concurrent.futures import Future

import pytest
from support import in_thread

from zkconsumer.errors import ClosedError, ZkConsumerError
from zkconsumer.rebalance.event_queue import EventQueue
from zkconsumer.zookeeper.session import Event, EventKind


@pytest.fixture
def events() -> EventQueue:
    made = EventQueue()
    made.open()
    return made


def test_events_that_arrive_meanwhile_are_left(events: EventQueue) -> None:
    """Threads that commit without a pause must not keep the member from its other work."""
    processed: list[int] = []

    def request_again() -> None:
        processed.append(len(processed))
        if len(processed) < 1000:
            events.submit(request_again)

    for _ in range(3):
        events.submit(request_again)

    events.process(0)
    assert 3 <= len(processed) < 10
    assert not events.queue.empty()


def test_events_are_processed_in_order_of_arrival(events: EventQueue) -> None:
    order: list[object] = []
    events.on_zookeeper_event = order.append
    events.queue.put(Event(EventKind.CONNECTED))
    request = events.submit(lambda: order.append("request"))
    events.wake()
    events.queue.put(Event(EventKind.CHANGED, "/a"))
    events.stop()
    assert not events.is_stopping

    events.process(0)

    assert order == [Event(EventKind.CONNECTED), "request", Event(EventKind.CHANGED, "/a")]
    assert (request.result(0), events.is_stopping) == (None, True)


def test_process_waits_for_first_event(events: EventQueue) -> None:
    started = time.monotonic()
    events.process(0.05)
    assert time.monotonic() - started >= 0.05

    processing = in_thread(lambda: events.process(None))
    request = events.submit(lambda: "done")
    processing.result(10)
    assert request.result(0) == "done"
    assert not events.is_stopping


def test_error_of_request_reaches_its_thread_only(events: EventQueue) -> None:
    def fail() -> None:
        raise KeyboardInterrupt

    request = events.submit(fail)
    after = events.submit(lambda: "done")

    events.process(0)

    assert isinstance(request.exception(0), KeyboardInterrupt)
    assert after.result(0) == "done"


def test_cancelled_request_does_not_run(events: EventQueue) -> None:
    ran: list[bool] = []
    events.submit(lambda: ran.append(True)).cancel()

    events.process(0)

    assert ran == []


@pytest.mark.parametrize("error", [None, ValueError("x")])
def test_future_of_request_completes_it_later(events: EventQueue, error: Exception | None) -> None:
    later: Future[str] = Future()
    request = events.submit(lambda: later)
    events.process(0)
    assert not request.done()

    if error is None:
        later.set_result("committed")
        assert request.result(0) == "committed"
    else:
        later.set_exception(error)
        assert request.exception(0) is error


def test_requests_fail_after_close(events: EventQueue) -> None:
    pending = events.submit(lambda: None)
    events.close()

    for request in (pending, events.submit(lambda: None)):
        with pytest.raises(ClosedError, match="has been shut down"):
            request.result(0)
    assert events.is_stopping


def test_requests_fail_with_failure_of_member(events: EventQueue) -> None:
    failure = ZkConsumerError("x")
    events.close(failure)

    assert events.submit(lambda: None).exception(0) is failure
    with pytest.raises(ClosedError):
        EventQueue().submit(lambda: None).result(0)
