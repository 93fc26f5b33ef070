"""How the store of a table is created.

Source: Kafka 3.9 Materialized, KeyValueStoreMaterializer, WindowStoreMaterializer and SessionStoreMaterializer.
"""

from __future__ import annotations

from dataclasses import dataclass

from zkconsumer.errors import TopologyError
from zkconsumer.topology import stores
from zkconsumer.topology.dsl.endpoints import Serdes
from zkconsumer.topology.dsl.names import Names, check_name
from zkconsumer.topology.serdes import Serde
from zkconsumer.topology.stores.builder import StoreBuilder
from zkconsumer.topology.windows import SessionWindows, SlidingWindows, TimeWindows

#: The windows of an aggregation.
Windows = TimeWindows | SlidingWindows | SessionWindows


@dataclass(frozen=True)
class Materialized:
    """Settings of the store of a table.

    Attributes:
        store: name of the store, with which a test driver finds it; None for a generated name. Steps that need no store
            have one only if it is named.
        key_serde: serde of keys; None for that of the step before, or of the application.
        value_serde: serde of values; None for that of the application.
        retention_ms: milliseconds for which windows can be read; None for their size and grace period.
        history_ms: milliseconds for which old versions can be read; None for a store that is not versioned.
        caching: whether the store has a record cache, which forwards only the last change of each key. Versioned stores
            have none.
        logging: has no effect, because changelog topics are not supported.
        persistent: if False, the entries are lost when a task of the test driver ends. No effect on Spark.

    Raises:
        TopologyError: the name is invalid.
    """

    store: str | None = None
    key_serde: Serde | None = None
    value_serde: Serde | None = None
    retention_ms: int | None = None
    history_ms: int | None = None
    caching: bool = True
    logging: bool = True
    persistent: bool = True

    def __post_init__(self) -> None:
        if self.store is not None:
            check_name(self.store)

    @property
    def is_versioned(self) -> bool:
        """Whether the store keeps versions."""
        return self.history_ms is not None


#: Settings of a store, or only its name.
StoreSettings = str | Materialized | None


def resolve_settings(store: StoreSettings) -> Materialized:
    """Return the settings, with defaults if there is only a name or nothing.

    Raises:
        TopologyError: the argument has another type, or the name is invalid.
    """
    if store is None or isinstance(store, str):
        return Materialized(store)
    if not isinstance(store, Materialized):
        raise TopologyError(f"store must be a name or a Materialized, got {store!r}")
    return store


@dataclass(frozen=True)
class TableStoreSettings:
    """The settings of a store whose name and serdes are known.

    Attributes:
        name: name of the store.
        is_named: whether the user named it.
        materialized: the other settings.
        serdes: serdes of keys and values.
    """

    name: str
    is_named: bool
    materialized: Materialized
    serdes: Serdes

    @classmethod
    def create(cls, store: StoreSettings, names: Names, prefix: str, serdes: Serdes) -> TableStoreSettings:
        """Choose the name of a store.

        Args:
            store: settings of the user.
            names: generates a name, if the user gave none.
            prefix: start of that name.
            serdes: serdes if the user gave none.
        """
        found = resolve_settings(store)
        is_named = found.store is not None
        name = found.store if found.store is not None else names.generate_store(prefix)
        return cls(name, is_named, found, serdes.override(found.key_serde, found.value_serde))

    def build_key_value(self, *, is_global: bool = False) -> StoreBuilder:
        """Return a timestamped or versioned key-value store.

        Args:
            is_global: whether it is a global store.
        """
        found, (key, value) = self.materialized, self.serdes
        logging = found.logging and not is_global
        if found.history_ms is not None:
            return stores.versioned_key_value(
                self.name,
                key,
                value,
                history_ms=found.history_ms,
                persistent=found.persistent,
                logging=logging,
            )
        return stores.timestamped_key_value(
            self.name, key, value, persistent=found.persistent, logging=logging, caching=found.caching
        )

    def build_windowed(self, windows: Windows, *, emits_updates: bool) -> StoreBuilder:
        """Return a timestamped window store, or a session store.

        Args:
            windows: the windows.
            emits_updates: whether each change is forwarded; otherwise, the store is not cached.

        Raises:
            TopologyError: the retention is too short.
        """
        found, (key, value), caching = self.materialized, self.serdes, self.materialized.caching and emits_updates
        retention_ms = self._retention_ms(windows.retention_ms)
        if isinstance(windows, SessionWindows):
            return stores.session(
                self.name,
                key,
                value,
                retention_ms=retention_ms,
                persistent=found.persistent,
                logging=found.logging,
                caching=caching,
            )
        if not emits_updates:
            retention_ms += 1  # as in Kafka Streams, a window can be read in the millisecond in which it is closed
        return stores.timestamped_window(
            self.name,
            key,
            value,
            retention_ms=retention_ms,
            window_size_ms=windows.size_ms if isinstance(windows, TimeWindows) else windows.difference_ms,
            persistent=found.persistent,
            logging=found.logging,
            caching=caching,
        )

    def _retention_ms(self, minimum_ms: int) -> int:
        retention_ms = self.materialized.retention_ms
        if retention_ms is None:
            return minimum_ms
        if retention_ms < minimum_ms:
            raise TopologyError(
                f"store {self.name!r}: retention_ms must be at least {minimum_ms} (for the window size or session gap, "
                f"and the grace period), got {retention_ms}"
            )
        return retention_ms
