"""What a task provides to its nodes."""

from __future__ import annotations

from typing import Protocol

from zkconsumer.topology.config import ApplicationConfig
from zkconsumer.topology.processor import Cancellable, PunctuationType, Punctuator
from zkconsumer.topology.records import SourceRecord


class TaskContext(Protocol):
    """The state of a task that its nodes use; ``StreamTask`` describes it."""

    task_id: str
    config: ApplicationConfig
    commit_requested: bool
    is_processing: bool
    system_time_ms: int
    source_record: SourceRecord | None

    @property
    def stream_time_ms(self) -> int:
        """The highest timestamp of the records processed so far."""

    def schedule(self, node: str, interval_ms: int, kind: PunctuationType, punctuator: Punctuator) -> Cancellable:
        """Create a schedule."""
