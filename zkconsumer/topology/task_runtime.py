"""Services that the runtime provides to a task."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from zkconsumer.message import TopicPartition
from zkconsumer.topology.loop import RecordCache
from zkconsumer.topology.stores.base import StateStore
from zkconsumer.topology.stores.pages import PageStore


@dataclass(frozen=True, kw_only=True)
class TaskRuntime:
    """Clock, storage and global stores of a task.

    Attributes:
        clock: returns the wall-clock time in milliseconds.
        pages: returns the pages of a store; None keeps its entries in memory.
        commit: makes the changes of all pages since the last commit permanent, or raises an error and changes none;
            by default, it does nothing, as for entries in memory.
        rollback: discards these changes.
        max_waiting: maximum number of records that wait for empty partitions; more of them are processed. None for no
            limit.
        lag_of: returns the lag of a partition, or None if it is unknown.
        partition_count: returns the number of partitions of a topic, for the partitioners of sinks.
        global_stores: global stores by name.
        cache: limits the record caches of all tasks that share it, which must belong to one thread. None: the task
            creates a cache of its own with ``ApplicationConfig.statestore_cache_max_bytes``.
        continued: earlier declarations of the sub-topology whose snapshots may be continued; see
            ``snapshot.hash_fingerprint``.
        takes_snapshots: whether tasks are continued from snapshots, so that they reject schedules that cannot be
            saved.
    """

    clock: Callable[[], int]
    pages: Callable[[StateStore], PageStore | None]
    commit: Callable[[], object] = lambda: None
    rollback: Callable[[], object] = lambda: None
    max_waiting: int | None = None
    lag_of: Callable[[TopicPartition], int | None] = lambda _partition: 0
    partition_count: Callable[[str], int] = lambda _topic: 1
    global_stores: Mapping[str, StateStore] = field(default_factory=dict)
    cache: RecordCache | None = None
    continued: frozenset[str] = frozenset()
    takes_snapshots: bool = False
