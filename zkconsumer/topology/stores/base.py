"""What all stores have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol

from zkconsumer.topology.serdes import Serde
from zkconsumer.topology.stores.pages import PagedMap


class StoreContext(Protocol):
    """What a task provides to its stores."""

    def byte_map(self, store: str) -> PagedMap:
        """Return the map of bytes in which a store keeps its entries. The task flushes it at each commit."""

    def count_expired(self, store: str) -> None:
        """Count an entry that a store has not accepted because its time has expired."""


class StateStore(ABC):
    """A store of a task. Subclasses keep their entries in the map of bytes of the context.

    Args:
        name: name of the store.
        is_persistent: whether entries survive the end of the task where the task keeps its state in files.
    """

    def __init__(self, name: str, is_persistent: bool = True) -> None:
        self.name = name
        self.is_persistent = is_persistent

    @abstractmethod
    def init(self, context: StoreContext) -> None:
        """Open the store."""

    def flush(self) -> None:  # noqa: B027
        """Write what is not in the map of bytes yet. The task calls it before each commit."""

    def rollback(self) -> None:  # noqa: B027
        """Forget what was derived from entries that were written since the last commit, and are discarded."""


def value_serializer(store: str, serde: Serde) -> Callable[[Any], bytes]:
    """Return a function that serializes values.

    It raises TypeError if the serializer fails or does not return bytes.
    """
    serialize = serde.serialize

    def serialized(value: Any) -> bytes:
        try:
            data = serialize(store, value)
        except Exception as error:
            kind = type(value).__name__
            raise TypeError(f"store {store!r}: {kind} {value!r} cannot be serialized: {error}") from error
        if type(data) is not bytes:
            raise TypeError(f"store {store!r}: the serializer returned {type(data).__name__} instead of bytes")
        return data

    return serialized


def key_serializer(store: str, serde: Serde) -> Callable[[Any], bytes]:
    """Return a function that serializes keys.

    It raises ValueError if the key is None, and otherwise what that of ``value_serializer`` raises.
    """
    serialized = value_serializer(store, serde)

    def serialized_key(key: Any) -> bytes:
        if key is None:
            raise ValueError(f"store {store!r}: the key must not be None")
        return serialized(key)

    return serialized_key
