"""The stores of a task, which are committed atomically."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from zkconsumer.errors import StreamsError
from zkconsumer.topology.loop.native import RunState
from zkconsumer.topology.stores.base import StateStore
from zkconsumer.topology.stores.builder import StoreBuilder
from zkconsumer.topology.stores.cache import Backing, StoreCache
from zkconsumer.topology.stores.native import PagedMap
from zkconsumer.topology.stores.pages import PageLimits
from zkconsumer.topology.task import owners
from zkconsumer.topology.task.error_handling import describe_error
from zkconsumer.topology.task.task_runtime import TaskRuntime


class TaskStores:
    """Creates, opens, commits and closes the stores of a task.

    Args:
        task_id: task id.
        builders: declarations of the stores.
        runtime: services that read and commit the pages; ``runtime.cache`` limits the size of the record caches.
        limits: page size and memory limits of each store.
        count_expired: function that is called with the store name for each expired entry that a store drops.
        state: run state of the task.

    Attributes:
        by_name: stores by name.
        global_stores: global stores by name, which belong to other tasks.
        count_expired: see above.

    Raises:
        StreamsError: a builder failed, or did not return a store with the declared name.
    """

    def __init__(
        self,
        task_id: str,
        builders: Iterable[StoreBuilder],
        runtime: TaskRuntime,
        limits: PageLimits,
        count_expired: Callable[[str], None],
        state: RunState,
    ) -> None:
        self._task_id, self._runtime, self._limits = task_id, runtime, limits
        self.count_expired = count_expired
        self.global_stores = runtime.global_stores
        assert runtime.cache is not None  # set by the task
        self._state, self._cache = state, runtime.cache
        self.by_name = {builder.name: self._create_store(builder) for builder in builders}
        self._maps: dict[str, PagedMap] = {}
        self._caches: dict[str, StoreCache] = {}
        self._open_stores: list[StateStore] = []

    def open(self) -> None:
        """Open all stores.

        Raises:
            StreamsError: a store failed, or belongs to another task.
        """
        for store in self.by_name.values():
            self._open(store)

    def byte_map(self, store: str) -> PagedMap:
        """Return the byte map that contains the entries of a store."""
        if store not in self._maps:
            opened = self.by_name[store]
            self._maps[store] = PagedMap(self._runtime.pages(opened), store, opened.layout, self._limits)
        return self._maps[store]

    def create_cache(self, store: str, backing: Backing) -> StoreCache:
        """Return a record cache for a store."""
        self._caches[store] = StoreCache(store, self._cache, self._state, backing)
        return self._caches[store]

    def set_read_only(self, is_read_only: bool) -> None:
        """Make the stores read-only or writable."""
        for entries in self._maps.values():
            entries.is_read_only = is_read_only

    def commit(self) -> None:
        """Atomically commit the changes to all stores.

        Record caches are flushed first; flush listeners may forward records to other nodes. Stores count as committed,
        and in-memory stores replace their last commit, only after the storage commit succeeded.
        """
        if self._caches:
            self._flush_caches()
        for store in self.by_name.values():
            store.flush()
        changes = [(entries, entries.collect_changes()) for entries in self._maps.values()]
        for entries, pages in changes:
            entries.write(pages)
        self._runtime.commit()
        for entries, pages in changes:
            entries.finish_commit(pages)

    def metrics(self) -> dict[str, int]:
        """Return the gets, puts, pages read and pages written of each store, by metric name, such as ``store/gets``."""
        names = ("gets", "puts", "pages_read", "pages_written")
        return {f"{store}/{name}": getattr(entries, name) for store, entries in self._maps.items() for name in names}

    def clear_caches(self) -> None:
        """Discard the entries of all record caches."""
        for cache in self._caches.values():
            cache.clear()

    def rollback(self) -> list[tuple[str, BaseException]]:
        """Discard all store changes since the last commit, and return the names and errors of failed steps."""
        steps: list[tuple[str, Callable[[], object]]] = [("storage", self._runtime.rollback)]
        steps += [(f"store {name!r}", entries.rollback) for name, entries in self._maps.items()]
        steps += [(f"store {name!r}", store.rollback) for name, store in self.by_name.items()]
        self.clear_caches()
        errors = []
        for what, roll_back in steps:
            try:
                roll_back()
            except BaseException as error:
                errors.append((what, error))
        return errors

    def close(self) -> list[BaseException]:
        """Close the open stores, and return the errors that they raised."""
        errors: list[BaseException] = []
        self.clear_caches()
        while self._open_stores:
            try:
                self._close(self._open_stores.pop())
            except BaseException as error:
                errors.append(error)
        return errors

    def _flush_caches(self) -> None:
        """Flush the record caches in store order, until none has changes.

        A flush listener may put changes into caches that are already flushed.
        """
        caches = list(self._caches.values())
        for _ in range(len(caches) + 1):
            for cache in caches:
                cache.flush()
            if not any(cache.is_dirty for cache in caches):
                return
        dirty = ", ".join(store for store, cache in self._caches.items() if cache.is_dirty)
        raise StreamsError(
            f"record caches still have changes after {len(caches) + 1} flushes, because flush listeners keep changing "
            f"cached stores: {dirty}"
        )

    def _create_store(self, builder: StoreBuilder) -> StateStore:
        if self._cache.max_bytes == 0:
            builder = replace(builder, caching=False)
        where = f"task {self._task_id}: StoreBuilder {builder.name!r}: create()"
        try:
            store = builder.create()
        except Exception as error:
            raise StreamsError(f"{where} failed: {describe_error(error)}") from error
        if not isinstance(store, StateStore) or store.name != builder.name:
            raise StreamsError(f"{where} must return a StateStore named {builder.name!r}, got {store!r}")
        return store

    def _open(self, store: StateStore) -> None:
        owner = owners.claim(store, self._task_id)
        if owner is not None:
            raise StreamsError(
                f"task {self._task_id}: store {store.name!r} belongs to task {owner}; its StoreBuilder must create a "
                "new object for each task"
            )
        try:
            store.init(self)
        except BaseException as error:
            self._release(store)
            if not isinstance(error, Exception):
                raise
            raise StreamsError(
                f"task {self._task_id}: store {store.name!r}: init() failed: {describe_error(error)}"
            ) from error
        self._open_stores.append(store)

    def _release(self, store: StateStore) -> None:
        owners.release(store)
        if store.name in self._maps:
            self._maps[store.name].close()

    def _close(self, store: StateStore) -> None:
        self._release(store)
        try:
            store.close()
        except Exception as error:
            raise StreamsError(
                f"task {self._task_id}: store {store.name!r}: close() failed: {describe_error(error)}"
            ) from error
