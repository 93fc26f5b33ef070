"""Tests ``page_views_by_region.py`` without Kafka: ``python -m pytest examples/test_page_views_by_region.py``."""

from __future__ import annotations

from examples.page_views_by_region import MINUTE_MS, create_topology
from zkconsumer.topology import ApplicationConfig, TopologyTestDriver, serdes


def test_views_are_counted_by_region_and_window() -> None:
    config = ApplicationConfig(statestore_cache_max_bytes=0)
    with TopologyTestDriver(create_topology(), config) as driver:
        key, value = serdes.STRING, serdes.JSON
        profiles = driver.create_input_topic("user-profiles", key, value)
        views = driver.create_input_topic("page-views", key, value)
        profiles.pipe_input("ann", {"region": "EU"}, 0)
        for user, time_ms in (("ann", 10), ("bob", 20), ("ann", MINUTE_MS + 5)):
            views.pipe_input(user, {"page": "index"}, time_ms)
        counts = driver.create_output_topic("views-by-region", serdes.STRING, serdes.LONG)
        assert counts.read_key_values() == [("EU@0", 1), ("UNKNOWN@0", 1), ("EU@0", 2), (f"EU@{MINUTE_MS}", 1)]
