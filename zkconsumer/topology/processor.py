"""Application interfaces: processors and their context.

Source: Kafka 3.9 org.apache.kafka.streams.processor.api.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from zkconsumer.durations import Milliseconds
from zkconsumer.topology.config import ApplicationConfig
from zkconsumer.topology.loop.records import Record, RecordMetadata

#: Function that is called with the current stream time or wall-clock time, in milliseconds.
Punctuator = Callable[[int], object]


class PunctuationType(enum.Enum):
    """Whether stream time or wall-clock time determines when a punctuator is called."""

    #: The highest timestamp of the records processed so far. It does not advance without records.
    STREAM_TIME = "stream time"
    #: The task's clock. In ``TopologyTestDriver``, only ``advance_wall_clock_time`` advances it.
    WALL_CLOCK_TIME = "wall-clock time"


class Cancellable(Protocol):
    """A schedule that can be cancelled."""

    def cancel(self) -> None:
        """Cancel the schedule. A second call has no effect."""


class Remembered:
    """A processor value that is kept when the task is re-created; see ``ProcessorContext.remember``.

    Attributes:
        value: None, or a bool, int, float or str, or a list or dict (with str keys) of these.
    """

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class ProcessorContext(Protocol):
    """A processor's interface to its task.

    It is valid in ``init``, ``process``, ``close``, punctuators and flush listeners.
    """

    @property
    def config(self) -> ApplicationConfig:
        """The settings of the application."""

    @property
    def application_id(self) -> str:
        """The name of the application."""

    @property
    def task_id(self) -> str:
        """The sub-topology number and partition number, such as ``0_3``; ``global`` in a global store's processor."""

    @property
    def node_name(self) -> str:
        """The name of the processor."""

    @property
    def record_metadata(self) -> RecordMetadata | None:
        """Topic, partition and offset of the current record.

        The value is (None, -1, -1) in punctuators, and None in ``init`` and ``close``.
        """

    @property
    def current_stream_time_ms(self) -> int:
        """The highest timestamp of the records processed so far, in milliseconds; -1 before the first."""

    @property
    def current_system_time_ms(self) -> int:
        """The wall-clock time at which the current punctuation or batch of records started, in milliseconds."""

    def forward(self, record: Record, child: str | None = None) -> None:
        """Forward a record to the children of this node, in the order in which they were added.

        Each child and all of its descendants process the record before the next child receives it.

        Args:
            record: record to forward.
            child: name of the only child that receives the record; None forwards it to all children.

        Raises:
            StreamsError: the child does not exist, or the call was made outside ``process``, punctuators and flush
                listeners.
        """

    def forward_held_back(self, record: Record, metadata: RecordMetadata) -> None:
        """Forward a record that this node held back. During the call, ``record_metadata`` returns ``metadata``.

        Args:
            record: record to forward.
            metadata: ``record_metadata`` at the time when the node received the record.

        Raises:
            StreamsError: the call was made outside ``process``, punctuators and flush listeners.
        """

    def schedule(self, interval_ms: Milliseconds, kind: PunctuationType, punctuator: Punctuator) -> Cancellable:
        """Schedule a punctuator. If several intervals pass at once, it is called only once.

        Args:
            interval_ms: interval between two calls, in milliseconds or as a ``timedelta``; at least 1 ms. A stream-time
                schedule is aligned to multiples of the interval; its punctuator is first called after the next record,
                or after the current record if the schedule is created in ``process``. A wall-clock punctuator is first
                called after one interval.
            kind: whether stream time or wall-clock time determines when the punctuator is called.
            punctuator: function that is called with the current stream time or wall-clock time, in milliseconds.

        Raises:
            ValueError: ``interval_ms`` is out of range, or an argument has the wrong type.
            StreamsError: the call was made outside ``init``, ``process`` and punctuators.
        """

    def schedules(self) -> Mapping[tuple[str, int], Cancellable]:
        """Return the active schedules of this node, by method and ordinal.

        A runtime may re-create a task with a new processor and call ``init`` again. Schedules created in ``init`` then
        continue, and all other schedules are restored. For a schedule created in ``init``, the method is ``init``;
        otherwise it is the name of the processor method that the schedule calls, or an empty string if it calls another
        function. The ordinal counts the schedules with the same method, starting at 0.
        """

    def remember(self, name: str, default: Any) -> Remembered:
        """Return an object whose ``value`` is kept when the task is re-created, unlike processor attributes.

        Args:
            name: name of the value; the same name returns the same object.
            default: initial value, if the node has no value with this name yet.
        """

    def commit(self) -> None:
        """Request a commit of the task as soon as possible."""

    def get_state_store(self, name: str) -> Any:
        """Return a store that is connected to this processor, or a global store, which is read-only.

        Raises:
            StreamsError: the store does not exist, or is not connected to this processor.
        """

    def count(self, name: str, amount: int = 1) -> None:
        """Increase a counter of this node by ``amount``; ``StreamTask.metrics`` reports it as ``node/name``."""

    def drop(self, reason: str) -> None:
        """Count the current record as dropped, and log ``record_dropped``. The processor must not forward the record.

        The record is counted in the metrics ``dropped`` and ``dropped/<reason>``. Events are limited to one per minute,
        node and reason.

        Args:
            reason: reason in snake case.
        """


class Processor(ABC):
    """A node that receives records one by one. Its supplier creates a new processor for each task."""

    def init(self, context: ProcessorContext) -> None:  # noqa: B027
        """Prepare for the first record: store the context, get state stores, create schedules."""

    @abstractmethod
    def process(self, record: Record) -> None:
        """Process one record."""

    def close(self) -> None:  # noqa: B027
        """Release the resources acquired in ``init``. Store changes are discarded unless a commit follows."""


#: A class or function that returns a new processor on each call.
ProcessorSupplier = Callable[[], Processor]
