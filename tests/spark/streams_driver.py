"""A driver that runs a topology until it is killed: ``python -m spark.streams_driver '{...}'`` in ``tests``."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

from zkconsumer.spark import QuerySettings, StreamsApp
from zkconsumer.topology import ApplicationConfig

from .session import start_spark


def main(settings: dict[str, Any]) -> None:
    """Run the application."""
    sys.path.append(str(Path(__file__).parent / "on_path"))
    topology = importlib.import_module("streams_topologies").counting(settings["source"], settings["sink"])
    spark = start_spark(Path(settings["folder"]))
    config = ApplicationConfig(application_id=settings["group"])
    query = QuerySettings(trigger_ms=200, max_records_per_task=200)
    with StreamsApp(topology, config, spark, settings["checkpoint"], settings["properties"], query) as app:
        app.wait()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
