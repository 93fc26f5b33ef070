"""Serializers and deserializers. Their first argument is the topic name or store name.

The functions are defined at module level, so serdes can be pickled and compare equal after unpickling.
"""

from __future__ import annotations

import enum
import json as _json
import struct
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from zkconsumer.topology.function_names import function_name
from zkconsumer.topology.type_variables import T

#: Function that returns an object, given the topic and the serialized bytes or None.
Deserializer = Callable[[str, bytes | None], Any]

#: Function that returns the serialized bytes, given the topic and an object or None.
Serializer = Callable[[str, Any], bytes | None]


F = TypeVar("F", bound=Callable[..., Any])
_E = TypeVar("_E")


class Serde(NamedTuple, Generic[T]):
    """A serializer and the matching deserializer. Sources and sinks also call them with None; stores do not.

    ``T`` is the type of the objects.

    Attributes:
        serialize: function that returns the serialized bytes, given the topic and an object.
        deserialize: function that returns the object, given the topic and the serialized bytes.
    """

    serialize: Callable[[str, T], bytes | None]
    deserialize: Callable[[str, bytes | None], T | None]

    def __repr__(self) -> str:
        return f"Serde({function_name(self.serialize)}, {function_name(self.deserialize)})"


def to_serializer(serializer: Serializer | Serde | None) -> Serializer | None:
    """Return the serializer of a serde; return other objects unchanged."""
    return serializer.serialize if isinstance(serializer, Serde) else serializer


def to_deserializer(deserializer: Deserializer | Serde | None) -> Deserializer | None:
    """Return the deserializer of a serde; return other objects unchanged."""
    return deserializer.deserialize if isinstance(deserializer, Serde) else deserializer


def choose_serializer(serializer: Serializer | None, default: Serde) -> Serializer:
    """Return ``serializer``, or the default serializer if it is None.

    Args:
        serializer: serializer or None. If it has a method ``with_default``, the method is called with ``default`` and
            returns the serializer.
        default: default serde of the application.
    """
    return default.serialize if serializer is None else complete(serializer, default)


def choose_deserializer(deserializer: Deserializer | None, default: Serde) -> Deserializer:
    """Return ``deserializer``, or the default deserializer if it is None; see ``choose_serializer``."""
    return default.deserialize if deserializer is None else complete(deserializer, default)


def choose_serde(serde: Serde | None, default: Serde) -> Serde:
    """Return ``serde``, or the default serde if it is None; see ``choose_serializer``."""
    if serde is None:
        return default
    return Serde(choose_serializer(serde.serialize, default), choose_deserializer(serde.deserialize, default))


def complete(function: F, default: Serde) -> F:
    """Return ``function``, or the result of its ``with_default`` method if it has one."""
    with_default: Callable[[Serde], F] | None = getattr(function, "with_default", None)
    return function if with_default is None else with_default(default)


_INTEGER, _LONG, _DOUBLE = struct.Struct(">i"), struct.Struct(">q"), struct.Struct(">d")


def _expect(expected: type[_E], value: object) -> _E:
    if not isinstance(value, expected):
        raise TypeError(f"must be {expected.__name__}, got {type(value).__name__}")
    return value


def _pack_integer(packer: struct.Struct, value: Any) -> bytes:
    limit = 1 << 8 * packer.size - 1
    if not -limit <= _expect(int, value) < limit:
        raise OverflowError(f"must be between {-limit} and {limit - 1}, got {value}")
    return packer.pack(value)


def check_bytes(_topic: str, value: bytes | None) -> bytes | None:
    """Return bytes or None unchanged; raise TypeError for other types."""
    return None if value is None else _expect(bytes, value)


def same_bytes(_topic: str, data: bytes | None) -> bytes | None:
    """Return the bytes unchanged, without validating them."""
    return data


def string_to_bytes(_topic: str, value: str | None) -> bytes | None:
    """Encode a string as UTF-8."""
    return None if value is None else _expect(str, value).encode()


def bytes_to_string(_topic: str, data: bytes | None) -> str | None:
    """Decode a UTF-8 string."""
    return None if data is None else data.decode()


