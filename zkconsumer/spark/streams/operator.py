"""The stateful operator of an application's query, which has one key for each task."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from zkconsumer.errors import StreamsError
from zkconsumer.spark.executor.garbage import freeze_modules
from zkconsumer.spark.streams.plan import ApplicationPlan
from zkconsumer.spark.streams.requirements import PROTOBUF, check_modules
from zkconsumer.spark.streams.task_batch import BatchInput, SavedTask, run_batch

_PAGE_KEY = StructType([StructField("store", IntegerType()), StructField("page", LongType())])
_PAGE = StructType([StructField("data", BinaryType())])
_SAVED = StructType(
    [
        StructField("snapshot", BinaryType()),
        StructField("now_ms", LongType()),
        StructField("stores", StringType()),
        StructField("lags", StringType()),
        StructField("global_ends", StringType()),
    ]
)


class TaskOperator(StatefulProcessor):
    """Runs the tasks whose keys Spark sends to it, each once in a batch.

    Args:
        plan: the tasks.
        shared_file: a file that all workers must have; None if the checkpoint is not in the local file system.
    """

    def __init__(self, plan: ApplicationPlan, shared_file: str | None = None) -> None:
        self._plan, self._shared_file = plan, shared_file

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the pickled attributes. First check for protobuf, because pyspark's error does not name the worker.

        Raises:
            ConfigurationError: protobuf cannot be imported.
        """
        check_modules(PROTOBUF)
        self.__dict__.update(state)

    def init(self, handle: Any) -> None:
        """Declare the state. Spark also calls this in the driver, at planning.

        Raises:
            StreamsError: the checkpoint is a directory of the driver, which this worker does not have.
        """
        if self._shared_file is not None and not os.path.exists(self._shared_file):
            raise StreamsError(
                f"worker {socket.gethostname()} has no file {self._shared_file}; use a checkpoint in a directory that "
                "the driver and all workers share"
            )
        freeze_modules("operator")
        # With DDL texts instead of types, Spark needs four more round trips for each variable, partition and batch.
        self._pages = handle.getMapState("pages", _PAGE_KEY, _PAGE)
        self._saved = handle.getValueState("task", _SAVED)
        self._done: set[int] = set()

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:  # noqa: ARG002
        """Run a task for a batch.

        Raises:
            RuntimeError: Spark called the task twice in a batch.
        """
        (number,) = key
        task = self._plan.tasks[number]
        if number in self._done:
            raise RuntimeError(f"task {task.task_id} was called twice in a batch")
        self._done.add(number)
        saved = SavedTask(*self._saved.get()) if self._saved.exists() else None
        if saved is not None:
            saved = saved._replace(snapshot=bytes(saved.snapshot))
        result = run_batch(self._plan, task, self._pages, saved, BatchInput.from_rows(rows))
        self._saved.update(tuple(result.saved))
        yield Row(**result.output._asdict(), metrics=json.dumps({task.task_id: result.metrics}))

    def close(self) -> None:
        """Do nothing."""
