"""``TopologyTestDriver``: runs a topology in tests, without Kafka, Spark or a JVM.

Source: Kafka 3.9 org.apache.kafka.streams.TopologyTestDriver.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from os import PathLike
from types import TracebackType
from typing import Any

from zkconsumer.checked_arguments import check_arguments_as
from zkconsumer.durations import Milliseconds
from zkconsumer.errors import ClosedError, StreamsError
from zkconsumer.topology.builder import Topology
from zkconsumer.topology.checks import check_functions
from zkconsumer.topology.config import ApplicationConfig
from zkconsumer.topology.errors import InvalidArgumentError
from zkconsumer.topology.loop.native import RecordCache
from zkconsumer.topology.loop.records import SinkRecord
from zkconsumer.topology.serdes import Deserializer, Serde, Serializer, to_deserializer, to_serializer
from zkconsumer.topology.stores.base import StateStore
from zkconsumer.topology.stores.pages import PageStore
from zkconsumer.topology.task.error_handling import describe_error
from zkconsumer.topology.task.task_runtime import TaskRuntime
from zkconsumer.topology.testing.driver_state import DriverState
from zkconsumer.topology.testing.driver_tasks import DriverTasks
from zkconsumer.topology.testing.driver_topics import TestInputTopic, TestOutputTopic, check_advance


class TopologyTestDriver:
    """Runs all sub-topologies of a topology as a single task ``0_0``, with one partition per topic.

    Each record is processed completely when it is written: the nodes process it, due stream-time punctuators are
    called, and the task commits. Records that a sink writes to a source topic are processed afterwards. The wall clock
    advances only in ``advance_wall_clock_time``.

    A task error stops the driver. Records processed before the error are committed. The changes and output of the
    failed record and its punctuators are discarded, and queued records are not processed. Output topics and stores can
    still be read; writing records and advancing the wall clock raise StreamsError. A new driver with the same
    ``state_file`` resumes from the last commit.

    Args:
        topology: topology to test.
        config: settings of the application; ``emit_interval_ms`` is always 0.
        now_ms: initial wall-clock time in milliseconds; None uses the last time saved in ``state_file``, or 0.
        state_file: file for the persistent stores and the task state. A later driver with the same file and topology
            resumes with the saved entries, times, schedules and queued records. In-flight records between
            sub-topologies are processed before the next record. Schedules created outside ``init`` must call a method
            of the processor. None keeps all stores in memory.

    Raises:
        StreamsError: a processor or store failed, or ``state_file`` cannot be opened or belongs to another topology.
    """

    __test__ = False  # not a pytest test class

    @check_arguments_as(InvalidArgumentError)
    def __init__(
        self,
        topology: Topology,
        config: ApplicationConfig | None = None,
        now_ms: int | None = None,
        *,
        state_file: str | PathLike[str] | None = None,
    ) -> None:
        self._config = replace(config or ApplicationConfig(), emit_interval_ms=0)
        self._produced: set[str] = set()
        self._outputs: dict[str, deque[SinkRecord]] = {}
        self._state = None if state_file is None else DriverState(state_file)
        self._to_sources = deque(() if self._state is None else self._state.undelivered)
        self._is_resumed = self._state is not None
        self._take_output: Callable[[], list[SinkRecord]] = list
        self._now_ms = (0 if self._state is None else self._state.now_ms) if now_ms is None else now_ms
        self._is_open = True
        self._failure: BaseException | None = None
        self._closing = ExitStack()
        if self._state is not None:
            self._closing.callback(self._state.file.close)
        try:
            self._tasks = DriverTasks(topology, self._config, self._create_runtime(), self._state, self._closing)
        except BaseException as error:
            try:
                self._closing.close()
            except StreamsError as second:
                error.add_note(str(second))
            raise
        self._take_output = self._tasks.take_output

    def __enter__(self) -> TopologyTestDriver:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the driver, and commit changes that processors make in ``close``. A second call has no effect.

        After a task error, nothing is committed.

        Raises:
            StreamsError: ``close`` of a processor failed, or the commit failed.
        """
        if not self._is_open:
            return
        self._is_open = False
        with self._closing:
            if self._failure is None:
                self._tasks.suspend()

    @check_arguments_as(InvalidArgumentError)
    def create_input_topic(
        self,
        topic: str,
        key_serializer: Serializer | Serde | None = None,
        value_serializer: Serializer | Serde | None = None,
        start_ms: int = 0,
        auto_advance_ms: Milliseconds = 0,
    ) -> TestInputTopic:
        """Return an input topic for writing records.

        Args:
            topic: topic name.
            key_serializer: key serializer or serde; None uses the application's default.
            value_serializer: value serializer or serde; None uses the application's default.
            start_ms: timestamp of the first record that is written without a timestamp, in milliseconds.
            auto_advance_ms: time added after each record that is written without a timestamp, in milliseconds or as a
                ``timedelta``.
        """
        key, value = to_serializer(key_serializer), to_serializer(value_serializer)
        check_functions(f"topic {topic!r}", key_serializer=key, value_serializer=value)
        serializers = key or self._config.key_serde.serialize, value or self._config.value_serde.serialize
        return TestInputTopic(self._pipe, topic, serializers, start_ms, auto_advance_ms)

    @check_arguments_as(InvalidArgumentError)
    def create_output_topic(
        self,
        topic: str,
        key_deserializer: Deserializer | Serde | None = None,
        value_deserializer: Deserializer | Serde | None = None,
    ) -> TestOutputTopic:
        """Return an output topic for reading records written by sinks.

        Args:
            topic: topic name.
            key_deserializer: key deserializer or serde; None uses the application's default.
            value_deserializer: value deserializer or serde; None uses the application's default.
        """
        key, value = to_deserializer(key_deserializer), to_deserializer(value_deserializer)
        check_functions(f"topic {topic!r}", key_deserializer=key, value_deserializer=value)
        deserializers = key or self._config.key_serde.deserialize, value or self._config.value_serde.deserialize
        records = self._outputs.setdefault(topic, deque())
        return TestOutputTopic(records, topic, deserializers, self._produced, self._tasks.sink_topics)

    def advance_wall_clock_time(self, advance_ms: Milliseconds) -> None:
        """Advance the wall clock, and call the wall-clock punctuators that are due.

        Args:
            advance_ms: time to add, in milliseconds or as a ``timedelta``.

        Raises:
            ValueError: ``advance_ms`` is negative or has the wrong type.
            StreamsError: a node failed, and the error handler returned FAIL, now or in an earlier call.
        """
        self._check_running()
        added_ms = check_advance("advance_ms", advance_ms)
        with self._stopping_after_error():
            self._resume()
            self._now_ms += added_ms
            self._tasks.main.punctuate_wall_clock()
            self._tasks.main.commit()
            self._run()

    @check_arguments_as(InvalidArgumentError)
    def get_state_store(self, name: str) -> Any:
        """Return the store or global store ``name``, or None if it does not exist."""
        store = self._tasks.main.stores.get(name)
        return store if store is not None else self._tasks.global_stores.get(name)

    def get_all_state_stores(self) -> dict[str, StateStore]:
        """Return all stores by name, including global stores."""
        return {**self._tasks.global_stores, **self._tasks.main.stores}

    @property
    def metrics(self) -> dict[str, int]:
        """Metrics by name, including the metrics of global stores; see ``StreamTask.metrics``."""
        return self._tasks.metrics

    def produced_topics(self) -> set[str]:
        """Return the topics to which sinks have written records."""
        return set(self._produced)

    # ---- tasks ----

    def _create_runtime(self) -> TaskRuntime:
        return TaskRuntime(
            clock=self._read_clock,
            pages=self._create_pages,
            commit=self._commit,
            cache=RecordCache(self._config.statestore_cache_max_bytes),
            rollback=self._rollback,
            takes_snapshots=self._state is not None,
        )

    def _commit(self) -> None:
        if self._state is not None:
            written = self._take_output()
            self._state.commit(self._now_ms, [*self._to_sources, *filter(self._is_read, written)])
            self._collect(written)

    def _rollback(self) -> None:
        if self._state is not None:
            self._state.file.rollback()

    def _read_clock(self) -> int:
        return self._now_ms

    def _create_pages(self, store: StateStore) -> PageStore | None:
        return self._state.file.pages(store.name) if self._state is not None and store.is_persistent else None

    def _pipe(self, record: SinkRecord) -> None:
        self._check_running()
        if not self._tasks.reads(record.topic):
            topics = ", ".join(self._tasks.topics) or "none"
            raise ValueError(f"no source reads topic {record.topic!r} (source topics: {topics})")
        with self._stopping_after_error():
            self._resume()
            self._tasks.add_record(record)
            self._run()

    @contextmanager
    def _stopping_after_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self._failure = error
            raise

    def _resume(self) -> None:
        """Process the records that an earlier driver did not deliver."""
        if self._is_resumed and self._to_sources:
            self._run()
        self._is_resumed = False

    def _run(self) -> None:
        self._deliver()
        task = self._tasks.main
        task.update_lags()
        while task.queued and task.run(1):
            task.commit()
            self._deliver()

    def _deliver(self) -> None:
        """Move sink records to the output topics, and to the sources that read these topics."""
        while True:
            self._collect(self._take_output())
            if not self._to_sources:
                return
            self._tasks.add_record(self._to_sources.popleft())  # may send records to the quarantine topic

    def _collect(self, written: list[SinkRecord]) -> None:
        """Add records that sinks wrote to the output topics, and to the records to deliver to sources."""
        for record in written:
            self._outputs.setdefault(record.topic, deque()).append(record)
            self._produced.add(record.topic)
            if self._is_read(record):
                self._to_sources.append(record)

    def _is_read(self, record: SinkRecord) -> bool:
        return self._tasks.reads(record.topic)

    def _check_running(self) -> None:
        if not self._is_open:
            raise ClosedError("the TopologyTestDriver is closed; create a new one")
        if self._failure is not None:
            raise StreamsError(
                f"the TopologyTestDriver was stopped by an earlier error ({describe_error(self._failure)}); create a "
                "new one"
            ) from self._failure
