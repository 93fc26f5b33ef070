"""Checks that the parts of an application can be pickled, because Spark sends them to the workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark import cloudpickle

from zkconsumer.errors import TopologyError
from zkconsumer.topology.config import ApplicationConfig
from zkconsumer.topology.declared.nodes import ProcessorNode, SinkNode, SourceNode
from zkconsumer.topology.subtopology import Subtopology

_KINDS = {SourceNode: "source", ProcessorNode: "processor", SinkNode: "sink"}


def check_picklable(subtopologies: Mapping[int, Subtopology], config: ApplicationConfig) -> None:
    """Check that the nodes, stores and settings of an application can be pickled.

    Args:
        subtopologies: the sub-topologies by number.
        config: application settings.

    Raises:
        TopologyError: a node, store or setting cannot be pickled.
    """
    for one in subtopologies.values():
        for node in one.nodes:
            _check(f"{_KINDS[type(node)]} {node.name!r}", node)
        for store in one.stores:
            _check(f"store {store.name!r}", store)
    _check("a function in ApplicationConfig", config)


def _check(what: str, part: Any) -> None:
    try:
        cloudpickle.dumps(part)
    except Exception as error:
        raise TopologyError(
            f"{what} cannot be pickled for the workers: {error}; create the object on the worker, for example in the "
            "processor's init()"
        ) from error
