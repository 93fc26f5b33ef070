"""Tests ``click_sessions.py`` without Kafka: ``python -m pytest examples/test_click_sessions.py``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from examples.click_sessions import topology
from zkconsumer.topology import TestInputTopic, TestOutputTopic, TopologyTestDriver, serdes

MINUTE = 60_000


@pytest.fixture
def driver() -> Iterator[TopologyTestDriver]:
    with TopologyTestDriver(topology()) as running:
        yield running


@pytest.fixture
def clicks(driver: TopologyTestDriver) -> TestInputTopic:
    return driver.create_input_topic("clicks", serdes.STRING)


@pytest.fixture
def sessions(driver: TopologyTestDriver) -> TestOutputTopic:
    return driver.create_output_topic("sessions", serdes.STRING, serdes.JSON)


def test_session_is_forwarded_when_it_has_ended(clicks: TestInputTopic, sessions: TestOutputTopic) -> None:
    clicks.pipe_input("ann", b"", 0)
    clicks.pipe_input("ann", b"", 10 * MINUTE)
    clicks.pipe_input("bob", b"", 55 * MINUTE)
    assert len(sessions) == 0

    clicks.pipe_input("bob", b"", 56 * MINUTE)

    assert sessions.read_key_values() == [("ann", {"clicks": 2, "minutes": 10})]


@pytest.mark.parametrize("pause", [46 * MINUTE, 91 * MINUTE, 30 * 24 * 60 * MINUTE])
def test_session_is_forwarded_after_long_pause(clicks: TestInputTopic, sessions: TestOutputTopic, pause: int) -> None:
    clicks.pipe_input("ann", b"", 0)
    clicks.pipe_input("bob", b"", pause)

    assert sessions.read_key_values() == [("ann", {"clicks": 1, "minutes": 0})]


def test_late_click_joins_two_sessions(driver: TopologyTestDriver, clicks: TestInputTopic) -> None:
    clicks.pipe_input("ann", b"", 40 * MINUTE)
    clicks.pipe_input("ann", b"", 0)
    assert len(list(driver.get_state_store("sessions").fetch("ann"))) == 2

    clicks.pipe_input("ann", b"", 20 * MINUTE)

    [(session, count)] = driver.get_state_store("sessions").fetch("ann")
    assert (session.start, session.end, count) == (0, 40 * MINUTE, 3)


def test_click_that_is_too_late_is_counted(driver: TopologyTestDriver, clicks: TestInputTopic) -> None:
    clicks.pipe_input("bob", b"", 46 * MINUTE)
    clicks.pipe_input("ann", b"", 0)

    assert driver.metrics["sessions/late_clicks"] == 1
    assert list(driver.get_state_store("sessions").fetch("ann")) == []
