"""Base classes of state stores, and functions that convert keys and values to bytes and back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Protocol

from zkconsumer.topology.errors import InvalidArgumentError, WrongTypeError
from zkconsumer.topology.loop.native import Deserialize, Serialize
from zkconsumer.topology.serdes import Serde, deserializer_codec, serializer_codec
from zkconsumer.topology.stores.cache import Backing, FlushListener, StoreCache
from zkconsumer.topology.stores.pages import PagedMap


class StoreContext(Protocol):
    """The task methods that stores call."""

    def byte_map(self, store: str) -> PagedMap:
        """Return the byte map that contains the entries of ``store``. The task writes changed pages on each commit."""

    def create_cache(self, store: str, backing: Backing) -> StoreCache:
        """Create a record cache for ``store``."""

    def count_expired(self, store: str) -> None:
        """Count an expired entry that ``store`` dropped."""


class StateStore(ABC):
    """Base class of state stores. Subclasses keep their entries in the byte map of the ``StoreContext``.

    Args:
        name: name of the store.
        is_persistent: whether the test driver saves the entries in its state file, if it has one. Ignored on Spark.
        layout: description of the key and value format. A task rejects entries that were written with a different
            layout. None uses ``default_layout()``.
    """

    #: Class name in the default layout, if it differs from the actual class name.
    LAYOUT: ClassVar[str | None] = None

    def __init__(self, name: str, is_persistent: bool = True, layout: str | None = None) -> None:
        self.name = name
        self.is_persistent = is_persistent
        self.layout = self.default_layout() if layout is None else layout

    @classmethod
    def default_layout(cls) -> str:
        """Return the default layout, which is ``LAYOUT`` if it is set, or else the class name."""
        return cls.LAYOUT or cls.__name__

    @abstractmethod
    def init(self, context: StoreContext) -> None:
        """Open the store."""

    def flush(self) -> None:  # noqa: B027
        """Write values that are cached in this object to the byte map. Called before each commit."""

    def rollback(self) -> None:  # noqa: B027
        """Discard values that are cached in this object. Called after the byte map is rolled back."""

    def close(self) -> None:  # noqa: B027
        """Release the resources that ``init`` acquired."""


def value_serializer(store: str, serde: Serde, what: str = "value") -> Callable[[Any], bytes]:
    """Return a function that serializes keys or values.

    The function raises TypeError if the serializer fails or does not return bytes.

    Args:
        store: store name, used in error messages.
        serde: serde that contains the serializer.
        what: ``key`` or ``value``, used in error messages.
    """
    serialize = serde.serialize

    def serialize_object(value: Any) -> bytes:
        try:
            data = serialize(store, value)
        except Exception as error:
            raise WrongTypeError(
                f"store {store!r}: {what} {value!r} ({type(value).__name__}) cannot be serialized: {error}; use "
                "types that the store's serdes accept"
            ) from error
        if type(data) is not bytes:
            raise WrongTypeError(f"store {store!r}: the {what} serializer must return bytes, got {type(data).__name__}")
        return data

    return serialize_object


def key_serializer(store: str, serde: Serde) -> Callable[[Any], bytes]:
    """Return a function that serializes keys.

    The function raises ValueError if the key is None. For other errors, see ``value_serializer``.
    """
    serialize_object = value_serializer(store, serde, "key")

    def serialize_key(key: Any) -> bytes:
        if key is None:
            raise InvalidArgumentError(f"store {store!r}: the key must not be None")
        return serialize_object(key)

    return serialize_key


def deserializer(store: str, serde: Serde, what: str) -> Callable[[bytes], Any]:
    """Return a function that deserializes keys or values.

    The function raises ValueError if the deserializer fails.

    Args:
        store: store name, used in error messages.
        serde: serde that contains the deserializer.
        what: ``key`` or ``value``, used in error messages.
    """
    deserialize = serde.deserialize

    def deserialize_bytes(data: bytes) -> Any:
        try:
            return deserialize(store, data)
        except Exception as error:
            raise ValueError(f"store {store!r}: {what} {data[:40]!r} cannot be deserialized: {error}") from error

    return deserialize_bytes


class SerdeStore(StateStore):
    """Base class of stores that serialize keys and values with serdes.

    Args:
        name: name of the store.
        serdes: key and value serdes.
        is_persistent: see ``StateStore``.
        layout: see ``StateStore``.
    """

    def __init__(self, name: str, serdes: tuple[Serde, Serde], is_persistent: bool, layout: str | None = None) -> None:
        super().__init__(name, is_persistent, layout)
        key_serde, value_serde = serdes
        self._codecs = (
            serializer_codec(key_serde.serialize),
            serializer_codec(value_serde.serialize),
            deserializer_codec(value_serde.deserialize),
        )
        self._serialize_key = Serialize(self._codecs[0], key_serializer(name, key_serde))
        self._deserialize_key = Deserialize(
            deserializer_codec(key_serde.deserialize), deserializer(name, key_serde, "key")
        )
        self._serialize_value = Serialize(self._codecs[1], value_serializer(name, value_serde))
        self._deserialize_value = Deserialize(self._codecs[2], deserializer(name, value_serde, "value"))

    def set_flush_listener(self, _listener: FlushListener, _send_old_values: bool = False) -> bool:
        """Set the flush listener if the store is cached, and return whether it is.

        A processor calls this method in ``init``. If it returns False, the processor must forward changes itself. If it
        returns True, the listener is called with the last change of each key: a ``Record`` whose value is a ``Change``,
        with the timestamp and headers of the change. The listener may call ``context.forward``. While the
        listener runs, ``context.record_metadata`` is the metadata of the source record that caused the change.

        Args:
            listener: function to call; it replaces the previous listener.
            send_old_values: whether to set ``Change.old``.
        """
        return False
