"""Random DSL pipelines with the settings of the test driver, except that records above size limits are skipped."""

from __future__ import annotations

import importlib
from typing import Any

from zkconsumer.topology import Topology, handlers

dsl_pipelines: Any = importlib.import_module("dsl_pipelines")

Json = Any

#: Number of pipelines in the topology.
COUNT = 3

#: Settings of the application. Records that are too large for their topic are skipped.
CONFIG: dict[str, Any] = {
    **dsl_pipelines.CONFIG,
    "statestore_cache_max_bytes": 0,
    "emit_interval_ms": 0,
    "production_handler": handlers.log_and_continue,
}


def create(prefix: str, seed: str) -> Topology:
    """Return a topology with pipelines whose topics have a prefix."""
    topology: Topology = dsl_pipelines.create(prefix, seed, COUNT)
    return topology


def generate(prefix: str, seed: str) -> list[Json]:
    """Return the requests of the pipelines; see ``dsl_pipelines.generate``."""
    requests: list[Json] = dsl_pipelines.generate(prefix, seed, COUNT)
    return requests
