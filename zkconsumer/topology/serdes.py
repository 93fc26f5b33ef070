"""Conversions between objects and bytes. The first argument is the topic, or the name of the store.

The functions are attributes of the module, so serdes can be pickled, and are equal after that.
"""

from __future__ import annotations

import enum
import json as _json
import struct
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from zkconsumer.topology.function_names import function_name

#: Returns an object for the topic and the serialized bytes, which may be None.
Deserializer = Callable[[str, bytes | None], Any]

#: Returns the serialized bytes for the topic and an object, which may be None.
Serializer = Callable[[str, Any], bytes | None]


F = TypeVar("F", bound=Callable[..., Any])


class Serde(NamedTuple):
    """A serializer and the deserializer that reverses it. Sources and sinks also call them with None; stores do not.

    Attributes:
        serialize: returns bytes for topic and object.
        deserialize: returns the object for topic and bytes.
    """

    serialize: Callable[[str, Any], bytes | None]
    deserialize: Callable[[str, bytes | None], Any]

    def __repr__(self) -> str:
        return f"Serde({function_name(self.serialize)}, {function_name(self.deserialize)})"


def choose_serializer(serializer: Serializer | None, default: Serde) -> Serializer:
    """Return a serializer, or that of the default if it is None.

    Args:
        serializer: the serializer. If it has a method ``with_default``, that returns the serializer, from the default.
        default: serde of the application.
    """
    return default.serialize if serializer is None else complete(serializer, default)


def choose_deserializer(deserializer: Deserializer | None, default: Serde) -> Deserializer:
    """Return a deserializer, or that of the default if it is None; see ``choose_serializer``."""
    return default.deserialize if deserializer is None else complete(deserializer, default)


def choose_serde(serde: Serde | None, default: Serde) -> Serde:
    """Return a serde, or the default if it is None; see ``choose_serializer``."""
    if serde is None:
        return default
    return Serde(choose_serializer(serde.serialize, default), choose_deserializer(serde.deserialize, default))


def complete(function: F, default: Serde) -> F:
    """Return a function with the serde of the application, if it has a method ``with_default``."""
    with_default: Callable[[Serde], F] | None = getattr(function, "with_default", None)
    return function if with_default is None else with_default(default)


_INTEGER, _LONG, _DOUBLE = struct.Struct(">i"), struct.Struct(">q"), struct.Struct(">d")


def _expect(expected: type, value: Any) -> Any:
    if not isinstance(value, expected):
        raise TypeError(f"must be {expected.__name__}, got {type(value).__name__}")
    return value


def check_bytes(_topic: str, value: Any) -> bytes | None:
    """Return bytes as they are."""
    return None if value is None else _expect(bytes, value)


def same_bytes(_topic: str, data: bytes | None) -> Any:
    """Return bytes as they are, without a check."""
    return data


def string_to_bytes(_topic: str, value: Any) -> bytes | None:
    """Encode text."""
    return None if value is None else _expect(str, value).encode()


def bytes_to_string(_topic: str, data: bytes | None) -> str | None:
    """Decode text."""
    return None if data is None else data.decode()


def integer_to_bytes(_topic: str, value: Any) -> bytes | None:
    """Encode an integer of 32 bits."""
    return None if value is None else _INTEGER.pack(_expect(int, value))


def bytes_to_integer(_topic: str, data: bytes | None) -> int | None:
    """Decode an integer of 32 bits."""
    return None if data is None else int(_INTEGER.unpack(data)[0])


def long_to_bytes(_topic: str, value: Any) -> bytes | None:
    """Encode an integer of 64 bits."""
    return None if value is None else _LONG.pack(_expect(int, value))


def bytes_to_long(_topic: str, data: bytes | None) -> int | None:
    """Decode an integer of 64 bits."""
    return None if data is None else int(_LONG.unpack(data)[0])


def double_to_bytes(_topic: str, value: Any) -> bytes | None:
    """Encode a floating point number of 64 bits."""
    return None if value is None else _DOUBLE.pack(value if isinstance(value, int) else _expect(float, value))


def bytes_to_double(_topic: str, data: bytes | None) -> float | None:
    """Decode a floating point number of 64 bits."""
    return None if data is None else float(_DOUBLE.unpack(data)[0])


def json_to_bytes(_topic: str, value: Any) -> bytes | None:
    """Encode an object as JSON, with sorted names."""
    return None if value is None else _json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def bytes_to_json(_topic: str, data: bytes | None) -> Any:
    """Decode an object from JSON."""
    return None if data is None else _json.loads(data)


#: Bytes as they are.
BYTES = Serde(check_bytes, same_bytes)
#: Text as UTF-8.
STRING = Serde(string_to_bytes, bytes_to_string)
#: Integers of 32 bits, big-endian, as Java's ``Integer``. Negative numbers sort after positive ones in stores.
INTEGER = Serde(integer_to_bytes, bytes_to_integer)
#: Integers of 64 bits, big-endian, as Java's ``Long``. Negative numbers sort after positive ones in stores.
LONG = Serde(long_to_bytes, bytes_to_long)
#: Floating point numbers of 64 bits, as Java's ``Double``.
DOUBLE = Serde(double_to_bytes, bytes_to_double)
#: Objects as JSON in UTF-8. Names are sorted, so equal objects are equal keys.
JSON = Serde(json_to_bytes, bytes_to_json)


class Codec(enum.IntEnum):
    """A conversion that compiled functions can do for exact types; they call the function of the serde otherwise."""

    OTHER = 0
    BYTES = 1
    STRING = 2
    INTEGER = 3
    LONG = 4
    DOUBLE = 5
    #: Added to the codec of the value in a ``ValueAndTimestamp``, which follows eight bytes of the timestamp.
    TIMESTAMPED = 16


_CODECS = (
    (Codec.BYTES, BYTES),
    (Codec.STRING, STRING),
    (Codec.INTEGER, INTEGER),
    (Codec.LONG, LONG),
    (Codec.DOUBLE, DOUBLE),
)


def serializer_codec(serialize: Callable[[str, Any], bytes | None]) -> Codec:
    """Return the codec of a serializer."""
    return next((codec for codec, serde in _CODECS if serde.serialize is serialize), Codec.OTHER)


def deserializer_codec(deserialize: Callable[[str, bytes | None], Any]) -> Codec:
    """Return the codec of a deserializer."""
    return next((codec for codec, serde in _CODECS if serde.deserialize is deserialize), Codec.OTHER)
