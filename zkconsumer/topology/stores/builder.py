"""Declarations of stores.

Source: Kafka 3.9 org.apache.kafka.streams.state.Stores and StoreBuilder.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from zkconsumer.errors import TopologyError
from zkconsumer.topology import serdes
from zkconsumer.topology.checks import check_name
from zkconsumer.topology.serdes import Serde
from zkconsumer.topology.stores.base import StateStore
from zkconsumer.topology.stores.key_value import KeyValueStore, TimestampedKeyValueStore
from zkconsumer.topology.stores.session import SessionStore
from zkconsumer.topology.stores.versioned import VersionedKeyValueStore
from zkconsumer.topology.stores.window import TimestampedWindowStore, WindowStore


@dataclass(frozen=True, eq=False)
class StoreBuilder:
    """Declaration of a state store; each task creates its own. Builders are compared by identity.

    Attributes:
        name: name of the store.
        create: returns a new store.
        logging: False declares that the store needs no changelog, as a global store, whose topic has its contents.
    """

    name: str
    create: Callable[[], StateStore]
    logging: bool = True

    def __post_init__(self) -> None:
        check_name("store", self.name)


def key_value(
    name: str, key: Serde = serdes.BYTES, value: Serde = serdes.BYTES, *, persistent: bool = True, logging: bool = True
) -> StoreBuilder:
    """Return a builder of a ``KeyValueStore``.

    Args:
        name: name of the store.
        key: serde of keys.
        value: serde of values.
        persistent: False keeps the entries in memory.
        logging: see ``StoreBuilder``.
    """
    return StoreBuilder(name, lambda: KeyValueStore(name, key, value, persistent), logging)


def timestamped_key_value(
    name: str, key: Serde = serdes.BYTES, value: Serde = serdes.BYTES, *, persistent: bool = True, logging: bool = True
) -> StoreBuilder:
    """Return a builder of a ``TimestampedKeyValueStore``; the arguments are those of ``key_value``."""
    return StoreBuilder(name, lambda: TimestampedKeyValueStore(name, key, value, persistent), logging)


def versioned_key_value(
    name: str,
    key: Serde = serdes.BYTES,
    value: Serde = serdes.BYTES,
    *,
    history_ms: int,
    segment_interval_ms: int | None = None,
    persistent: bool = True,
    logging: bool = True,
) -> StoreBuilder:
    """Return a builder of a ``VersionedKeyValueStore``; the other arguments are those of ``key_value``.

    Args:
        name: name of the store.
        key: serde of keys.
        value: serde of values.
        history_ms: milliseconds for which old versions are kept.
        segment_interval_ms: milliseconds of a segment; None for one that depends on ``history_ms``.
        persistent: False keeps the entries in memory.
        logging: see ``StoreBuilder``.
    """
    _check_not_negative(name, history_ms=history_ms)
    interval_ms = _versioned_interval_ms(history_ms) if segment_interval_ms is None else segment_interval_ms
    if not isinstance(interval_ms, int) or interval_ms < 1:
        raise TopologyError(
            f"store {name!r}: segment_interval_ms must be an integer of at least 1, got {interval_ms!r}"
        )
    return StoreBuilder(
        name, lambda: VersionedKeyValueStore(name, history_ms, interval_ms, (key, value), persistent), logging
    )


def window(
    name: str,
    key: Serde = serdes.BYTES,
    value: Serde = serdes.BYTES,
    *,
    retention_ms: int,
    window_size_ms: int,
    retain_duplicates: bool = False,
    persistent: bool = True,
    logging: bool = True,
) -> StoreBuilder:
    """Return a builder of a ``WindowStore``; the other arguments are those of ``key_value``.

    Args:
        name: name of the store.
        key: serde of keys.
        value: serde of values.
        retention_ms: milliseconds for which a window can be read; at least ``window_size_ms``.
        window_size_ms: milliseconds of a window.
        retain_duplicates: whether each put adds a value.
        persistent: False keeps the entries in memory.
        logging: see ``StoreBuilder``.
    """
    _check_window(name, retention_ms, window_size_ms)
    return StoreBuilder(
        name,
        lambda: WindowStore(name, retention_ms, window_size_ms, retain_duplicates, (key, value), persistent),
        logging,
    )


def timestamped_window(
    name: str,
    key: Serde = serdes.BYTES,
    value: Serde = serdes.BYTES,
    *,
    retention_ms: int,
    window_size_ms: int,
    retain_duplicates: bool = False,
    persistent: bool = True,
    logging: bool = True,
) -> StoreBuilder:
    """Return a builder of a ``TimestampedWindowStore``; the arguments are those of ``window``."""
    _check_window(name, retention_ms, window_size_ms)
    return StoreBuilder(
        name,
        lambda: TimestampedWindowStore(name, retention_ms, window_size_ms, retain_duplicates, (key, value), persistent),
        logging,
    )


def session(
    name: str,
    key: Serde = serdes.BYTES,
    value: Serde = serdes.BYTES,
    *,
    retention_ms: int,
    persistent: bool = True,
    logging: bool = True,
) -> StoreBuilder:
    """Return a builder of a ``SessionStore``; the other arguments are those of ``key_value``.

    Args:
        name: name of the store.
        key: serde of keys.
        value: serde of aggregates.
        retention_ms: milliseconds for which a session can be read.
        persistent: False keeps the entries in memory.
        logging: see ``StoreBuilder``.
    """
    _check_not_negative(name, retention_ms=retention_ms)
    return StoreBuilder(name, lambda: SessionStore(name, retention_ms, (key, value), persistent), logging)


def _check_window(name: str, retention_ms: int, window_size_ms: int) -> None:
    _check_not_negative(name, retention_ms=retention_ms, window_size_ms=window_size_ms)
    if window_size_ms > retention_ms:
        raise TopologyError(
            f"store {name!r}: retention_ms must be at least window_size_ms, got {retention_ms} and {window_size_ms}"
        )


def _check_not_negative(name: str, **arguments: int) -> None:
    for argument, value in arguments.items():
        if not isinstance(value, int) or value < 0:
            raise TopologyError(f"store {name!r}: {argument} must be an integer of at least 0, got {value!r}")


def _versioned_interval_ms(history_ms: int) -> int:
    """Return the default segment interval. Source: RocksDbVersionedKeyValueBytesStoreSupplier."""
    if history_ms <= 60_000:
        return max(history_ms // 3, 2_000)
    if history_ms <= 300_000:
        return max(history_ms // 5, 20_000)
    if history_ms <= 3_600_000:
        return max(history_ms // 12, 60_000)
    return max(history_ms // 24, 300_000)
