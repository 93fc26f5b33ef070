"""The part of a task that its nodes use."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from zkconsumer.errors import StreamsError
from zkconsumer.topology.columns import SourceColumns
from zkconsumer.topology.config import ApplicationConfig
from zkconsumer.topology.loop import RunState
from zkconsumer.topology.processor import Cancellable, Processor, PunctuationType, Punctuator, Remembered
from zkconsumer.topology.punctuation import TaskSchedules
from zkconsumer.topology.records import Record, RecordMetadata, SourceRecord
from zkconsumer.topology.snapshot import check_remembered


class TaskContext:
    """The current record of a task, its clocks and schedules, and the remembered values of its nodes.

    Args:
        task_id: the task.
        config: settings of the application.
        clock: returns the wall-clock time in milliseconds.
        takes_snapshots: see ``TaskRuntime``.

    Attributes:
        task_id: see above.
        config: see above.
        commit_requested: whether a processor called ``commit`` since the last one.
        state: times of the task, the current record, and whether nodes may forward records.
        schedules: the schedules of all nodes.
        system_time_ms: wall-clock time in milliseconds at which the current record or punctuation started.
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
        """The record that is processed, as it was read; None in punctuations."""
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
        """Create a schedule.

        Args:
            node: name of the node.
            processor: its processor; None in ``init``.
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
        """Use the place of an earlier record as that of the current one, in the scope of the context manager.

        ``source_record`` then has no key and value, because a node that holds back records does not keep their bytes.
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
        """Start a record or punctuation: from now on, nodes may forward records.

        Args:
            source: columns with the record that is processed; None in a punctuation.
            row: its row.
            record: the record that the first node receives; None if the loop sets it.
        """
        state = self.state
        state.source, state.row, state.record = source, row, record
        self.system_time_ms = self._clock()
        state.is_processing = True

    def leave(self) -> None:
        """End a record or punctuation: nodes must not forward records."""
        state = self.state
        state.is_processing = False
        state.source = state.record = None

    def update_due_time(self) -> None:
        """Set the stream time at which the next schedule is due."""
        self.state.due_ms = self.schedules.stream_time_due_ms

    def save_remembered(self) -> dict[str, dict[str, Any]]:
        """Return the remembered values by node and name.

        Raises:
            StreamsError: a snapshot cannot contain one of them.
        """
        return {
            node: {name: check_remembered(node, name, one.value) for name, one in values.items()}
            for node, values in self._remembered.items()
        }

    def restore_remembered(self, remembered: Mapping[str, Mapping[str, Any]]) -> None:
        """Restore the remembered values of ``save_remembered``."""
        for node, values in remembered.items():
            self._remembered[node] = {name: Remembered(value) for name, value in values.items()}
