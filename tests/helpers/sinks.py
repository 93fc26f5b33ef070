"""Settings of the sink of a topology."""

from __future__ import annotations

from typing import Any

from zkconsumer.spark.streams.output import ProcessingGuarantee, SinkSettings
from zkconsumer.topology.handlers import fail


def sink_settings(servers: str | None = None, **changes: Any) -> SinkSettings:
    """Return the settings of a sink that writes to the brokers ``servers``; ``changes`` replace the defaults."""
    default: dict[str, Any] = {
        "application_id": "app",
        "guarantee": ProcessingGuarantee.AT_LEAST_ONCE,
        "client": {} if servers is None else {"bootstrap.servers": servers},
        "producer": {},
        "has_sequence_headers": False,
        "partition_counts": {},
        "internal_topics": frozenset(),
        "fails_on_changed_output": True,
        "handler": fail,
        "quarantine_topic": None,
    }
    return SinkSettings(**{**default, **changes})
