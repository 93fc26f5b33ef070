"""Store settings of tables.

Source: Kafka 3.9 Materialized, KeyValueStoreMaterializer, WindowStoreMaterializer and SessionStoreMaterializer.
"""

from __future__ import annotations

from dataclasses import dataclass

from zkconsumer.checked_arguments import check_fields
from zkconsumer.durations import OptionalDuration, default_ms
from zkconsumer.errors import TopologyError
from zkconsumer.topology import stores
from zkconsumer.topology.dsl.endpoints import Serdes
from zkconsumer.topology.dsl.names import Names, check_name
from zkconsumer.topology.serdes import Serde
from zkconsumer.topology.stores.builder import StoreBuilder
from zkconsumer.topology.windows import SessionWindows, SlidingWindows, TimeWindows

#: Types of windows that an aggregation supports.
Windows = TimeWindows | SlidingWindows | SessionWindows


@dataclass(frozen=True)
class Materialized:
    """Settings of a table's store.

    Attributes:
        store: store name, for example for lookups in the test driver; None for a generated name. A step that does not
            need a store creates one only if the name is set.
        key_serde: key serde; None uses the step's serde, or else the application's default.
        value_serde: value serde; None uses the step's serde (for example, ``serdes.LONG`` for ``count``), or else the
            application's default.
        retention_ms: retention period of windows, in milliseconds or as a ``timedelta``; None for the minimum that the
            windows require.
        history_ms: history retention of a versioned store, in milliseconds or as a ``timedelta``; None for an
            unversioned store.
        caching: whether the store has a record cache, which forwards only the last change of each key. Versioned stores
            are never cached.
        logging: ignored, because changelog topics are not supported.
        persistent: whether the test driver saves the entries in its state file, if it has one. Ignored on Spark.

    Raises:
        TopologyError: ``store`` is not a valid name, or an attribute has the wrong type or is negative.
    """

    store: str | None = None
    key_serde: Serde | None = None
    value_serde: Serde | None = None
    retention_ms: OptionalDuration = default_ms(None)
    history_ms: OptionalDuration = default_ms(None)
    caching: bool = True
    logging: bool = True
    persistent: bool = True

    def __post_init__(self) -> None:
        check_fields(self)
        if self.store is not None:
            check_name(self.store, "store")

    @property
    def is_versioned(self) -> bool:
        """Whether the store is versioned."""
        return self.history_ms is not None


#: Store settings or a store name; None uses the defaults.
StoreSettings = str | Materialized | None


def resolve_settings(store: StoreSettings) -> Materialized:
    """Return ``store`` as a ``Materialized``, with default settings if it is only a name or None.

    Raises:
        TopologyError: ``store`` has an unsupported type or is not a valid name.
    """
    if store is None or isinstance(store, str):
        return Materialized(store)
    if not isinstance(store, Materialized):
        raise TopologyError(f"store must be a name or a Materialized, got {store!r}")
    return store


@dataclass(frozen=True)
class TableStoreSettings:
    """Store settings with the resolved name and serdes.

    Attributes:
        name: name of the store.
        is_named: whether the user specified the name.
        materialized: settings that the user specified.
        serdes: key and value serdes.
    """

    name: str
    is_named: bool
    materialized: Materialized
    serdes: Serdes

    @classmethod
    def create(cls, store: StoreSettings, names: Names, prefix: str, serdes: Serdes) -> TableStoreSettings:
        """Resolve the name and the serdes of a store.

        Args:
            store: settings that the user specified.
            names: name generator, used if the user specified no name.
            prefix: prefix of a generated name.
            serdes: default serdes.
        """
        found = resolve_settings(store)
        is_named = found.store is not None
        name = found.store if found.store is not None else names.generate_store(prefix)
        return cls(name, is_named, found, serdes.override(found.key_serde, found.value_serde))

    def build_key_value(self, *, is_global: bool = False) -> StoreBuilder:
        """Return a builder for a timestamped or versioned key-value store.

        Args:
            is_global: whether the store is global.
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

    def check_windows(self, windows: Windows) -> None:
        """Check that the store can contain the results of ``windows``.

        Raises:
            TopologyError: ``retention_ms`` is too short for the windows, or the store is versioned.
        """
        minimum_ms, retention_ms = windows.retention_ms, self.materialized.retention_ms
        if retention_ms is not None and retention_ms < minimum_ms:
            raise TopologyError(
                f"store {self.name!r}: retention_ms must be at least {minimum_ms} to keep each window until it closes, "
                f"got {retention_ms}"
            )
        if self.materialized.is_versioned:
            raise TopologyError(
                f"store {self.name!r}: history_ms must be None for windows, got {self.materialized.history_ms}; "
                "use retention_ms"
            )

    def build_windowed(self, windows: Windows, *, emits_updates: bool) -> StoreBuilder:
        """Return a builder for a timestamped window store or a session store.

        Args:
            windows: windows of the aggregation.
            emits_updates: whether each update is forwarded. If False, only stores of time windows are cached.
        """
        found, (key, value) = self.materialized, self.serdes
        caching = found.caching and (emits_updates or isinstance(windows, TimeWindows))
        retention_ms = windows.retention_ms if found.retention_ms is None else found.retention_ms
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
            retention_ms += 1  # as in Kafka Streams, a window is still readable in the millisecond in which it closes
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
