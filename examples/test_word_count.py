"""Tests ``word_count.py`` without Kafka: ``python -m pytest examples/test_word_count.py``."""

from __future__ import annotations

from examples.word_count import create_topology
from zkconsumer.topology import ApplicationConfig, TopologyTestDriver, serdes


def test_each_word_is_counted() -> None:
    with TopologyTestDriver(create_topology(), ApplicationConfig(statestore_cache_max_bytes=0)) as driver:
        lines = driver.create_input_topic("lines", value_serializer=serdes.STRING)
        lines.pipe_input(None, "All streams lead to Kafka")
        lines.pipe_input(None, "Hello Kafka streams")
        counts = driver.create_output_topic("word-counts", serdes.STRING, serdes.LONG)
        assert counts.read_map() == {"all": 1, "streams": 2, "lead": 1, "to": 1, "kafka": 2, "hello": 1}
