"""The stateful operator of an application's query, with one key per task."""

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
    """Runs the tasks whose keys Spark sends to it, each once per batch.

    Args:
        plan: the tasks.
        shared_file: file that must exist on all workers; None if the checkpoint is not in the local file system.
    """

    def __init__(self, plan: ApplicationPlan, shared_file: str | None = None) -> None:
        self._plan, self._shared_file = plan, shared_file

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Check that protobuf is installed, and restore the pickled attributes.

        pyspark's own error for missing protobuf does not name the worker.

        Raises:
            ConfigurationError: protobuf cannot be imported.
        """
        check_modules(PROTOBUF)
        self.__dict__.update(state)

    def init(self, handle: Any) -> None:
        """Declare the state. Spark also calls this method in the driver, during planning.

        Raises:
            StreamsError: the checkpoint is in a local directory that the driver does not share with this worker.
        """
        if self._shared_file is not None and not os.path.exists(self._shared_file):
            raise StreamsError(
                f"file {self._shared_file} does not exist on worker {socket.gethostname()}; the checkpoint directory "
                "must be on storage shared by the driver and all workers"
            )
        freeze_modules("operator")
        # With DDL strings instead of types, Spark needs four more round trips per variable, partition and batch.
        self._pages = handle.getMapState("pages", _PAGE_KEY, _PAGE)
        self._saved = handle.getValueState("task", _SAVED)
        self._done: set[int] = set()

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:  # noqa: ARG002
        """Run a task for a batch.

        Raises:
            StreamsError: the task failed, or its state could not be read or written.
            RuntimeError: Spark ran the task twice in one batch.
        """
        (number,) = key
        task = self._plan.tasks[number]
        if number in self._done:
            raise RuntimeError(f"Spark ran task {task.task_id} twice in one batch")
        self._done.add(number)
        try:
            saved = SavedTask(*self._saved.get()) if self._saved.exists() else None
            if saved is not None:
                saved = saved._replace(snapshot=bytes(saved.snapshot))
            result = run_batch(self._plan, task, self._pages, saved, BatchInput.from_rows(rows))
            self._saved.update(tuple(result.saved))
        except (OSError, EOFError) as error:  # errors in application code are StreamsErrors
            raise StreamsError(
                f"state of task {task.task_id} could not be read or written: Spark closed the connection "
                f"({type(error).__name__}: {error}); check the executor's log, for example for insufficient heap memory"
            ) from error
        yield Row(**result.output._asdict(), metrics=json.dumps({task.task_id: result.metrics}))

    def close(self) -> None:
        """Do nothing."""
