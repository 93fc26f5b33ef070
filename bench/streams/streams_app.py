"""The benchmark application for zkconsumer: ``python -m bench.streams.streams_app SETTINGS``.

``SETTINGS`` is the JSON that ``applications.Run.to_json`` returns.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Any

from bench.streams.count_topology import create_topology, create_values_topology
from bench.streams.spark_session import create_session
from bench.streams.workload import PARTITIONS
from zkconsumer.spark import QuerySettings, StreamsApp
from zkconsumer.topology import ApplicationConfig, Topology


def main(settings: dict[str, Any]) -> None:
    """Run the topology that counts records per key, or the topology that stores the last value of each key."""
    if settings.get("keeps_values"):
        topology = create_values_topology(settings["input"], settings["output"])
    else:
        topology = create_topology(settings["input"], settings["output"], settings["cached"])
    run_topology(topology, settings)


def run_topology(topology: Topology, settings: dict[str, Any]) -> None:
    """Run a topology until the process is killed."""
    config = ApplicationConfig(application_id=settings["name"])
    if not settings["cached"]:
        config = replace(config, statestore_cache_max_bytes=0)
    query = QuerySettings(
        trigger_ms=settings["commit_ms"],
        max_records_per_task=settings["batch_records"] // PARTITIONS,
        sequence_headers=settings["sequence_headers"],
    )
    properties = {"bootstrap.servers": settings["brokers"]}
    checkpoint = f"{settings['folder']}/checkpoint"
    with StreamsApp(topology, config, create_session(settings["folder"]), checkpoint, properties, query) as app:
        app.wait()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
