"""Tests of the queue of calls and events for one thread."""

from __future__ import annotations

import time
from concurrent.futures import Future

import pytest
from helpers.threads import in_thread

from zkconsumer.errors import ClosedError, ZkConsumerError
from zkconsumer.rebalance.mailbox import Mailbox


@pytest.fixture
def mailbox() -> Mailbox:
    made = Mailbox("the consumer has been shut down")
    made.open()
    return made


def test_calls_that_arrive_meanwhile_are_left(mailbox: Mailbox) -> None:
    """Threads that commit without a pause must not keep the owner from its other work."""
    processed: list[int] = []

    def submit_again() -> None:
        processed.append(len(processed))
        if len(processed) < 1000:
            mailbox.submit(submit_again)

    for _ in range(3):
        mailbox.submit(submit_again)

    mailbox.process(0)
    assert 3 <= len(processed) < 10
    assert not mailbox.queue.empty()


def test_calls_and_events_keep_their_order(mailbox: Mailbox) -> None:
    ran: list[str] = []
    mailbox.queue.put("first")
    call = mailbox.submit(lambda: ran.append("call"))
    mailbox.wake()
    mailbox.queue.put("second")
    mailbox.stop()
    assert not mailbox.is_stopping

    assert mailbox.process(0) == ["first", "second"]
    assert (ran, call.result(0), mailbox.is_stopping) == (["call"], None, True)


def test_calls_behind_an_event_see_its_consequences(mailbox: Mailbox) -> None:
    mailbox.queue.put("changed")
    mailbox.queue.put("lost")
    call = mailbox.submit(lambda: "done")

    assert mailbox.process(0, until=lambda event: bool(event == "lost")) == ["changed", "lost"]
    assert not call.done()
    assert mailbox.process(0) == []
    assert call.result(0) == "done"


def test_process_waits_for_first_item(mailbox: Mailbox) -> None:
    started = time.monotonic()
    assert mailbox.process(0.05) == []
    assert time.monotonic() - started >= 0.05

    processing = in_thread(lambda: mailbox.process(None))
    call = mailbox.submit(lambda: "done")
    processing.result(10)
    assert call.result(0) == "done"
    assert not mailbox.is_stopping


def test_error_of_call_reaches_its_thread_only(mailbox: Mailbox) -> None:
    def fail() -> None:
        raise KeyboardInterrupt

    call = mailbox.submit(fail)
    after = mailbox.submit(lambda: "done")

    mailbox.process(0)

    assert isinstance(call.exception(0), KeyboardInterrupt)
    assert after.result(0) == "done"


def test_cancelled_call_does_not_run(mailbox: Mailbox) -> None:
    ran: list[bool] = []
    mailbox.submit(lambda: ran.append(True)).cancel()

    mailbox.process(0)

    assert ran == []


def test_posted_call_completes_its_future_later(mailbox: Mailbox) -> None:
    ran: list[bool] = []
    result: Future[str] = Future()
    mailbox.post(lambda: ran.append(True), result)
    mailbox.process(0)
    assert (ran, result.done()) == ([True], False)

    failed: Future[str] = Future()
    mailbox.post(lambda: [][0], failed)
    mailbox.process(0)
    assert isinstance(failed.exception(0), IndexError)


def test_posted_calls_fail_after_close(mailbox: Mailbox) -> None:
    waiting, running, done, late = (Future[str]() for _ in range(4))
    running.set_running_or_notify_cancel()
    done.set_result("committed")
    for result in (waiting, running, done):
        mailbox.post(lambda: None, result)
    mailbox.close()
    mailbox.post(lambda: None, late)

    assert [type(result.exception(0)) for result in (waiting, running, late)] == [ClosedError] * 3
    assert done.result(0) == "committed"


def test_calls_fail_after_close(mailbox: Mailbox) -> None:
    pending = mailbox.submit(lambda: None)
    mailbox.close()

    with pytest.raises(ClosedError, match="has been shut down"):
        pending.result(0)
    with pytest.raises(ClosedError, match="has been shut down"):
        mailbox.submit(lambda: None).result(0)
    assert mailbox.is_stopping


def test_calls_behind_close_do_not_run(mailbox: Mailbox) -> None:
    mailbox.submit(mailbox.close)
    behind = mailbox.submit(lambda: None)

    mailbox.process(0)

    assert isinstance(behind.exception(0), ClosedError)


def test_calls_fail_with_failure_of_owner(mailbox: Mailbox) -> None:
    failure = ZkConsumerError("x")
    mailbox.close(failure)

    assert mailbox.submit(lambda: None).exception(0) is failure
    assert mailbox.process(10) == [], "close wakes the owner"


def test_mailbox_that_was_not_opened_rejects_calls_and_keeps_events() -> None:
    mailbox = Mailbox("not started")
    mailbox.queue.put("connected")

    with pytest.raises(ClosedError, match="not started"):
        mailbox.submit(lambda: None).result(0)
    assert mailbox.process(0) == ["connected"]
    mailbox.stop()
    assert mailbox.is_stopping, "no thread processes the signal"
