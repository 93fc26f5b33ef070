"""Global stores in the executors: each executor has one SQLite file, which its tasks share.

The file contains exactly the records before the end offsets in a batch's tick, so a repeated batch reads the same
entries. A task reads the file in a transaction, which isolates it from later updates by other tasks.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from pyspark import SparkFiles

from zkconsumer.errors import StreamsError
from zkconsumer.metadata.topic_id import is_same_topic
from zkconsumer.spark.streams.fetching import read_batches
from zkconsumer.spark.streams.markers import GlobalTick, TopicEnds
from zkconsumer.spark.streams.plan import GlobalPlan
from zkconsumer.topology.stores.base import StateStore
from zkconsumer.topology.stores.files import StateFile
from zkconsumer.topology.task.global_task import GlobalTask
from zkconsumer.topology.task.task_runtime import TaskRuntime

#: Name under which the file stores the processed offsets.
_OFFSETS = "offsets"
#: Maximum number of attempts to read the file at the requested offsets. An attempt fails if another task updates it.
_ATTEMPTS = 10


class GlobalStores:
    """The global stores of an application, up to the end offsets ``ends``.

    Args:
        plan: plan of the global stores.
        ends: end offset of each partition of the global store topics, and the ids of the topics.
        directory: directory of the SQLite file.

    Attributes:
        by_name: the read-only stores, by name.

    Raises:
        StreamsError: the file cannot be read or written, or a record could not be processed.
        RetriableError: the brokers did not respond.
    """

    def __init__(self, plan: GlobalPlan, ends: TopicEnds, directory: Path) -> None:
        self.plan, self.ends = plan, ends
        self._tasks: list[GlobalTask] = []
        self._path = directory / plan.file_name
        with _lock(self._path):
            self._file = StateFile(self._path, is_shared=True)
        try:
            for _ in range(_ATTEMPTS):
                if self._begin("BEGIN") == self.ends:
                    break
                self._file.rollback()
                self._update()
            else:
                raise StreamsError(
                    f"could not read {self._file.location}: other tasks changed it during each of {_ATTEMPTS} attempts"
                )
            self._tasks = self._open_tasks()
        except BaseException:
            self.close()
            raise
        self.by_name: dict[str, StateStore] = {
            name: store for task in self._tasks for name, store in task.stores.items()
        }

    def close(self) -> None:
        """Close the stores and the file."""
        with ExitStack() as closing:
            closing.callback(self._close_file)
            for task in self._tasks:
                closing.callback(task.close)

    def _close_file(self) -> None:
        with _lock(self._path):
            self._file.close()

    def _begin(self, statement: str) -> TopicEnds | None:
        """Begin a transaction, and return the end offsets stored in the file; None if the file is new."""
        self._file.execute(statement)
        saved = self._file.read_snapshot(_OFFSETS)
        return None if saved is None else TopicEnds.decode(saved.decode())

    def _update(self) -> None:
        """Process the records up to ``self.ends``.

        A file that is ahead of these offsets, or that contains records of a deleted topic, is rebuilt.
        """
        stored = self._begin("BEGIN IMMEDIATE") or TopicEnds({}, {})
        offsets, ends = stored.offsets, self.ends.offsets
        if any(offset > ends.get(partition, -1) for partition, offset in offsets.items()) or any(
            not is_same_topic(topic_id, self.ends.topic_ids.get(topic, ""))
            for topic, topic_id in stored.topic_ids.items()
        ):
            self._file.clear()
            offsets = {}
        spans = {partition: (offsets.get(partition, 0), end) for partition, end in ends.items()}
        ranges = {partition: span for partition, span in spans.items() if span[0] < span[1]}
        tasks = self._open_tasks()
        try:
            by_partition = {partition: task for task in tasks for partition in task.partitions}
            for partition, batch in read_batches(replace(self.plan.fetch, ranges=ranges)):
                by_partition[partition].update_columns(partition, batch)
        finally:
            for task in tasks:
                task.close()
        self._file.write_snapshot(_OFFSETS, self.ends.encode().encode())
        self._file.commit()

    def _open_tasks(self) -> list[GlobalTask]:
        runtime = TaskRuntime(clock=lambda: 0, pages=lambda store: self._file.pages(store.name))
        tasks = []
        for one in self.plan.subtopologies:
            numbers = range(max(one.partition_counts[topic] for topic in one.source_topics))
            tasks.append(one.global_task(numbers, self.plan.config, runtime))
            tasks[-1].initialize()
        return tasks


class GlobalStoresOfWorker:
    """The open global stores of a worker process. Later batches reuse them. Used by one thread."""

    def __init__(self) -> None:
        self._opened: GlobalStores | None = None

    def open(self, plan: GlobalPlan, tick: GlobalTick) -> Mapping[str, StateStore]:
        """Open the global stores, up to the end offsets of a tick; return the stores by name."""
        opened, ends = self._opened, tick.ends
        if opened is None or opened.ends != ends or opened.plan.file_name != plan.file_name:
            self.close()
            opened = self._opened = GlobalStores(
                plan.with_brokers(tick.brokers), ends, Path(SparkFiles.getRootDirectory())
            )
        return opened.by_name

    def close(self) -> None:
        """Close the stores."""
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Lock the file while it is opened or closed, because SQLite does not wait for other processes in these calls."""
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
