"""Threads that write the output of several tasks at the same time."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from zkconsumer.spark.streams.markers import Marker
from zkconsumer.spark.streams.output import ProcessingGuarantee, SinkSettings, TaskOutput
from zkconsumer.spark.streams.task_writer import TaskWriters

#: Number of threads. A transaction mostly waits for the brokers: 5 ms, or 0.05 to 0.5 s if its producer must be
#: initialized, because another worker process wrote the previous output of the task.
THREADS = 8


class WriterThreads:
    """Writes task output in up to ``THREADS`` threads, which end with each call.

    With transactions, a thread writes the tasks of one of the ``TaskWriters``, and a task always belongs to the same
    one. Without transactions, all tasks share a producer, and the calling thread writes their output.
    """

    def __init__(self) -> None:
        self._writers = [TaskWriters() for _ in range(THREADS)]
        self._decode = functools.lru_cache(maxsize=16)(SinkSettings.decode)

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
            ZkConsumerError: see ``TaskWriter.write``. With transactions, this is the error of the first task that
                failed, and all other output has been written by then.
        """
        # Unpickling imports modules of the application, which several threads must not do at the same time.
        if self._decode(encoded).guarantee is not ProcessingGuarantee.EXACTLY_ONCE_V2:
            write = self._writers[0].write
            return {output.task: write(encoded, output, marker, servers) for output in outputs}
        parts: dict[int, list[TaskOutput]] = {}
        for output in outputs:
            parts.setdefault(zlib.crc32(output.task.encode()) % THREADS, []).append(output)
        written: dict[str, Future[Mapping[str, int]]] = {output.task: Future() for output in outputs}

        def write_part(number: int) -> None:
            for output in parts[number]:
                try:
                    written[output.task].set_result(self._writers[number].write(encoded, output, marker, servers))
                except BaseException as error:
                    written[output.task].set_exception(error)

        with ThreadPoolExecutor(THREADS, "zkconsumer-sink") as threads:
            threads.map(write_part, parts)
        return {task: future.result() for task, future in written.items()}

    def close(self) -> None:
        """Close all writers."""
        for writers in self._writers:
            writers.close()
