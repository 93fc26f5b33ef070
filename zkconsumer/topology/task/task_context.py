"""The interface between a task and its nodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from zkconsumer.errors import StreamsError
from zkconsumer.topology.config import ApplicationConfig
from zkconsumer.topology.loop.columns import SourceColumns
from zkconsumer.topology.loop.native import RunState
from zkconsumer.topology.loop.records import Record, RecordMetadata, SourceRecord
from zkconsumer.topology.processor import Cancellable, Processor, PunctuationType, Punctuator, Remembered
from zkconsumer.topology.task.punctuation import TaskSchedules
from zkconsumer.topology.task.snapshot import check_remembered


class TaskContext:
    """The current record, clocks and schedules of a task, and the remembered values of its nodes.

    Args:
        task_id: task id.
        config: settings of the application.
        clock: function that returns the wall-clock time in milliseconds.
        takes_snapshots: see ``TaskRuntime``.

    Attributes:
        task_id: see above.
        config: see above.
        commit_requested: whether a processor has requested a commit since the last commit.
        state: times of the task, current record, and whether nodes may forward records.
        schedules: schedules of all nodes.
        system_time_ms: wall-clock time at which the current punctuation or batch of records started, in milliseconds.
    """

    def __init__(
        self, task_id: str, config: ApplicationConfig, clock: Callable[[], int], takes_snapshots: bool
    ) -> None:
        self.task_id, self.config = task_id, config
        self.commit_requested = False
        self.state = RunState()
        self.schedules = TaskSchedules(task_id, takes_snapshots)
        self.system_time_ms = clock()
        self._clock = clock
        self._remembered: dict[str, dict[str, Remembered]] = defaultdict(dict)

    # ---- for nodes ----

    @property
    def source_record(self) -> SourceRecord | None:
        """The source record that is being processed; None during punctuation or if no record is being processed."""
        columns: SourceColumns | None = self.state.source
        return None if columns is None else columns.record(self.state.row)

    @property
    def stream_time_ms(self) -> int:
        """The highest timestamp of the records processed so far, in milliseconds; -1 before the first."""
        return self.state.stream_time_ms

    def schedule(
        self,
        node: str,
        processor: Processor | None,
        interval_ms: int,
        kind: PunctuationType,
        punctuator: Punctuator,
    ) -> Cancellable:
        """Return a new schedule or, in ``init``, the restored schedule if there is one.

        Args:
            node: name of the node.
            processor: processor of the node; None if the call was made in ``init``.
            interval_ms: see ``ProcessorContext.schedule``.
            kind: see ``ProcessorContext.schedule``.
            punctuator: see ``ProcessorContext.schedule``.
        """
        due_ms = 0 if kind is PunctuationType.STREAM_TIME else self._clock() + interval_ms
        if processor is None:
            return self.schedules.create_in_init(node, kind, due_ms, interval_ms, punctuator)
        if not self.state.is_processing:
            raise StreamsError(f"processor {node!r}: schedule() was called outside init(), process() and punctuators")
        schedule = self.schedules.create(node, processor, kind, due_ms, interval_ms, punctuator)
        self.update_due_time()
        return schedule

    def find_schedules(self, node: str) -> Mapping[tuple[str, int], Cancellable]:
        """Return the schedules of a node; see ``ProcessorContext.schedules``."""
        return self.schedules.find(node)

    def remember(self, node: str, name: str, default: Any) -> Remembered:
        """Return a remembered value of a node; see ``ProcessorContext.remember``."""
        return self._remembered[node].setdefault(name, Remembered(default))

    @contextmanager
    def place_of(self, record: Record, metadata: RecordMetadata) -> Iterator[None]:
        """Context manager: use ``metadata`` as topic, partition and offset of the current record.

        Inside the context, ``source_record`` has no key and no value, because nodes that hold back records do not keep
        the serialized records.
        """
        state = self.state
        before = state.source, state.row
        topic, partition, offset = metadata
        if topic is None:
            state.source = None
        else:
            source = SourceRecord(topic, partition, offset, record.timestamp, None, None, tuple(record.headers))
            state.source, state.row = SourceColumns.from_records([source]), 0
        try:
            yield
        finally:
            state.source, state.row = before

    # ---- for the task ----

    def enter(self, source: SourceColumns | None, row: int, record: Record | None) -> None:
        """Start processing records or a punctuation, and allow nodes to forward records.

        Args:
            source: columns that contain the source records; None for a punctuation.
            row: row of the first source record.
            record: record that the first node receives; None if ``run_rows`` sets it.
        """
        state = self.state
        state.source, state.row, state.record = source, row, record
        self.system_time_ms = self._clock()
        state.is_processing = True

    def leave(self) -> None:
        """Finish processing records or a punctuation, and no longer allow nodes to forward records."""
        state = self.state
        state.is_processing = False
        state.source = state.record = None

    def update_due_time(self) -> None:
        """Set ``state.due_ms`` to the stream time at which the next schedule is due."""
        self.state.due_ms = self.schedules.stream_time_due_ms

    def save_remembered(self) -> dict[str, dict[str, Any]]:
        """Return the remembered values by node and name.

        Raises:
            StreamsError: a snapshot cannot contain one of the values.
        """
        return {
            node: {name: check_remembered(node, name, one.value) for name, one in values.items()}
            for node, values in self._remembered.items()
        }

    def restore_remembered(self, remembered: Mapping[str, Mapping[str, Any]]) -> None:
        """Restore the values that ``save_remembered`` returned."""
        for node, values in remembered.items():
            self._remembered[node] = {name: Remembered(value) for name, value in values.items()}
