"""Threads of the sink, which write the output of several tasks at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from helpers.aliases import Cluster, Topics
from helpers.sinks import output_of, read_topic, sink_settings

from zkconsumer.errors import RecordRejectedError
from zkconsumer.spark.streams.markers import Marker
from zkconsumer.spark.streams.output import ProcessingGuarantee
from zkconsumer.spark.streams.writer_threads import THREADS, WriterThreads
from zkconsumer.topology.handlers import ErrorContext, ErrorResponse

Settings = Callable[..., str]

TASKS = 3 * THREADS
TRANSACTIONAL = ProcessingGuarantee.EXACTLY_ONCE_V2


class WaitingHandler:
    """Waits until two tasks call the handler at the same time, and skips their records."""

    both = threading.Barrier(2)
    calls: list[tuple[int, str]] = []

    def __call__(self, context: ErrorContext, _error: Exception) -> ErrorResponse:
        self.calls.append((id(self), f"{context.task_id} {threading.current_thread().name}"))
        self.both.wait(60)
        return ErrorResponse.CONTINUE


@pytest.fixture
def settings(zkconsumer_cluster: Cluster, group: str) -> Settings:
    def make(guarantee: ProcessingGuarantee = TRANSACTIONAL, **changes: Any) -> str:
        fixed = {"application_id": group, "producer": {"topic.metadata.propagation.max.ms": 500}}
        servers = zkconsumer_cluster.bootstrap_servers
        return sink_settings(servers, guarantee=guarantee, **(fixed | changes)).encode()

    return make


@pytest.fixture
def threads() -> Iterator[WriterThreads]:
    with closing(WriterThreads()) as started:
        yield started


@pytest.mark.parametrize("guarantee", ProcessingGuarantee)
def test_output_of_many_tasks_is_written_by_changing_worker_processes(
    zkconsumer_cluster: Cluster, settings: Settings, topic: Topics, guarantee: ProcessingGuarantee
) -> None:
    sink, source = topic(1), topic(TASKS)
    with closing(WriterThreads()) as first, closing(WriterThreads()) as second:
        for batch, worker in enumerate((first, second, first)):
            outputs = [
                output_of(sink, [b"%d-%d" % (batch, n)], source=source, next_offset=batch + 1, task=f"0_{n}")
                for n in range(TASKS)
            ]
            metrics = worker.write_all(settings(guarantee), outputs, Marker("query", batch), None)
            assert list(metrics) == [output.task for output in outputs]

    written = read_topic(zkconsumer_cluster.bootstrap_servers, sink, 3 * TASKS)
    assert sorted(message.value() for message in written) == sorted(
        b"%d-%d" % (batch, n) for batch in range(3) for n in range(TASKS)
    )


def test_error_of_a_task_is_raised_after_the_others_have_written(
    zkconsumer_cluster: Cluster, settings: Settings, topic: Topics, unique: Callable[[str], str], threads: WriterThreads
) -> None:
    sink, source, missing = topic(1), topic(TASKS), unique("missing")
    outputs = [
        output_of(missing if n in (1, 5) else sink, [b"%d" % n], source=source, next_offset=1, task=f"0_{n}")
        for n in range(TASKS)
    ]

    with pytest.raises(RecordRejectedError, match="task 0_1, topic"):
        threads.write_all(settings(), outputs, Marker("query", 0), None)

    written = read_topic(zkconsumer_cluster.bootstrap_servers, sink, TASKS - 2)
    assert {message.value() for message in written} == {b"%d" % n for n in range(TASKS) if n not in (1, 5)}


def test_tasks_are_written_at_the_same_time_each_with_the_handler_of_its_thread(
    settings: Settings, topic: Topics, unique: Callable[[str], str], threads: WriterThreads
) -> None:
    source, missing = topic(TASKS), unique("missing")
    encoded = settings(handler=WaitingHandler())
    outputs = [output_of(missing, [b"1"], source=source, next_offset=1, task=f"0_{n}") for n in (0, 1)]

    metrics = threads.write_all(encoded, outputs, Marker("query", 0), None)

    assert {task: found["dropped"] for task, found in metrics.items()} == {"0_0": 1, "0_1": 1}
    assert len(set(WaitingHandler.calls)) == len(WaitingHandler.calls) == 2
