"""Key-value stores with a record cache.

Source: Kafka 3.9 CachingKeyValueStore.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, TypeVar

from zkconsumer.topology.loop.native import Deserialize
from zkconsumer.topology.stores.base import StoreContext
from zkconsumer.topology.stores.cache import FlushListener, StoreCache, merge
from zkconsumer.topology.stores.key_value_store import (
    KeyValueStore,
    TimestampedKeyValueStore,
    ValueAndTimestamp,
    next_prefix,
)
from zkconsumer.topology.stores.serde_map import Conversions

V = TypeVar("V")


class CachedKeyValueStore(KeyValueStore[V]):
    """A key-value store with a record cache.

    As in Kafka Streams, ``approximate_num_entries`` does not count keys that are only in the cache.
    """

    LAYOUT: ClassVar[str | None] = "KeyValueStore"

    _cache: StoreCache

    def init(self, context: StoreContext) -> None:
        """Open the store."""
        super().init(context)
        self._cache = context.create_cache(self.name, self)
        # Instance attributes avoid a Python call per access.
        self.get = self._cache.entries.get  # type: ignore[method-assign]
        self.put = self._cache.entries.put  # type: ignore[method-assign]
        self.read = self._map.get  # type: ignore[method-assign]
        self.decode_key = self._deserialize_key  # type: ignore[method-assign, assignment]
        self.decode_value = self._value_decoder()  # type: ignore[method-assign, assignment]

    def set_flush_listener(self, listener: FlushListener, send_old_values: bool = False) -> bool:
        """Set the flush listener, and return True; see ``SerdeStore``."""
        self._cache.listener, self._cache.sends_old_values = listener, send_old_values
        return True

    def delete(self, key: Any) -> V | None:
        """Delete ``key``, and return its value, or None if there was none."""
        old = self.get(key)
        self.put(key, None)
        return old

    def range(self, first: Any = None, last: Any = None, *, reverse: bool = False) -> Iterator[tuple[Any, V]]:
        """Return the entries from ``first`` to ``last``, inclusive; None means no bound."""
        start = b"" if first is None else self._serialize_key(first)
        return self._scan(start, None if last is None else self._serialize_key(last) + b"\0", reverse)

    def all(self, *, reverse: bool = False) -> Iterator[tuple[Any, V]]:
        """Return all entries."""
        return self._scan(b"", None, reverse)

    def prefix_scan(self, prefix: bytes) -> Iterator[tuple[Any, V]]:
        """Return the entries whose serialized key starts with ``prefix``."""
        return self._scan(prefix, next_prefix(prefix), False)

    def _scan(self, start: bytes, stop: bytes | None, reverse: bool) -> Iterator[tuple[Any, V]]:
        cached = self._cache.scan(start, stop, reverse)
        return self._decode_entries(merge(self._map.scan(start, stop, reverse), cached, reverse))

    # ---- called by the cache ----

    def _value_decoder(self) -> Callable[[bytes], V]:
        return self._deserialize_value

    def conversions(self) -> Conversions:
        """Return the key and value conversions."""
        return self._conversions()

    def read(self, key: bytes) -> bytes | None:
        """Return the value of ``key`` in the store behind the cache, or None if there is none."""
        return self._map.get(key)

    def write(self, key: bytes, data: bytes | None) -> None:
        """Set the value of ``key`` in the store behind the cache; None deletes the key."""
        if data is None:
            self._map.delete(key)
        else:
            self._map.put(key, data)

    def decode_key(self, key: bytes) -> Any:
        """Deserialize a key."""
        return self._deserialize_key(key)

    def decode_value(self, data: bytes) -> V:
        """Deserialize a value."""
        return self._decode_value(data)


class CachedTimestampedKeyValueStore(CachedKeyValueStore[ValueAndTimestamp], TimestampedKeyValueStore):
    """A ``CachedKeyValueStore`` whose values are ``ValueAndTimestamp``."""

    LAYOUT = "TimestampedKeyValueStore"

    def _value_decoder(self) -> Callable[[bytes], ValueAndTimestamp]:
        return Deserialize(self._conversions().codecs[2], self._decode_value)
