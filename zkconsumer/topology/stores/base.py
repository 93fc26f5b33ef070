"""Base class of state stores, and their conversions between objects and bytes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Protocol

from zkconsumer.topology.errors import InvalidArgumentError, WrongTypeError
from zkconsumer.topology.loop import Deserialize, Serialize
from zkconsumer.topology.serdes import Serde, deserializer_codec, serializer_codec
from zkconsumer.topology.stores.cache import Backing, FlushListener, StoreCache
from zkconsumer.topology.stores.pages import PagedMap


class StoreContext(Protocol):
    """The interface of a task for its stores."""

    def byte_map(self, store: str) -> PagedMap:
        """Return the byte map for the entries of a store. The task writes its changes at each commit."""

    def create_cache(self, store: str, backing: Backing) -> StoreCache:
        """Return a record cache for a store."""

    def count_expired(self, store: str) -> None:
        """Count an expired entry that a store dropped."""


class StateStore(ABC):
    """A store of a task. Subclasses keep their entries in the byte map of the context.

    Args:
        name: name of the store.
        is_persistent: whether entries survive the end of the task where the task keeps its state in files.
        layout: describes the bytes of keys and values. A task rejects entries that were written with
            another layout. The default is the name of the class.
    """

    #: Name of the class in the default layout, if it is another one.
    LAYOUT: ClassVar[str | None] = None

    def __init__(self, name: str, is_persistent: bool = True, layout: str | None = None) -> None:
        self.name = name
        self.is_persistent = is_persistent
        self.layout = self.default_layout() if layout is None else layout

    @classmethod
    def default_layout(cls) -> str:
        """Return the layout without parameters of the store."""
        return cls.LAYOUT or cls.__name__

    @abstractmethod
    def init(self, context: StoreContext) -> None:
        """Open the store."""

    def flush(self) -> None:  # noqa: B027
        """Write values cached in this object to the byte map. The task calls it before each commit."""

    def rollback(self) -> None:  # noqa: B027
        """Discard values cached in this object. The task calls it after it has discarded the changes of the entries."""

    def close(self) -> None:  # noqa: B027
        """Release resources of ``init``."""


def value_serializer(store: str, serde: Serde, what: str = "value") -> Callable[[Any], bytes]:
    """Return a function to serialize values.

    It raises TypeError if the serializer fails or does not return bytes.

    Args:
        store: name of the store, for errors.
        serde: the serde.
        what: ``key`` or ``value``, for errors.
    """
    serialize = serde.serialize

    def serialize_object(value: Any) -> bytes:
        try:
            data = serialize(store, value)
        except Exception as error:
            raise WrongTypeError(
                f"store {store!r}: {what} {value!r} ({type(value).__name__}) cannot be serialized: {error}; use the "
                "types of the store's serdes"
            ) from error
        if type(data) is not bytes:
            raise WrongTypeError(f"store {store!r}: the {what} serializer must return bytes, got {type(data).__name__}")
        return data

    return serialize_object


def key_serializer(store: str, serde: Serde) -> Callable[[Any], bytes]:
    """Return a function to serialize keys.

    It raises ValueError if the key is None, and otherwise the errors of ``value_serializer``.
    """
    serialize_object = value_serializer(store, serde, "key")

    def serialize_key(key: Any) -> bytes:
        if key is None:
            raise InvalidArgumentError(f"store {store!r}: the key must not be None")
        return serialize_object(key)

    return serialize_key


def deserializer(store: str, serde: Serde, what: str) -> Callable[[bytes], Any]:
    """Return a function to deserialize keys or values.

    It raises ValueError if the deserializer fails.

    Args:
        store: name of the store, for errors.
        serde: the serde.
        what: ``key`` or ``value``, for errors.
    """
    deserialize = serde.deserialize

    def deserialize_bytes(data: bytes) -> Any:
        try:
            return deserialize(store, data)
        except Exception as error:
            raise ValueError(f"store {store!r}: {what} {data[:40]!r} cannot be deserialized: {error}") from error

    return deserialize_bytes


class SerdeStore(StateStore):
    """A store whose keys and values have serdes.

    Args:
        name: name of the store.
        serdes: serdes of keys and values.
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
        """Return whether the store is cached. If it is, the listener is called with the last change of each key.

        A processor calls this in ``init``. If the result is False, it forwards changes itself. The listener receives a
        ``Record`` with the timestamp and headers of the change, and a ``Change`` as value, and may call
        ``context.forward``. ``context.record_metadata`` is then that of the change.

        Args:
            listener: the function; it replaces the one before.
            send_old_values: whether to set ``Change.old``.
        """
        return False
