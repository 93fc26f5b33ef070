"""State stores, and the builders that declare them.

A store keeps its entries in a byte map, which is sorted by key and divided into pages. A task commits all its stores
together. A store may be used only by the thread of its task. This module exports the public names.
"""

from __future__ import annotations

from zkconsumer.topology.loop.native import RecordCache
from zkconsumer.topology.stores.base import StateStore, StoreContext
from zkconsumer.topology.stores.builder import (
    StoreBuilder,
    key_value,
    session,
    timestamped_key_value,
    timestamped_window,
    versioned_key_value,
    window,
)
from zkconsumer.topology.stores.files import StateFile
from zkconsumer.topology.stores.key_value_store import KeyValueStore, TimestampedKeyValueStore, ValueAndTimestamp
from zkconsumer.topology.stores.native import PagedMap
from zkconsumer.topology.stores.pages import MemoryPages, PageLimits, PageStore
from zkconsumer.topology.stores.session_store import SessionStore
from zkconsumer.topology.stores.time_map import Windowed
from zkconsumer.topology.stores.versioned_store import (
    NOT_PUT,
    VALID_TO_UNDEFINED,
    VersionedKeyValueStore,
    VersionedRecord,
)
from zkconsumer.topology.stores.window_store import TimestampedWindowStore, WindowStore

__all__ = [
    "NOT_PUT",
    "VALID_TO_UNDEFINED",
    "KeyValueStore",
    "MemoryPages",
    "PageLimits",
    "PageStore",
    "PagedMap",
    "RecordCache",
    "SessionStore",
    "StateFile",
    "StateStore",
    "StoreBuilder",
    "StoreContext",
    "TimestampedKeyValueStore",
    "TimestampedWindowStore",
    "ValueAndTimestamp",
    "VersionedKeyValueStore",
    "VersionedRecord",
    "WindowStore",
    "Windowed",
    "key_value",
    "session",
    "timestamped_key_value",
    "timestamped_window",
    "versioned_key_value",
    "window",
]
