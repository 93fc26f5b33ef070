"""Tests ``idle_alarm.py`` without Kafka: ``python -m pytest examples/test_idle_alarm.py``."""

from __future__ import annotations

from examples.idle_alarm import topology
from zkconsumer.topology import TopologyTestDriver, serdes


def test_idle_device_is_reported_once_until_it_is_back() -> None:
    with TopologyTestDriver(topology()) as driver:
        measurements = driver.create_input_topic("measurements", serdes.STRING)
        alarms = driver.create_output_topic("alarms", serdes.STRING, serdes.STRING)
        measurements.pipe_input("pump", b"1")
        driver.advance_wall_clock_time(30_000)
        measurements.pipe_input("fan", b"1")

        driver.advance_wall_clock_time(30_000)
        assert alarms.read_key_values() == [("pump", "idle")]
        driver.advance_wall_clock_time(10_000)
        assert len(alarms) == 0

        measurements.pipe_input("pump", b"2")
        assert alarms.read_key_values() == [("pump", "back")]