def integer_to_bytes(_topic: str, value: int | None) -> bytes | None:
    """Encode a 32-bit integer."""
    return None if value is None else _pack_integer(_INTEGER, value)


def bytes_to_integer(_topic: str, data: bytes | None) -> int | None:
    """Decode a 32-bit integer."""
    return None if data is None else int(_INTEGER.unpack(data)[0])


def long_to_bytes(_topic: str, value: int | None) -> bytes | None:
    """Encode a 64-bit integer."""
    return None if value is None else _pack_integer(_LONG, value)


def bytes_to_long(_topic: str, data: bytes | None) -> int | None:
    """Decode a 64-bit integer."""
    return None if data is None else int(_LONG.unpack(data)[0])


def double_to_bytes(_topic: str, value: float | None) -> bytes | None:
    """Encode a 64-bit floating-point number."""
    return None if value is None else _DOUBLE.pack(value if isinstance(value, int) else _expect(float, value))


def bytes_to_double(_topic: str, data: bytes | None) -> float | None:
    """Decode a 64-bit floating-point number."""
    return None if data is None else float(_DOUBLE.unpack(data)[0])


def json_to_bytes(_topic: str, value: Any) -> bytes | None:
    """Encode an object as JSON with sorted keys."""
    return None if value is None else _json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def bytes_to_json(_topic: str, data: bytes | None) -> Any:
    """Decode an object from JSON."""
    return None if data is None else _json.loads(data)


#: Bytes, unchanged.
BYTES: Serde[bytes] = Serde(check_bytes, same_bytes)
#: Strings as UTF-8.
STRING: Serde[str] = Serde(string_to_bytes, bytes_to_string)
#: 32-bit big-endian integers, like Java's ``Integer``. In stores, negative numbers sort after positive numbers.
INTEGER: Serde[int] = Serde(integer_to_bytes, bytes_to_integer)
#: 64-bit big-endian integers, like Java's ``Long``. In stores, negative numbers sort after positive numbers.
LONG: Serde[int] = Serde(long_to_bytes, bytes_to_long)
#: 64-bit floating-point numbers, like Java's ``Double``.
DOUBLE: Serde[float] = Serde(double_to_bytes, bytes_to_double)
#: Objects as UTF-8 JSON. Object keys are sorted, so that equal objects are serialized to equal bytes.
JSON: Serde[Any] = Serde(json_to_bytes, bytes_to_json)


class Codec(enum.IntEnum):
    """A conversion that is compiled for objects of exactly one type; for other objects, the serde is called."""

    OTHER = 0
    BYTES = 1
    STRING = 2
    INTEGER = 3
    LONG = 4
    DOUBLE = 5
    #: Added to a value codec for ``ValueAndTimestamp`` objects, which are encoded as an 8-byte timestamp followed by
    #: the value.
    TIMESTAMPED = 16
    #: Added to the codec of inner keys for ``Windowed`` keys, which are encoded as the inner key followed by the 8-byte
    #: window start.
    TIME_WINDOWED = 32
    #: Added to the codec of inner keys for ``Windowed`` keys, which are encoded as the inner key followed by the 8-byte
    #: session end and the 8-byte session start.
    SESSION_WINDOWED = 64


_CODECS = (
    (Codec.BYTES, BYTES),
    (Codec.STRING, STRING),
    (Codec.INTEGER, INTEGER),
    (Codec.LONG, LONG),
    (Codec.DOUBLE, DOUBLE),
)


def serializer_codec(serialize: Callable[[str, Any], bytes | None]) -> Codec:
    """Return the codec of a serializer; ``Codec.OTHER`` if there is none."""
    return next((codec for codec, serde in _CODECS if serde.serialize is serialize), Codec.OTHER)


def deserializer_codec(deserialize: Callable[[str, bytes | None], Any]) -> Codec:
    """Return the codec of a deserializer; ``Codec.OTHER`` if there is none."""
    return next((codec for codec, serde in _CODECS if serde.deserialize is deserialize), Codec.OTHER)
