"""What a task provides to its nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from zkconsumer.topology.config import ApplicationConfig
from zkconsumer.topology.loop import RunState
from zkconsumer.topology.processor import Cancellable, Processor, PunctuationType, Punctuator, Remembered
from zkconsumer.topology.records import SourceRecord


class TaskContext(Protocol):
    """The state of a task that its nodes use; ``StreamTask`` describes it."""

    task_id: str
    config: ApplicationConfig
    commit_requested: bool
    state: RunState
    system_time_ms: int

    @property
    def source_record(self) -> SourceRecord | None:
        """The record that is processed; None in punctuations."""

    @property
    def stream_time_ms(self) -> int:
        """The highest timestamp of the records processed so far."""

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

    def find_schedules(self, node: str) -> Mapping[tuple[str, int], Cancellable]:
        """Return the schedules of a node."""

    def remember(self, node: str, name: str, default: Any) -> Remembered:
        """Return a value of a node that a snapshot contains."""
