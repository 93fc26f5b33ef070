"""Runs the tasks of all scenarios in one streaming query, and reads their outputs and states."""

from __future__ import annotations

import importlib
import json
import pickle
import random
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from helpers.operator_input import GivenRecords
from oracle.generator import OUTPUTS
from oracle.programs import PARTITIONS, sent_records

from zkconsumer.spark.streams import query_session
from zkconsumer.spark.streams.operator import TaskOperator
from zkconsumer.spark.streams.output import OUTPUT_COLUMNS
from zkconsumer.spark.streams.packing import from_blob
from zkconsumer.spark.streams.plan import ApplicationPlan, TaskNumber
from zkconsumer.spark.streams.plan import list_tasks as list_task_numbers
from zkconsumer.spark.streams.state_pages import StatePages
from zkconsumer.spark.streams.task_batch import SavedTask
from zkconsumer.topology import ApplicationConfig, SinkRecord, TaskRuntime
from zkconsumer.topology.stores.page_reads import HEADER_ID, load_directory

from ..queries import Query
from .cases import Case, list_tasks
from .steps import create_rows
from .task import TaskState, create_state

sys.path.append(str(Path(__file__).parents[1] / "on_path"))

_StoredBatches: Any = importlib.import_module("oracle_scenarios").StoredBatches

Json = Any

#: Number of Spark partitions of the operator.
_SPARK_PARTITIONS = 2


@dataclass
class TaskResult:
    """What a task did in the query.

    Attributes:
        outputs: its output in each of its batches.
        metrics: sums of its metrics.
        saved: its state after the last batch.
        pages: its pages by number of store and page.
    """

    outputs: list[Json] = field(default_factory=list)
    metrics: Counter[str] = field(default_factory=Counter)
    saved: SavedTask | None = None
    pages: dict[tuple[int, int], bytes] = field(default_factory=dict)

    def restore(self, case: Case, partition: int) -> TaskState:
        """Return the state of a task that continues from the state of the query."""
        saved = self.saved
        assert saved is not None
        numbers = {store.name: number for number, store in enumerate(case.subtopology.stores)}
        runtime = TaskRuntime(
            clock=lambda: saved.now_ms,
            pages=lambda store: self._open_pages(numbers[store.name], store.name),
            takes_snapshots=True,
        )
        task = case.subtopology.task(partition, ApplicationConfig(), runtime, saved.snapshot)
        task.initialize()
        progress = len(self.outputs), saved.now_ms
        state = create_state(task, case.subtopology.fingerprint, progress, case.kinds, case.probes)
        task.close()
        return state

    def list_unused_pages(self, case: Case) -> list[tuple[int, int]]:
        """Return the pages to which no header or directory of a store refers."""
        used = set()
        for number, builder in enumerate(case.subtopology.stores):
            store = builder.with_default_serdes(case.config.key_serde, case.config.value_serde).create()
            found = load_directory(self._open_pages(number, store.name), store.name, store.layout)
            if found is not None:
                directory, _ = found
                ids = (HEADER_ID, *directory.ids, *directory.page_ids(len(directory.encoded)))
                used |= {(number, page_id) for page_id in ids}
        return sorted(self.pages.keys() - used)

    def _open_pages(self, number: int, store: str) -> StatePages:
        assert self.saved is not None
        return StatePages(_Pages(self.pages), number, store, number not in json.loads(self.saved.stores))


class _Pages:
    """The map state of a task that is only read."""

    def __init__(self, pages: Mapping[tuple[int, int], bytes]) -> None:
        self._pages = pages

    def getValue(self, key: tuple[int, int]) -> tuple[bytes] | None:
        """Return a page."""
        return (self._pages[key],) if key in self._pages else None

    def updateValue(self, key: tuple[int, int], value: tuple[bytes]) -> None:
        """Fail."""
        raise AssertionError(key)

    def removeKey(self, key: tuple[int, int]) -> None:
        """Fail."""
        raise AssertionError(key)


