"""Implementation of ``ProcessorContext``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from zkconsumer.durations import Milliseconds, to_milliseconds
from zkconsumer.errors import StreamsError
from zkconsumer.topology.config import ApplicationConfig
from zkconsumer.topology.errors import InvalidArgumentError, WrongTypeError
from zkconsumer.topology.loop.native import Forwarder
from zkconsumer.topology.loop.records import PUNCTUATION_METADATA, Record, RecordMetadata
from zkconsumer.topology.processor import Cancellable, PunctuationType, Punctuator, Remembered
from zkconsumer.topology.task.node_runtime import RunningProcessor
from zkconsumer.topology.task.task_context import TaskContext
from zkconsumer.topology.task.task_stores import TaskStores


class NodeContext:
    """Implements ``ProcessorContext`` for one node.

    Args:
        node: processor node that uses the context.
        task: context of the task.
        stores: stores of the task, including global stores.
        metrics: task metrics, including node counters.
    """

    def __init__(self, node: RunningProcessor, task: TaskContext, stores: TaskStores, metrics: dict[str, int]) -> None:
        self._node, self._task, self._stores, self._metrics = node, task, stores, metrics
        self._forward = Forwarder(task.state, node.children, node.child_by_name, self._reject_forward)
        self.forward = self._forward_same_key if node.keeps_keys else self._forward

    @property
    def config(self) -> ApplicationConfig:
        """The settings of the application."""
        return self._task.config

    @property
    def application_id(self) -> str:
        """The name of the application."""
        return self._task.config.application_id

    @property
    def task_id(self) -> str:
        """The sub-topology number and partition number, such as ``0_3``; ``global`` in a global store's processor."""
        return self._task.task_id

    @property
    def node_name(self) -> str:
        """The name of the processor."""
        return self._node.name

    @property
    def record_metadata(self) -> RecordMetadata | None:
        """Topic, partition and offset of the current record; see ``ProcessorContext``."""
        source = self._task.source_record
        if source is None:
            return PUNCTUATION_METADATA if self._task.state.is_processing else None
        return source.metadata

    @property
    def current_stream_time_ms(self) -> int:
        """The highest timestamp of the records processed so far."""
        return self._task.stream_time_ms

    @property
    def current_system_time_ms(self) -> int:
        """The wall-clock time at which the current punctuation or batch of records started, in milliseconds."""
        return self._task.system_time_ms

    def forward_held_back(self, record: Record, metadata: RecordMetadata) -> None:
        """Forward a record that this node held back; see ``ProcessorContext``."""
        with self._task.place_of(record, metadata):
            self.forward(record)

    def schedule(self, interval_ms: Milliseconds, kind: PunctuationType, punctuator: Punctuator) -> Cancellable:
        """Schedule a punctuator; see ``ProcessorContext``."""
        interval = to_milliseconds(interval_ms)
        if interval is None or interval < 1:
            expected = "a positive integer or a positive timedelta of whole milliseconds"
            raise InvalidArgumentError(f"schedule(): interval_ms must be {expected}, got {interval_ms!r}")
        if not isinstance(kind, PunctuationType):
            raise InvalidArgumentError(f"schedule(): kind must be a PunctuationType, got {kind!r}")
        if not callable(punctuator):
            raise InvalidArgumentError(f"schedule(): punctuator must be a function, got {punctuator!r}")
        processor = self._node.processor if self._node.is_initialized else None
        return self._task.schedule(self._node.name, processor, interval, kind, punctuator)

    def schedules(self) -> Mapping[tuple[str, int], Cancellable]:
        """Return the schedules of this node; see ``ProcessorContext``."""
        return self._task.find_schedules(self._node.name)

    def remember(self, name: str, default: Any) -> Remembered:
        """Return an object whose value is included in task snapshots; see ``ProcessorContext``."""
        return self._task.remember(self._node.name, name, default)

    def commit(self) -> None:
        """Request a commit."""
        self._task.commit_requested = True

    def get_state_store(self, name: str) -> Any:
        """Return the store ``name``; see ``ProcessorContext``."""
        if name in self._node.stores:
            return self._stores.by_name[name]
        if name in self._stores.global_stores:
            return self._stores.global_stores[name]
        connected = ", ".join(sorted(self._node.stores)) or "none"
        raise StreamsError(
            f"processor {self._node.name!r} is not connected to store {name!r} (connected stores: {connected}); "
            "connect it with connect_processor_and_state_stores(), or in the DSL with process()"
        )

    def count(self, name: str, amount: int = 1) -> None:
        """Increase a counter of this node by ``amount``."""
        key = f"{self._node.name}/{name}"
        self._metrics[key] = self._metrics.get(key, 0) + amount

    def drop(self, reason: str) -> None:
        """Count and log the current record as dropped; see ``ProcessorContext``."""
        self._node.drop(reason)

    def _forward_same_key(self, record: Record, child: str | None = None) -> None:
        """Forward a record with the key of the current record. Punctuators can forward any record. Source: KIP-820."""
        state, current = self._task.state, self._task.state.record
        is_received = current is not None and (current.key is not None or state.source is not None)
        if current is not None and is_received and type(record) is Record and record.key != current.key:
            raise StreamsError(
                f"processor {self._node.name!r}: the key must not change, got {record.key!r} instead of "
                f"{current.key!r}; use process() instead of process_values() to change keys"
            )
        self._forward(record, child)

    def _reject_forward(self, record: object, child: str | None) -> NoReturn:
        """Raise the error for an invalid ``forward`` call."""
        if not self._task.state.is_processing:
            raise StreamsError(
                f"processor {self._node.name!r}: forward() was called outside process(), punctuators and flush "
                "listeners"
            )
        if type(record) is not Record:
            raise WrongTypeError(f"forward(): record must be a Record, got {record!r}")
        children = ", ".join(self._node.child_by_name) or "none"
        raise StreamsError(f"processor {self._node.name!r} has no child {child!r} (children: {children})")
