"""What all stores have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
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

    def serialized_key(self, serde: Serde, key: Any) -> bytes:
        """Return the bytes of a key.

        Raises:
            ValueError: the key is None.
            TypeError: the serializer has not returned bytes.
        """
        if key is None:
            raise ValueError(f"store {self.name!r}: the key must not be None")
        return self.serialized(serde, key)

    def serialized(self, serde: Serde, value: Any) -> bytes:
        """Return the bytes of an object.

        Raises:
            TypeError: the serializer has failed, or has not returned bytes.
        """
        try:
            data = serde.serialize(self.name, value)
        except Exception as error:
            raise TypeError(
                f"store {self.name!r}: {type(value).__name__} {value!r} cannot be serialized: {error}"
            ) from error
        if not isinstance(data, bytes):
            raise TypeError(f"store {self.name!r}: the serializer returned {type(data).__name__} instead of bytes")
        return data
