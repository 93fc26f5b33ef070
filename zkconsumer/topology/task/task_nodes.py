"""The nodes of a task: creation, initialization and closing."""

from __future__ import annotations

from collections.abc import Iterable

from zkconsumer.topology.declared.nodes import Node, ProcessorNode, SinkNode, SourceNode
from zkconsumer.topology.loop.native import OutputColumns
from zkconsumer.topology.task.context import NodeContext
from zkconsumer.topology.task.error_handling import ErrorHandling
from zkconsumer.topology.task.node_runtime import RunningNode, RunningProcessor, RunningSink, RunningSource
from zkconsumer.topology.task.punctuation import TaskSchedules
from zkconsumer.topology.task.task_context import TaskContext
from zkconsumer.topology.task.task_runtime import TaskRuntime
from zkconsumer.topology.task.task_stores import TaskStores


class TaskNodes:
    """Creates, initializes and closes the nodes of a task.

    Args:
        nodes: declared nodes, parents before children.
        task: context of the task.
        errors: error handling of the task.
        runtime: clock and partition counts.
        output: columns to which the sinks append their records.

    Raises:
        StreamsError: a processor cannot be created.
    """

    def __init__(
        self,
        nodes: Iterable[Node],
        task: TaskContext,
        errors: ErrorHandling,
        runtime: TaskRuntime,
        output: OutputColumns,
    ) -> None:
        self._task = task
        self._by_name: dict[str, RunningNode] = {}
        for node in nodes:
            running = self._by_name[node.name] = _create_node(node, task, errors, runtime, output)
            for parent in node.parents:
                self._by_name[parent].add_child(running)

    def find_source(self, name: str) -> RunningSource:
        """Return the source node ``name``."""
        source = self._by_name[name]
        assert isinstance(source, RunningSource)
        return source

    def initialize(self, stores: TaskStores, metrics: dict[str, int], schedules: TaskSchedules) -> None:
        """Initialize the processors, parents first.

        Args:
            stores: stores of the task.
            metrics: task metrics, to which processors add counters.
            schedules: schedules of the task; restored schedules are attached to the processors.

        Raises:
            StreamsError: a processor failed, or a schedule cannot be restored.
        """
        for node in self._by_name.values():
            if isinstance(node, RunningProcessor):
                schedules.attach(node.name, node.processor)
                node.initialize(NodeContext(node, self._task, stores, metrics))
        schedules.finish_restoring()

    def metrics(self) -> dict[str, int]:
        """Return the call count and estimated run time of each processor: ``node/processed``, ``node/nanoseconds``."""
        found: dict[str, int] = {}
        for name, node in self._by_name.items():
            if isinstance(node, RunningProcessor):
                found |= {f"{name}/processed": node.calls.calls, f"{name}/nanoseconds": node.calls.nanoseconds}
        return found

    def close(self) -> list[BaseException]:
        """Close the initialized processors, and return the errors that they raised."""
        errors: list[BaseException] = []
        for node in self._by_name.values():
            try:
                node.close()
            except BaseException as error:
                errors.append(error)
        return errors


def _create_node(
    node: Node, task: TaskContext, errors: ErrorHandling, runtime: TaskRuntime, output: OutputColumns
) -> RunningNode:
    match node:
        case SourceNode():
            return RunningSource(node, task, errors, runtime.clock)
        case ProcessorNode():
            return RunningProcessor(node, task, errors)
        case SinkNode():
            return RunningSink(node, task, errors, runtime, output)
