"""What a task does for each record.

A task calls ``run_rows`` for consecutive records of a partition. Nodes are functions that take a record; the children
of a node are called one after another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from zkconsumer.topology.records import Header, Record

#: A time that is later than all timestamps.
NEVER = (1 << 63) - 1

#: A node, or the function that a node calls.
Process = Callable[[Record], object]


class RunState:
    """The times of a task, and the record that it processes.

    Attributes:
        row: number of the current record in its window.
        partition_time_ms: the highest timestamp of the records of the current partition.
        stream_time_ms: the highest timestamp of the records of all partitions.
        due_ms: stream time at which the next schedule is due.
        is_processing: whether a node is called that may forward records.
    """

    __slots__ = ("due_ms", "is_processing", "partition_time_ms", "row", "stream_time_ms")

    def __init__(self) -> None:
        self.row = 0
        self.partition_time_ms = self.stream_time_ms = -1
        self.due_ms = NEVER
        self.is_processing = False


def run_rows(
    state: RunState,
    columns: tuple[Sequence[Any], Sequence[Any], Sequence[int], Sequence[Sequence[Header]] | None],
    stop: int,
    before_ms: int,
    children: Sequence[Process],
) -> int:
    """Process consecutive records, and return the number of the row after the last one.

    It ends before the row ``stop``, before a record whose timestamp is ``before_ms`` or later, and after a record with
    which a schedule is due. The first record is processed in any case.

    Args:
        state: its row is that of the first record; it is updated with each record.
        columns: keys, values, timestamps, and headers or None.
        stop: row after the last record.
        before_ms: timestamp from which on a record of another partition is next.
        children: the children of the source.
    """
    keys, values, timestamps, headers = columns
    row = state.row
    while True:
        timestamp = timestamps[row]
        state.row = row
        if timestamp > state.partition_time_ms:
            state.partition_time_ms = timestamp
            if timestamp > state.stream_time_ms:
                state.stream_time_ms = timestamp
        record = Record(keys[row], values[row], timestamp, None if headers is None else headers[row])
        for process in children:
            process(record)
        row += 1
        if row >= stop or timestamps[row] >= before_ms or state.stream_time_ms >= state.due_ms:
            return row


class Guarded:
    """A processor's function, and what to do about its errors.

    Args:
        process: the function of the processor.
        on_error: called with the record and an Exception that ``process`` raised.
    """

    __slots__ = ("_on_error", "_process")

    def __init__(self, process: Process, on_error: Callable[[Record, Exception], object]) -> None:
        self._process, self._on_error = process, on_error

    def __call__(self, record: Record) -> None:
        try:
            self._process(record)
        except Exception as error:
            self._on_error(record, error)


class Forwarder:
    """``ProcessorContext.forward`` of a node.

    Args:
        state: that of the task.
        children: the children of the node.
        by_name: the same by name.
        reject: raises the error about arguments or a moment that are not valid.
    """

    __slots__ = ("_by_name", "_children", "_reject", "_state")

    def __init__(
        self,
        state: RunState,
        children: Sequence[Process],
        by_name: Mapping[str, Process],
        reject: Callable[[object, str | None], NoReturn],
    ) -> None:
        self._state, self._children, self._by_name, self._reject = state, children, by_name, reject

    def __call__(self, record: Record, child: str | None = None) -> None:
        if not self._state.is_processing or not isinstance(record, Record):
            self._reject(record, child)
        elif child is None:
            for process in self._children:
                process(record)
        elif child in self._by_name:
            self._by_name[child](record)
        else:
            self._reject(record, child)
