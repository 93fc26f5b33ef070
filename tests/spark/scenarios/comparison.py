"""Comparison of a task of the query with one in memory, and with Kafka Streams."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from typing import Any

from oracle.generator import OUTPUTS

from .cases import Case
from .query import TaskResult
from .task import METRICS

#: Maximum number of characters of a value that are printed.
_SHOWN = 600


def compare(case: Case, partition: int, result: TaskResult, totals: Counter[str]) -> list[str]:
    """Return how a task of the query differs from one in memory, and from Kafka Streams.

    Args:
        case: the scenario.
        partition: partition number of the task.
        result: what the task did in the query.
        totals: numbers of what was compared, to be increased.
    """
    expected = case.expect(partition)
    state = result.restore(case, partition)
    pairs: dict[str, tuple[Any, Any]] = {
        "outputs": (result.outputs, expected.outputs),
        "unused pages": (result.list_unused_pages(case), []),
        "metrics": ({name: result.metrics[name] for name in METRICS}, expected.state.metrics),
    }
    pairs |= {name: (getattr(state, name), getattr(expected.state, name)) for name in state._fields}
    if case.answer is not None:
        stores = {name: lines for name, lines in case.answer["stores"].items() if lines}
        pairs |= {
            "outputs of Kafka Streams": (by_topic(result.outputs), by_topic(case.answer["outputs"])),
            "stores of Kafka Streams": (state.stores, stores),
            "dropped records of Kafka Streams": (result.metrics["dropped"], case.answer["dropped"]),
        }
    schedules = expected.state.snapshot.schedules.queues.values()
    totals.update(
        {
            "tasks": 1,
            "batches": len(expected.outputs),
            "records": expected.state.metrics["processed"],
            "outputs": sum(map(len, expected.outputs)),
            "entries": sum(map(len, expected.state.stores.values())),
            "pages": len(result.pages),
            "schedules": sum(map(len, schedules)),
            "queued records": sum(map(len, expected.state.queued.values())),
            "dropped records": expected.state.metrics["dropped"],
        }
    )
    return [
        describe_difference(case, partition, what, found, wanted)
        for what, (found, wanted) in pairs.items()
        if found != wanted
    ]


def describe_difference(case: Case, partition: int, what: str, found: Any, wanted: Any) -> str:
    """Return the text of a difference."""
    return (
        f"task {case.subtopology.number}_{partition}, {what}:\n{show_difference(found, wanted)}\n"
        f"  steps {case.steps[partition]}\n  request {json.dumps(case.request)}"
    )


def show_difference(found: Any, wanted: Any) -> str:
    """Return the texts of two values where they begin to differ."""
    texts = str(found), str(wanted)
    equal = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(*texts, strict=False)))
    start = max(0, equal - _SHOWN // 2)
    return f"  found ...{texts[0][start : start + _SHOWN]}\n  expected ...{texts[1][start : start + _SHOWN]}"


def by_topic(outputs: Any) -> dict[str, list[Any]]:
    """Return the output of all batches or events by topic; Kafka Streams does not return the order of the topics."""
    records = [record for of_batch in outputs for record in of_batch]
    return {topic: [record for record in records if record[0] == topic] for topic in OUTPUTS}
