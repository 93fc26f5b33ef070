"""Random pipelines of the DSL as one topology, which drivers and workers import."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

from zkconsumer.errors import TopologyError
from zkconsumer.topology import Topology, serdes

# The functions of the pipelines are in the package ``oracle``. A worker imports this module first.
sys.path.append(str(Path(__file__).parents[2]))

from oracle.dsl_generator import PipelineGenerator
from oracle.dsl_programs import Pipeline

Json = Any

#: Number of pipelines in the topology.
COUNT = 5

#: Settings of the application. Tasks do not wait for records of other topics, because that depends on lags, which the
#: checkpoint does not contain.
CONFIG = {"key_serde": serdes.STRING, "value_serde": serdes.STRING, "max_task_idle_ms": -1}

#: Arguments of steps that are names of streams, tables and groups, and those that are names of nodes and stores.
_VARIABLES, _NAMES = ("out", "in", "other", "outs"), ("name", "base")


def create(prefix: str, seed: str, count: int = COUNT) -> Topology:
    """Return a topology with pipelines whose topics have a prefix."""
    return Pipeline([step for request in generate(prefix, seed, count) for step in request["steps"]]).builder.build()


def generate(prefix: str, seed: str, count: int = COUNT) -> list[Json]:
    """Return the requests of the pipelines, in which all names are different."""
    rng = random.Random(int(seed))
    found: list[Json] = []
    while len(found) < count:
        request = PipelineGenerator(rng, 0).generate(0)
        if is_usable(request["steps"]):
            found.append(_rename(request, f"p{len(found)}", prefix))
    return found


def list_inputs(requests: list[Json]) -> list[str]:
    """Return the topics that pipelines read."""
    steps = [step for request in requests for step in request["steps"]]
    topics = {topic for step in steps for topic in step.get("topics", ())}
    return sorted(topics | {step["topic"] for step in steps if step["op"] == "table"})


def is_usable(steps: Json) -> bool:
    """Return whether the steps are valid, and read no global table, whose contents depend on the time."""
    if any(step["op"] == "global_table" for step in steps):
        return False
    try:
        Pipeline(steps).builder.build()
    except TopologyError:
        return False
    return True


def _rename(request: Json, pipeline: str, prefix: str) -> Json:
    return {
        "steps": [_rename_step(step, pipeline, prefix) for step in request["steps"]],
        "outputs": [f"{prefix}-{pipeline}-{topic}" for topic in request["outputs"]],
    }


def _rename_step(step: Json, pipeline: str, prefix: str) -> Json:
    renamed = dict(step)
    # The serde of another stream has the name ``other_value``; only names of variables change.
    renamed |= {name: f"{pipeline}{step[name]}" for name in (*_VARIABLES, *_NAMES) if name in step}
    if "topic" in step:
        renamed["topic"] = f"{prefix}-{pipeline}-{step['topic']}"
    if "topics" in step:
        renamed["topics"] = [f"{prefix}-{pipeline}-{topic}" for topic in step["topics"]]
    if (step.get("store") or {}).get("name"):
        renamed["store"] = {**step["store"], "name": f"{pipeline}{step['store']['name']}"}
    return renamed
