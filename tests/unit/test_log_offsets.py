"""Tests of offset requests to several leaders, some of which do not respond."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from typing import Any, cast

import pytest
from helpers.configurations import plaintext
from helpers.fake_broker import LIST_OFFSETS, FakeBroker

from zkconsumer.broker import protocol
from zkconsumer.broker.log_offsets import LogOffsets
from zkconsumer.errors import BrokerUnavailableError, TopicAuthorizationError
from zkconsumer.health import HealthState
from zkconsumer.log import get_logger
from zkconsumer.log_ends import LATEST
from zkconsumer.message import TopicPartition
from zkconsumer.spark.planning.available_offsets import AvailableOffsets

#: The partition with this number is led by the broker with the same number.
PARTITIONS = [TopicPartition("t", number) for number in range(4)]
#: Timeout of all leaders together, in seconds.
TIMEOUT_S = 1.0


class Brokers(list[FakeBroker]):
    """Four brokers; each leads one partition, whose log ends at offset 7.

    Attributes:
        responds: while it is cleared, the brokers whose numbers are in ``silent`` do not respond to ListOffsets.
    """

    def __init__(self, stack: ExitStack) -> None:
        super().__init__(stack.enter_context(FakeBroker()) for _ in PARTITIONS)
        self.responds = threading.Event()
        self.silent: set[int] = set()
        for number, broker in enumerate(self):
            broker.end = 7
            broker.partition_counts = {"t": len(PARTITIONS)}
            broker.peers = [peer.endpoint for peer in self]
            broker.change = partial(self._delayed, number)

    def _delayed(self, number: int, key: int, _request: object, body: bytes) -> bytes:
        if key == LIST_OFFSETS and number in self.silent:
            self.responds.wait()
        return body


@pytest.fixture
def brokers() -> Iterator[Brokers]:
    with ExitStack() as stack:
        brokers = Brokers(stack)
        yield brokers
        brokers.responds.set()


def logs_of(brokers: Brokers, timeout_s: float = TIMEOUT_S, **timeouts_s: Any) -> LogOffsets:
    return LogOffsets(lambda: [broker.endpoint for broker in brokers], plaintext(timeout_s), **timeouts_s)


@pytest.fixture
def logs(brokers: Brokers) -> Iterator[LogOffsets]:
    with closing(logs_of(brokers)) as logs:
        yield logs


def timed(logs: LogOffsets) -> tuple[float, dict[TopicPartition, int], dict[TopicPartition, Any]]:
    """Return the seconds that a lookup of end offsets took, and its results."""
    started = time.monotonic()
    offsets, errors = logs.look_up(PARTITIONS, LATEST)
    return time.monotonic() - started, offsets, errors


def test_silent_leaders_share_one_timeout(brokers: Brokers, logs: LogOffsets) -> None:
    brokers.silent = {0, 1, 3}
    duration, offsets, errors = timed(logs)
    assert offsets == {PARTITIONS[2]: 7}
    assert errors.keys() == {PARTITIONS[number] for number in brokers.silent}
    assert {type(error) for error in errors.values()} == {BrokerUnavailableError}
    assert duration < 1.5 * TIMEOUT_S, "not three timeouts"


def test_silent_leader_gets_less_time_next_time(brokers: Brokers) -> None:
    brokers.silent = {1}
    with closing(logs_of(brokers, silent_timeout_s=0.06, min_silent_timeout_s=0.03)) as logs:
        assert timed(logs)[0] > 0.2, "the first time, it has its share of the timeout"
        duration, offsets, errors = timed(logs)
        assert (len(offsets), set(errors)) == (3, {PARTITIONS[1]})
        assert duration < 0.2
        brokers.silent.clear()
        brokers.responds.set()
        assert timed(logs)[1:] == (dict.fromkeys(PARTITIONS, 7), {})


def test_silent_leader_recovers_with_short_timeout(brokers: Brokers) -> None:
    """The timeout is shorter than the time that a silent leader usually has."""
    with closing(logs_of(brokers, timeout_s=0.5)) as logs:
        brokers.silent = {1}
        assert timed(logs)[2].keys() == {PARTITIONS[1]}
        brokers.silent.clear()
        brokers.responds.set()
        assert timed(logs)[1:] == (dict.fromkeys(PARTITIONS, 7), {})


def test_leaders_recover_one_after_another(brokers: Brokers) -> None:
    """They respond slowly, so that the short timeout suffices for one of them at a time."""
    with closing(logs_of(brokers, silent_timeout_s=0.6, min_silent_timeout_s=0.5)) as logs:
        brokers.silent = {0, 1, 2}
        timed(logs)
        timed(logs)
        brokers.silent.clear()
        brokers.responds.set()
        for number in range(3):
            change = brokers[number].change

            def slow(key: int, request: object, body: bytes, change: Any = change) -> Any:
                time.sleep(0.15 * (key == LIST_OFFSETS))
                return change(key, request, body)

            brokers[number].change = slow
        found = [len(timed(logs)[1]) for _ in range(3)]
        assert found == [2, 3, 4]


class SlowLogs:
    """Replaces LogOffsets: the leader of the first partition does not respond, which takes two seconds each time."""

    def __init__(self) -> None:
        self.now = self.waited = 0.0

    def look_up(self, partitions: set[TopicPartition], _timestamp: int) -> Any:
        self.now += 0.001
        if PARTITIONS[0] not in partitions:
            return dict.fromkeys(partitions, 7), {}
        self.now, self.waited = self.now + 2.0, self.waited + 2.0
        error = BrokerUnavailableError("no complete response")
        return dict.fromkeys(partitions - {PARTITIONS[0]}, 7), {PARTITIONS[0]: error}


def test_silent_leader_takes_a_tenth_of_the_time() -> None:
    logs = SlowLogs()
    available = AvailableOffsets(cast(Any, logs), get_logger("test"), clock=lambda: logs.now)
    while logs.now < 300:
        assert len(available.find(PARTITIONS, LATEST, all_=False)) == 3
    assert 20 < logs.waited < 0.1 * logs.now


def test_partition_named_twice_in_metadata_is_used(brokers: Brokers, logs: LogOffsets) -> None:
    for broker in brokers:
        broker.partition_repetitions = 2
    assert timed(logs)[1:] == (dict.fromkeys(PARTITIONS, 7), {})
    assert logs.topics.look_up(["t"])["t"].partitions == (0, 1, 2, 3)


@pytest.mark.parametrize("is_known", [False, True])
def test_denied_topic_is_reported_as_denied(is_known: bool, brokers: Brokers, logs: LogOffsets) -> None:
    available = AvailableOffsets(logs, get_logger("test"))
    if is_known:
        logs.find_leaders(PARTITIONS)
    for broker in brokers:
        broker.topic_errors = {"t": protocol.TOPIC_AUTHORIZATION_FAILED}
    with pytest.raises(TopicAuthorizationError, match="TOPIC_AUTHORIZATION_FAILED"):
        available.find(PARTITIONS, LATEST, all_=True)


def test_health_names_each_cause(brokers: Brokers, logs: LogOffsets) -> None:
    available = AvailableOffsets(logs, get_logger("test"))
    logs.find_leaders(PARTITIONS)  # before the broker that may be asked for them denies access
    brokers[0].topic_errors, brokers.silent = {"t": protocol.TOPIC_AUTHORIZATION_FAILED}, {1}
    assert available.find(PARTITIONS, LATEST, all_=False).keys() == {PARTITIONS[2], PARTITIONS[3]}
    assert {(reason.state, reason.code, reason.partitions) for reason in available.health_reasons()} == {
        (HealthState.STALLED, "topic_authorization_failed", frozenset([PARTITIONS[0]])),
        (HealthState.STALLED, "leader_not_found", frozenset([PARTITIONS[1]])),
    }
