"""Counts page views by region in five-minute windows that advance by one minute.

A stream of page views is joined with a table of user profiles, and the result is counted in windows.

Source: Kafka 3.9 org.apache.kafka.streams.examples.pageview.PageViewTypedDemo.
"""

from __future__ import annotations

from typing import Any

from zkconsumer.topology import Topology, serdes
from zkconsumer.topology.dsl import StreamsBuilder
from zkconsumer.topology.stores import Windowed
from zkconsumer.topology.windows import TimeWindows

MINUTE_MS = 60_000


def add_region(view: dict[str, Any], profile: dict[str, Any] | None) -> dict[str, Any]:
    """Return the page view with the region of its user."""
    return {**view, "region": "UNKNOWN" if profile is None else profile["region"]}


def get_region(_user: str, view: dict[str, Any]) -> str:
    """Return the region of a page view."""
    return str(view["region"])


def format_window(window: Windowed, _count: int) -> str:
    """Format a windowed key as region and window start."""
    return f"{window.key}@{window.start}"


def create_topology() -> Topology:
    """Return the topology. The keys of both input topics are users, and the values are JSON."""
    builder = StreamsBuilder()
    views = builder.stream("page-views", key_serde=serdes.STRING, value_serde=serdes.JSON)
    profiles = builder.table("user-profiles", key_serde=serdes.STRING, value_serde=serdes.JSON)
    by_region = views.left_join(profiles, add_region).group_by(
        get_region, key_serde=serdes.STRING, value_serde=serdes.JSON
    )
    counts = by_region.windowed_by(TimeWindows(size_ms=5 * MINUTE_MS, advance_ms=MINUTE_MS)).count(store="views")
    counts.to_stream(format_window).to("views-by-region", key_serde=serdes.STRING)
    return builder.build()
