"""Threads that write the output of several tasks at the same time."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait

from zkconsumer.spark.streams.markers import Marker
from zkconsumer.spark.streams.output import ProcessingGuarantee, SinkSettings, TaskOutput
from zkconsumer.spark.streams.task_writer import TaskWriters

#: Number of threads. A transaction mostly waits for the brokers: 5 ms, or 0.05 to 0.5 s if its producer must be
#: initialized, because another worker process wrote the previous output of the task.
THREADS = 8


class WriterThreads:
    """The threads of a worker process that write task output, each with its own ``TaskWriters``.

    With transactions, a thread always writes the same tasks. Without transactions, all tasks share a producer, and one
    thread writes their output.
    """

    def __init__(self) -> None:
        self._writers = [TaskWriters() for _ in range(THREADS)]
        self._threads = [ThreadPoolExecutor(1, f"zkconsumer-sink-{number}") for number in range(THREADS)]

    def write_all(
        self, encoded: str, outputs: Sequence[TaskOutput], marker: Marker, servers: str | None
    ) -> dict[str, Mapping[str, int]]:
        """Write the output of tasks; see ``TaskWriters.write``.

        Args:
            encoded: encoded sink settings; see ``SinkSettings.encode``.
            outputs: output of each task.
            marker: marker of the batch.
            servers: current brokers; see ``SinkSettings.with_servers``.

        Returns:
            Changes of the task metrics, by task id and metric name.

        Raises:
            ZkConsumerError: see ``TaskWriter.write``. If several tasks fail, this is the error of the first one. All
                other output has been written by then.
        """
        is_transactional = SinkSettings.decode(encoded).guarantee is ProcessingGuarantee.EXACTLY_ONCE_V2
        writing: dict[str, Future[Mapping[str, int]]] = {}
        for output in outputs:
            number = zlib.crc32(output.task.encode()) % THREADS if is_transactional else 0
            write = self._writers[number].write
            writing[output.task] = self._threads[number].submit(write, encoded, output, marker, servers)
        wait(writing.values())
        return {task: future.result() for task, future in writing.items()}

    def close(self) -> None:
        """Stop the threads, and close all writers."""
        for thread, writers in zip(self._threads, self._writers, strict=True):
            thread.submit(writers.close)
            thread.shutdown()