def run_cases(spark: Any, cases: Sequence[Case], folder: Path, rng: random.Random) -> dict[TaskNumber, TaskResult]:
    """Run all tasks in one query, and return what they did.

    Args:
        spark: a Spark session.
        cases: sub-topologies in the order of their numbers.
        folder: an empty folder.
        rng: selects the batches of the query in which a task receives something.
    """
    plan = _create_plan(cases)
    batches = _write_batches(plan, cases, folder / "batches", rng)
    session = open_session(spark)
    session.dataSource.register(_StoredBatches)
    with query_session.activated(session):
        rows = session.readStream.format(_StoredBatches.name()).option("batches", batches).load(str(folder / "batches"))
        operator = rows.groupBy("task").transformWithState(TaskOperator(plan), OUTPUT_COLUMNS, "append", "none")
        query = Query(operator, folder / "checkpoint")
        try:
            query.handle.processAllAvailable()
        finally:
            query.stop()
        assert len(query.batches) == batches
        results = _collect_outputs(query)
        read_states(session, plan, folder / "checkpoint", results)
    return results


def open_session(spark: Any) -> Any:
    """Return a clone of a session with the settings of an application."""
    session = type(spark)(spark.sparkContext, spark._jsparkSession.cloneSession())
    for name, value in {**query_session.CONF, "spark.sql.shuffle.partitions": str(_SPARK_PARTITIONS)}.items():
        session.conf.set(name, value)
    return session


def _create_plan(cases: Sequence[Case]) -> ApplicationPlan:
    subtopologies = {case.subtopology.number: case.subtopology for case in cases}
    assert list(subtopologies) == list(range(len(cases)))
    sinks = {topic for case in cases for topic in case.sink_topics}
    counts = dict.fromkeys([*OUTPUTS, *sinks], PARTITIONS)
    tasks = list_task_numbers(subtopologies)
    return ApplicationPlan.create(subtopologies, ApplicationConfig(), counts, tasks, _SPARK_PARTITIONS, GivenRecords())


def _write_batches(plan: ApplicationPlan, cases: Sequence[Case], folder: Path, rng: random.Random) -> int:
    """Write the rows of each batch to a file, and return the number of batches."""
    count = max(len(case.steps[number]) for case, number in list_tasks(list(cases)))
    batches: list[list[tuple[Any, ...]]] = [[] for _ in range(count)]
    keys = {number: key for key, number in plan.tasks.items()}
    for case, number in list_tasks(list(cases)):
        steps = case.steps[number]
        key = keys[TaskNumber(case.subtopology.number, number)]
        for batch, step in zip(sorted(rng.sample(range(count), len(steps))), steps, strict=True):
            batches[batch] += create_rows(key, number, step)
    folder.mkdir()
    for number, rows in enumerate(batches):
        rng.shuffle(rows)
        (folder / str(number)).write_bytes(pickle.dumps(rows))
    return count


def _collect_outputs(query: Query) -> dict[TaskNumber, TaskResult]:
    results: dict[TaskNumber, TaskResult] = {}
    for batch in query.batches:
        for blob, metrics in zip(batch.column("blob"), batch.column("metrics"), strict=True):
            [(task_id, of_task)] = json.loads(metrics).items()
            result = results.setdefault(TaskNumber(*map(int, task_id.split("_"))), TaskResult())
            result.outputs.append(_read_output(blob))
            result.metrics.update(of_task)
    return results


def _read_output(blob: bytes | None) -> Json:
    rows = [] if blob is None else from_blob(blob).to_pylist()
    records = []
    for row in rows:
        headers = tuple((header["key"], header["value"]) for header in row.pop("headers") or ())
        records.append(SinkRecord(**row, headers=headers))
    return sent_records(records)


def read_states(session: Any, plan: ApplicationPlan, checkpoint: Path, results: dict[TaskNumber, TaskResult]) -> None:
    """Read the state of all tasks from the checkpoint."""
    for row in _read_variable(session, checkpoint, "task"):
        results[plan.tasks[row["key"]["task"]]].saved = SavedTask(**row["value"])
    for row in _read_variable(session, checkpoint, "pages"):
        place = row["user_map_key"]
        pages = results[plan.tasks[row["key"]["task"]]].pages
        pages[place["store"], place["page"]] = row["user_map_value"]["data"]


def _read_variable(session: Any, checkpoint: Path, name: str) -> list[Json]:
    frame = session.read.format("statestore").option("stateVarName", name).load(str(checkpoint))
    return list(frame.toArrow().to_pylist())
