"""Builders that declare state stores.

Source: Kafka 3.9 org.apache.kafka.streams.state.Stores and StoreBuilder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from zkconsumer.checked_arguments import check_arguments
from zkconsumer.durations import Milliseconds, milliseconds
from zkconsumer.errors import TopologyError
from zkconsumer.topology import serdes
from zkconsumer.topology.checks import check_name, to_tuple
from zkconsumer.topology.function_names import function_name
from zkconsumer.topology.serdes import Serde
from zkconsumer.topology.stores.base import StateStore
from zkconsumer.topology.stores.cached_key_value import CachedKeyValueStore, CachedTimestampedKeyValueStore
from zkconsumer.topology.stores.cached_segments import (
    CachedSessionStore,
    CachedTimestampedWindowStore,
    CachedWindowStore,
)
from zkconsumer.topology.stores.key_value_store import KeyValueStore, TimestampedKeyValueStore
from zkconsumer.topology.stores.session_store import SessionStore
from zkconsumer.topology.stores.versioned_store import VersionedKeyValueStore
from zkconsumer.topology.stores.window_store import TimestampedWindowStore, WindowStore


@dataclass(frozen=True, eq=False, repr=False)
class StoreBuilder:
    """Declares a state store; each task creates its own store from it. Builders are compared by identity.

    Attributes:
        name: name of the store.
        kind: store class, or a function that returns a new store; called with ``name`` and ``parameters``.
        parameters: keyword arguments of ``kind``.
        logging: must be False for a global store, as in Kafka Streams. It has no other effect, because changelog topics
            are not supported.
        caching: whether the store has a record cache, which writes and forwards only the last change of each key.

    Raises:
        TopologyError: ``name`` is empty or not a str, ``kind`` is not a class or function, or ``caching`` is true but
            not supported for ``kind``.
    """

    name: str
    kind: Callable[..., StateStore]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    logging: bool = True
    caching: bool = False

    def __post_init__(self) -> None:
        check_name("store", self.name)
        object.__setattr__(self, "parameters", MappingProxyType(dict(self.parameters)))
        if not callable(self.kind):
            raise TopologyError(f"store {self.name!r}: kind must be a class or function, got {self.kind!r}")
        if self.caching and self.kind not in _CACHED:
            raise TopologyError(f"store {self.name!r}: caching is not supported for {function_name(self.kind)}")

    def __reduce__(self) -> tuple[Any, ...]:
        return StoreBuilder, (self.name, self.kind, dict(self.parameters), self.logging, self.caching)

    def __repr__(self) -> str:
        arguments = {**self.parameters, "logging": self.logging, "caching": self.caching}
        described = (f"{name}={value!r}" for name, value in arguments.items())
        return f"StoreBuilder({', '.join((repr(self.name), function_name(self.kind), *described))})"

    def with_default_serdes(self, key: Serde, value: Serde) -> StoreBuilder:
        """Return a copy in which the given serdes replace missing ones.

        Args:
            key: default key serde.
            value: default value serde.
        """
        given = self.parameters.get("serdes")
        if given is None:
            return self
        chosen = serdes.choose_serde(given[0], key), serdes.choose_serde(given[1], value)
        return self if chosen == given else replace(self, parameters={**self.parameters, "serdes": chosen})

    def create(self) -> StateStore:
        """Return a new store. No serde in ``parameters`` may be None; see ``with_default_serdes``."""
        kind = _CACHED[self.kind] if self.caching else self.kind
        return kind(self.name, **self.parameters)


def to_builders(processor: str, stores: Any) -> tuple[StoreBuilder, ...]:
    """Return the stores of a processor as a tuple, or raise TopologyError unless they are StoreBuilder objects."""
    builders = to_tuple(f"stores of processor {processor!r}", stores)
    for builder in builders:
        if not isinstance(builder, StoreBuilder):
            raise TopologyError(f"a store must be a StoreBuilder, got {builder!r}")
    return builders


#: Maps each store class that supports caching to its subclass with a record cache.
_CACHED: dict[Callable[..., StateStore], Callable[..., StateStore]] = {
    KeyValueStore: CachedKeyValueStore,
    TimestampedKeyValueStore: CachedTimestampedKeyValueStore,
    WindowStore: CachedWindowStore,
    TimestampedWindowStore: CachedTimestampedWindowStore,
    SessionStore: CachedSessionStore,
}


@check_arguments
def key_value(
    name: str,
    key: Serde | None = serdes.BYTES,
    value: Serde | None = serdes.BYTES,
    *,
    persistent: bool = True,
    logging: bool = True,
    caching: bool = False,
) -> StoreBuilder:
    """Return a builder for a ``KeyValueStore``.

    Args:
        name: name of the store.
        key: key serde; None uses the application's default.
        value: value serde; None uses the application's default.
        persistent: whether the test driver saves the entries in its state file, if it has one. Ignored on Spark.
        logging: see ``StoreBuilder``.
        caching: see ``StoreBuilder``.
    """
    return _declare(KeyValueStore, name, (key, value), persistent, logging, caching)


@check_arguments
def timestamped_key_value(
    name: str,
    key: Serde | None = serdes.BYTES,
    value: Serde | None = serdes.BYTES,
    *,
    persistent: bool = True,
    logging: bool = True,
    caching: bool = False,
) -> StoreBuilder:
    """Return a builder for a ``TimestampedKeyValueStore``. For the arguments, see ``key_value``."""
    return _declare(TimestampedKeyValueStore, name, (key, value), persistent, logging, caching)


@check_arguments
def versioned_key_value(
    name: str,
    key: Serde | None = serdes.BYTES,
    value: Serde | None = serdes.BYTES,
    *,
    history_ms: Milliseconds,
    segment_interval_ms: Milliseconds | None = None,
    persistent: bool = True,
    logging: bool = True,
) -> StoreBuilder:
    """Return a builder for a ``VersionedKeyValueStore``.

    Args:
        name: name of the store.
        key: key serde; None uses the application's default.
        value: value serde; None uses the application's default.
        history_ms: history retention of old versions, in milliseconds or as a ``timedelta``.
        segment_interval_ms: segment interval, in milliseconds or as a ``timedelta``; None derives it from
            ``history_ms``.
        persistent: whether the test driver saves the entries in its state file, if it has one. Ignored on Spark.
        logging: see ``StoreBuilder``.
    """
    kept_ms = milliseconds(history_ms)
    interval_ms = _versioned_interval_ms(kept_ms) if segment_interval_ms is None else segment_interval_ms
    times = {"history_ms": kept_ms, "segment_interval_ms": interval_ms}
    return _declare(VersionedKeyValueStore, name, (key, value), persistent, logging, False, **times)


@check_arguments
def window(
    name: str,
    key: Serde | None = serdes.BYTES,
    value: Serde | None = serdes.BYTES,
    *,
    retention_ms: Milliseconds,
    window_size_ms: Milliseconds,
    retain_duplicates: bool = False,
    persistent: bool = True,
    logging: bool = True,
    caching: bool = False,
) -> StoreBuilder:
    """Return a builder for a ``WindowStore``.

    Args:
        name: name of the store.
        key: key serde; None uses the application's default.
        value: value serde; None uses the application's default.
        retention_ms: retention period of windows, in milliseconds or as a ``timedelta``; at least
            ``window_size_ms``.
        window_size_ms: window size, in milliseconds or as a ``timedelta``.
        retain_duplicates: whether each put adds a value instead of replacing the previous one.
        persistent: whether the test driver saves the entries in its state file, if it has one. Ignored on Spark.
        logging: see ``StoreBuilder``.
        caching: see ``StoreBuilder``. As in Kafka Streams, a store that retains duplicates is not cached.
    """
    parameters = _window_parameters(name, retention_ms, window_size_ms, retain_duplicates)
    return _declare(
        WindowStore, name, (key, value), persistent, logging, caching and not retain_duplicates, **parameters
    )


@check_arguments
def timestamped_window(
    name: str,
    key: Serde | None = serdes.BYTES,
    value: Serde | None = serdes.BYTES,
    *,
    retention_ms: Milliseconds,
    window_size_ms: Milliseconds,
    retain_duplicates: bool = False,
    persistent: bool = True,
    logging: bool = True,
    caching: bool = False,
) -> StoreBuilder:
    """Return a builder for a ``TimestampedWindowStore``. For the arguments, see ``window``."""
    parameters = _window_parameters(name, retention_ms, window_size_ms, retain_duplicates)
    return _declare(
        TimestampedWindowStore, name, (key, value), persistent, logging, caching and not retain_duplicates, **parameters
    )


@check_arguments
def session(
    name: str,
    key: Serde | None = serdes.BYTES,
    value: Serde | None = serdes.BYTES,
    *,
    retention_ms: Milliseconds,
    persistent: bool = True,
    logging: bool = True,
    caching: bool = False,
) -> StoreBuilder:
    """Return a builder for a ``SessionStore``.

    Args:
        name: name of the store.
        key: key serde; None uses the application's default.
        value: serde of the aggregates; None uses the application's default.
        retention_ms: retention period of sessions, in milliseconds or as a ``timedelta``.
        persistent: whether the test driver saves the entries in its state file, if it has one. Ignored on Spark.
        logging: see ``StoreBuilder``.
        caching: see ``StoreBuilder``.
    """
    return _declare(SessionStore, name, (key, value), persistent, logging, caching, retention_ms=retention_ms)


def _declare(
    kind: Callable[..., StateStore],
    name: str,
    serdes: tuple[Serde | None, Serde | None],
    is_persistent: bool,
    logging: bool,
    caching: bool,
    **parameters: object,
) -> StoreBuilder:
    return StoreBuilder(name, kind, {"serdes": serdes, "is_persistent": is_persistent, **parameters}, logging, caching)


def _window_parameters(
    name: str, retention_ms: Milliseconds, window_size_ms: Milliseconds, retain_duplicates: bool
) -> dict[str, object]:
    """Check the parameters of a window store, and return them."""
    if milliseconds(window_size_ms) > milliseconds(retention_ms):
        raise TopologyError(
            f"store {name!r}: retention_ms must be at least window_size_ms ({window_size_ms}), got {retention_ms}"
        )
    return {
        "retention_ms": retention_ms,
        "window_size_ms": window_size_ms,
        "retain_duplicates": retain_duplicates,
    }


def _versioned_interval_ms(history_ms: int) -> int:
    """Return the default segment interval for ``history_ms``. Source: RocksDbVersionedKeyValueBytesStoreSupplier."""
    if history_ms <= 60_000:
        return max(history_ms // 3, 2_000)
    if history_ms <= 300_000:
        return max(history_ms // 5, 20_000)
    if history_ms <= 3_600_000:
        return max(history_ms // 12, 60_000)
    return max(history_ms // 24, 300_000)
