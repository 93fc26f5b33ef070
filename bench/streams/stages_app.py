"""Runs zkconsumer's query up to a stage: ``python -m bench.streams.stages_app STAGE SETTINGS``.

It prints the id, end time, row count and durations of each batch as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

from bench.streams.count_topology import create_topology
from bench.streams.spark_session import create_session
from bench.streams.workload import PARTITIONS
from zkconsumer.spark import QuerySettings
from zkconsumer.spark.streams import query as product
from zkconsumer.spark.streams.checkpoint_directory import CheckpointDirectory
from zkconsumer.spark.streams.dataframe import QueryPlan, load_records, load_ticks, start_query
from zkconsumer.spark.streams.operator import TaskOperator
from zkconsumer.spark.streams.output import OUTPUT_COLUMNS
from zkconsumer.topology import ApplicationConfig

#: The source only plans: the records are fetched in the tasks.
SOURCE, SHUFFLE, EMPTY_OPERATOR, OPERATOR, SINK = (
    "source",
    "and shuffle",
    "and transformWithState that ignores its rows",
    "and tasks",
    "and sink",
)
STAGES = (SOURCE, SHUFFLE, EMPTY_OPERATOR, OPERATOR, SINK)

_POLL_S = 0.02


class EmptyOperator(StatefulProcessor):  # type: ignore[misc]
    """Reads all rows, and returns none."""

    def init(self, handle: Any) -> None:
        """Do nothing."""

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:  # noqa: ARG002
        """Read the rows of a task, and ignore them."""
        for _ in rows:
            pass
        return iter(())

    def close(self) -> None:
        """Do nothing."""


def start_stage(stage: str, session: Any, plan: QueryPlan, checkpoint: CheckpointDirectory) -> Any:
    """Start the query up to ``stage``; see ``dataframe.start_query``."""
    if stage == SINK:
        return start_query(session, plan, checkpoint)
    rows = load_records(session, plan)
    if stage != SOURCE:
        rows = rows.union(load_ticks(session, plan))
    if stage == SHUFFLE:
        rows = rows.repartition("task")
    if stage in (EMPTY_OPERATOR, OPERATOR):
        local = checkpoint.find_local_file()
        operator = TaskOperator(plan.application, local) if stage == OPERATOR else EmptyOperator()
        rows = rows.groupBy("task").transformWithState(operator, OUTPUT_COLUMNS, "append", "none")
    writer = rows.writeStream.format("noop").option("checkpointLocation", checkpoint.path)
    return writer.trigger(processingTime=f"{plan.settings.trigger_ms} milliseconds").start()


def watch(query: Any) -> Iterator[dict[str, Any]]:
    """Yield the progress report of each batch shortly after the batch finishes."""
    last = -1
    while query.isActive:
        report = query.lastProgress
        if report is not None and report["batchId"] != last and report["numInputRows"]:
            last = report["batchId"]
            yield report
        time.sleep(_POLL_S)


def main(stage: str, settings: dict[str, Any]) -> None:
    """Run the query until it is killed."""
    topology = create_topology(settings["input"], settings["output"], settings["cached"])
    config = ApplicationConfig(application_id=settings["name"])
    if not settings["cached"]:
        config = replace(config, statestore_cache_max_bytes=0)
    started: list[Any] = []

    def start(session: Any, plan: QueryPlan, checkpoint: CheckpointDirectory) -> Any:
        started.append(start_stage(stage, session, plan, checkpoint))
        return started[0]

    product.start_query = start  # type: ignore[attr-defined]  # replaces the imported function
    query = product.TopologyQuery(
        topology,
        config,
        create_session(settings["folder"]),
        f"{settings['folder']}/checkpoint",
        {"bootstrap.servers": settings["brokers"]},
        QuerySettings(trigger_ms=settings["commit_ms"], max_records_per_task=settings["batch_records"] // PARTITIONS),
    )
    query.start()
    for report in watch(started[0]):
        durations = {name: int(taken) for name, taken in report["durationMs"].items()}
        found = {"batch": report["batchId"], "time": time.time(), "rows": report["numInputRows"], "ms": durations}
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
