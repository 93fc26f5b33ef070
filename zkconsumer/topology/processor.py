"""Interfaces for applications: processors and their context.

Source: Kafka 3.9 org.apache.kafka.streams.processor.api.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from zkconsumer.topology.config import ApplicationConfig
from zkconsumer.topology.records import Record, RecordMetadata

#: Called with the current stream time or wall-clock time in milliseconds.
Punctuator = Callable[[int], object]


class PunctuationType(enum.Enum):
    """The clock of a schedule."""

    #: The highest timestamp of the records processed so far. It does not advance without records.
    STREAM_TIME = "stream time"
    #: The clock of the task, which ``TopologyTestDriver`` controls.
    WALL_CLOCK_TIME = "wall-clock time"


class Cancellable(Protocol):
    """A schedule that can be ended."""

    def cancel(self) -> None:
        """End the schedule. A second call has no effect."""


class Remembered:
    """A value that a processor keeps from record to record; see ``ProcessorContext.remember``.

    Attributes:
        value: None, or a bool, int, float or str, or a list or dict of these.
    """

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class ProcessorContext(Protocol):
    """The interface of a task for a processor; valid in ``init``, ``process``, ``close`` and punctuations."""

    @property
    def config(self) -> ApplicationConfig:
        """The settings of the application."""

    @property
    def application_id(self) -> str:
        """The name of the application."""

    @property
    def task_id(self) -> str:
        """Number of the sub-topology and of the partition, such as ``0_3``."""

    @property
    def node_name(self) -> str:
        """The name of the processor."""

    @property
    def record_metadata(self) -> RecordMetadata | None:
        """Where the current record was read; in punctuations None, -1 and -1; None in ``init`` and ``close``."""

    @property
    def current_stream_time_ms(self) -> int:
        """The highest timestamp of the records processed so far, in milliseconds; -1 before the first."""

    @property
    def current_system_time_ms(self) -> int:
        """The wall-clock time at which the current record or punctuation started, in milliseconds."""

    def forward(self, record: Record, child: str | None = None) -> None:
        """Forward a record to the children of this node, in the order in which they were added.

        Each child processes it completely, with all nodes below, before the next one receives it.

        Args:
            record: the record.
            child: name of the only child that receives it; None for all.

        Raises:
            StreamsError: there is no such child, or the call does not come from a node.
        """

    def forward_held_back(self, record: Record, metadata: RecordMetadata) -> None:
        """Forward a record that this node held back; until the call returns, ``record_metadata`` is ``metadata``.

        Args:
            record: the record.
            metadata: ``record_metadata`` at the time when the node received it.

        Raises:
            StreamsError: the call does not come from a node.
        """

    def schedule(self, interval_ms: int, kind: PunctuationType, punctuator: Punctuator) -> Cancellable:
        """Call a function periodically. A call that is late is made once, however many intervals have passed.

        Args:
            interval_ms: at least 1. A stream-time schedule is aligned to multiples of it, and first called after the
                next record, or after the current one if it is created in ``process``; a wall-clock schedule is first
                called after the interval.
            kind: the clock.
            punctuator: called with the current time of that clock.

        Raises:
            ValueError: an argument is invalid.
            StreamsError: the call does not come from a node.
        """

    def schedules(self) -> Mapping[tuple[str, int], Cancellable]:
        """Return the schedules of this node that have not ended, by method and ordinal.

        A runtime may continue a task with a new processor. It calls ``init`` again, whose schedules then continue, and
        restores the schedules that were created later. The method is ``init`` for those created in ``init``, and
        otherwise the name of the processor's method that the schedule calls. The ordinal counts the schedules with
        this method from 0.
        """

    def remember(self, name: str, default: Any) -> Remembered:
        """Return an object whose ``value`` is kept if the task is rebuilt, unlike attributes of the processor.

        Args:
            name: name of the value; the same name returns the same object.
            default: the value, if the task has none yet.
        """

    def commit(self) -> None:
        """Request a commit of the task soon."""

    def get_state_store(self, name: str) -> Any:
        """Return a store that is connected to this processor, or a read-only view of a global store.

        Raises:
            StreamsError: there is no such store, or it is not connected.
        """

    def count(self, name: str, amount: int = 1) -> None:
        """Add to a counter of this node; ``StreamTask.metrics`` has it as ``node/name``."""


class Processor(ABC):
    """A node that receives records one by one. A supplier creates one object for each task."""

    def init(self, context: ProcessorContext) -> None:  # noqa: B027
        """Prepare for the first record: keep the context, get stores, create schedules."""

    @abstractmethod
    def process(self, record: Record) -> None:
        """Process one record."""

    def close(self) -> None:  # noqa: B027
        """Release the resources of ``init``. Changes of stores are discarded, unless a commit follows."""


#: Returns a new processor at each call: a class, or a function.
ProcessorSupplier = Callable[[], Processor]
