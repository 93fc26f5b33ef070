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
        clock: function that returns the wall-clock time in milliseconds.
        pages: function that returns the page store of a state store, or None to keep its entries in memory.
        commit: function that commits the page changes of all stores atomically, or raises an error. The default does
            nothing, which is sufficient for in-memory stores.
        rollback: function that discards the page changes since the last commit.
        max_waiting: maximum number of records buffered while the task waits for data on empty partitions. Records
            above this limit are processed without waiting. None disables the limit.
        max_waiting_bytes: the same limit for the size of the keys, values and headers, in bytes.
        lag_of: function that returns the lag of a partition, or None if the lag is unknown.
        partition_count: function that returns the partition count of a topic, for use by sink partitioners.
        global_stores: global stores by name.
        cache: record cache limit shared by several tasks, which must run in one thread. If it is None, each task has
            its own limit, ``ApplicationConfig.statestore_cache_max_bytes``.
        continued: hashes of earlier sub-topology fingerprints whose snapshots are accepted; see
            ``snapshot.hash_fingerprint``.
        takes_snapshots: whether tasks resume from snapshots, and must reject schedules that cannot be saved.
    """

    clock: Callable[[], int]
    pages: Callable[[StateStore], PageStore | None]
    commit: Callable[[], object] = lambda: None
    rollback: Callable[[], object] = lambda: None
    max_waiting: int | None = None
    max_waiting_bytes: int | None = None
    lag_of: Callable[[TopicPartition], int | None] = lambda _partition: 0
    partition_count: Callable[[str], int] = lambda _topic: 1
    global_stores: Mapping[str, StateStore] = field(default_factory=dict)
    cache: RecordCache | None = None
    continued: frozenset[str] = frozenset()
    takes_snapshots: bool = False
