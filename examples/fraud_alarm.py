"""Raises an alarm for payments within ten minutes after a password change, and counts alarms per user and hour.

Two streams are joined in windows with a grace period, and ``suppress`` forwards each final count once.
"""

from __future__ import annotations

from zkconsumer.topology import Topology, serdes
from zkconsumer.topology.dsl import StreamsBuilder, UntilWindowCloses
from zkconsumer.topology.stores import Windowed
from zkconsumer.topology.windows import JoinWindows, TimeWindows

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS


def describe(change: str, payment: str) -> str:
    """Return the text of an alarm."""
    return f"{payment} after {change}"


def format_window(window: Windowed, _count: int) -> str:
    """Format a windowed key as user and window start."""
    return f"{window.key}@{window.start}"


def create_topology() -> Topology:
    """Return the topology. Keys are users; in ``alarm-counts``, a key consists of a user and the start of an hour."""
    builder = StreamsBuilder()
    changes = builder.stream("password-changes", key_serde=serdes.STRING, value_serde=serdes.STRING)
    payments = builder.stream("payments", key_serde=serdes.STRING, value_serde=serdes.STRING)
    ten_minutes = JoinWindows(before_ms=0, after_ms=10 * MINUTE_MS, grace_ms=MINUTE_MS)
    alarms = changes.join(payments, describe, windows=ten_minutes)
    alarms.to("alarms", value_serde=serdes.STRING)
    grouped = alarms.group_by_key(value_serde=serdes.STRING)
    counts = grouped.windowed_by(TimeWindows(size_ms=HOUR_MS, grace_ms=MINUTE_MS)).count(store="alarms-per-hour")
    counts.suppress(UntilWindowCloses()).to_stream(format_window).to("alarm-counts", key_serde=serdes.STRING)
    return builder.build()
