"""Tests ``fraud_alarm.py`` without Kafka: ``python -m pytest examples/test_fraud_alarm.py``."""

from __future__ import annotations

from examples.fraud_alarm import HOUR_MS, MINUTE_MS, create_topology
from zkconsumer.topology import TopologyTestDriver, serdes


def test_payments_after_password_change_raise_alarms() -> None:
    with TopologyTestDriver(create_topology()) as driver:
        text = serdes.STRING
        changes = driver.create_input_topic("password-changes", text, text)
        payments = driver.create_input_topic("payments", text, text)
        changes.pipe_input("ann", "reset", 5 * MINUTE_MS)
        payments.pipe_input("ann", "100 EUR", 7 * MINUTE_MS)
        payments.pipe_input("ann", "200 EUR", 6 * MINUTE_MS)
        payments.pipe_input("bob", "5 EUR", 8 * MINUTE_MS)
        payments.pipe_input("ann", "1 EUR", 20 * MINUTE_MS)
        alarms = driver.create_output_topic("alarms", text, text)
        assert alarms.read_values() == ["100 EUR after reset", "200 EUR after reset"]
        counts = driver.create_output_topic("alarm-counts", text, serdes.LONG)
        assert not counts
        changes.pipe_input("cat", "reset", HOUR_MS + 2 * MINUTE_MS)
        payments.pipe_input("cat", "9 EUR", HOUR_MS + 3 * MINUTE_MS)
        assert counts.read_key_values() == [("ann@0", 2)]
