"""Tests of the requests of a fetcher, with a broker on a socket and without a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from helpers import batches
from helpers.batches import Record
from helpers.configurations import fetch_settings
from helpers.fake_broker import FETCH, PARTITION, FakeBroker
from helpers.teardown import started
from helpers.threads import in_thread

from zkconsumer.broker import protocol
from zkconsumer.errors import BrokerUnavailableError, ClosedError, RetriableError
from zkconsumer.fetcher.queues import ByteBudget
from zkconsumer.fetcher.requests import FetchAnswer, FetchRequests, Throttle
from zkconsumer.log_ends import LATEST
from zkconsumer.message import TopicPartition
from zkconsumer.metrics import Metrics

LOG = [(batches.batch([Record(offset) for offset in range(first, first + 10)]), first + 10) for first in (0, 10)]
ABSENT = TopicPartition("absent", 0)

Opened = Callable[..., FetchRequests]


@pytest.fixture
def opened() -> Iterator[Opened]:
    """Function that returns requests to a broker; ``budget`` is the limit of the bytes."""

    def make(broker: FakeBroker, budget: int = 1 << 30) -> FetchRequests:
        settings = fetch_settings(socket_timeout_ms=5000)
        return FetchRequests(broker.endpoint, settings, ByteBudget(budget), Metrics())

    with started(make, FetchRequests.close) as start:
        yield start


def fetch(requests: FetchRequests, offset: int, size: int = 1 << 20) -> FetchAnswer:
    return requests.fetch(
        {PARTITION: (offset, size)}, fetch_wait_max_ms=1, fetch_message_max_bytes=size, fetch_max_bytes=size
    )


@pytest.mark.parametrize(("version", "truncates"), [(2, True), (3, False), (11, False)])
def test_answer_has_records_from_offset(opened: Opened, version: int, truncates: bool) -> None:
    with FakeBroker(LOG, fetch_version=version) as broker:
        answer = fetch(opened(broker), 10)

    [data] = answer.partitions
    assert (data.partition, data.error_code, data.high_watermark) == (PARTITION, 0, 20)
    assert bytes(data.records) == LOG[1][0]
    assert (answer.is_fast, answer.truncates_batches) == (True, truncates)


def test_response_is_limited_by_budget(opened: Opened) -> None:
    sizes: list[int] = []

    def record(key: int, request: Any, body: bytes) -> bytes:
        if key == FETCH:
            sizes.append(request.max_bytes)
        return body

    with FakeBroker(LOG, change=record) as broker:
        requests = opened(broker, 5000)
        for _ in range(2):  # the bytes are returned to the budget
            requests.fetch(
                {PARTITION: (0, 1000)}, fetch_wait_max_ms=1, fetch_message_max_bytes=1000, fetch_max_bytes=1 << 20
            )

    assert sizes == [5000, 5000]


def test_other_partition_in_response_is_rejected(opened: Opened) -> None:
    with (
        FakeBroker(LOG, change=lambda _key, _request, body: body.replace(b"\0\1t", b"\0\1u")) as broker,
        pytest.raises(RetriableError, match=r"exactly once: not returned \[t-0\], not requested \[u-0\]"),
    ):
        fetch(opened(broker), 0)


def test_rejected_request_raises_error_name(opened: Opened) -> None:
    def reject(key: int, _request: Any, body: bytes) -> bytes:
        return body[:4] + b"\0\x4c" + body[6:] if key == FETCH else body  # after the throttle time

    with (
        FakeBroker(LOG, change=reject) as broker,
        pytest.raises(RetriableError, match=r"rejected the fetch request: UNSUPPORTED_COMPRESSION_TYPE \(76\)"),
    ):
        fetch(opened(broker), 0)


@pytest.mark.parametrize("code", [70, 71])
def test_lost_session_returns_no_partition(opened: Opened, code: int) -> None:
    def lose_session(key: int, _request: Any, body: bytes) -> bytes:
        return body[:4] + code.to_bytes(2, "big") + body[6:] if key == FETCH else body

    with FakeBroker(LOG, change=lose_session) as broker:
        requests = opened(broker)
        assert fetch(requests, 0).partitions == ()
        broker.change = lambda _key, _request, body: body
        assert len(fetch(requests, 0).partitions) == 1


def test_fetch_after_abort_is_not_sent(opened: Opened) -> None:
    with FakeBroker(LOG) as broker:
        requests = opened(broker)
        requests.abort()
        with pytest.raises(ClosedError):
            fetch(requests, 0)
        assert broker.fetches == []


def test_abort_ends_request_of_other_thread(opened: Opened) -> None:
    sent, respond = threading.Event(), threading.Event()

    def delay(key: int, _request: Any, body: bytes) -> bytes:
        if key == FETCH:
            sent.set()
            respond.wait(10)
        return body

    with FakeBroker(LOG, change=delay) as broker:
        requests = opened(broker)

        def abort() -> None:
            assert sent.wait(10)
            requests.abort()

        aborting = in_thread(abort)
        with pytest.raises(ClosedError):
            fetch(requests, 0)
        respond.set()
        aborting.result()


def test_unreachable_broker_is_reported(opened: Opened) -> None:
    with FakeBroker(LOG) as broker:
        requests = opened(broker)
    with pytest.raises(BrokerUnavailableError):
        fetch(requests, 0)


def test_throttle_time_delays_next_fetch(opened: Opened) -> None:
    def throttle(key: int, _request: Any, body: bytes) -> bytes:
        return (2000).to_bytes(4, "big") + body[4:] if key == FETCH else body

    with FakeBroker(LOG, change=throttle) as broker:
        requests = opened(broker)
        assert requests.throttle_s == 0
        fetch(requests, 0)
        assert 1 < requests.throttle_s <= 2


def test_partition_missing_in_list_offsets_has_error(opened: Opened) -> None:
    def drop(key: int, _request: Any, body: bytes) -> bytes:
        return body.replace(b"\0\6absent", b"\0\6others")

    with FakeBroker(LOG, change=drop) as broker:
        found = opened(broker).list_offsets([PARTITION, ABSENT], LATEST)

    assert found == {PARTITION: (0, 20), ABSENT: (protocol.UNKNOWN_SERVER_ERROR, -1)}


def test_throttle_time_is_limited() -> None:
    throttle = Throttle(max_delay_s=30)
    throttle.update((1 << 31) - 1)

    assert 29 < throttle.remaining() <= 30


def test_throttle_time_of_broker_is_kept() -> None:
    throttle = Throttle(max_delay_s=100)
    assert throttle.remaining() == 0
    throttle.update(60_000)

    assert 59 < throttle.remaining() <= 60
    throttle.update(0)
    assert throttle.remaining() > 59
