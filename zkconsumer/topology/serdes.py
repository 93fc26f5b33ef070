"""Conversions between objects and bytes. Both directions get the topic, or the name of the store, as first argument."""

from __future__ import annotations

import json as _json
import struct
from collections.abc import Callable
from typing import Any, NamedTuple


class Serde(NamedTuple):
    """A serializer and the deserializer that reverses it. Sources and sinks also call them with None; stores do not.

    Attributes:
        serialize: returns bytes for topic and object.
        deserialize: returns the object for topic and bytes.
    """

    serialize: Callable[[str, Any], bytes | None]
    deserialize: Callable[[str, bytes | None], Any]


def _serde(
    expected: type | tuple[type, ...], serialize: Callable[[Any], bytes], deserialize: Callable[[bytes], Any]
) -> Serde:
    def serialized(_topic: str, value: Any) -> bytes | None:
        if value is None:
            return None
        if not isinstance(value, expected):
            first = expected[0] if isinstance(expected, tuple) else expected
            raise TypeError(f"{first.__name__} expected, got {type(value).__name__}")
        return serialize(value)

    return Serde(serialized, lambda _topic, data: None if data is None else deserialize(data))


def _packed(expected: type | tuple[type, ...], form: str) -> Serde:
    packer = struct.Struct(form)
    return _serde(expected, packer.pack, lambda data: packer.unpack(data)[0])


def _checked_bytes(_topic: str, value: Any) -> bytes | None:
    if value is not None and not isinstance(value, bytes):
        raise TypeError(f"bytes expected, got {type(value).__name__}")
    return value


#: Bytes as they are.
BYTES = Serde(_checked_bytes, lambda _topic, data: data)
#: Text as UTF-8.
STRING = _serde(str, str.encode, bytes.decode)
#: Integers of 32 bits, big-endian, as Java's ``Integer``. Negative numbers sort after positive ones in stores.
INTEGER = _packed(int, ">i")
#: Integers of 64 bits, big-endian, as Java's ``Long``. Negative numbers sort after positive ones in stores.
LONG = _packed(int, ">q")
#: Floating point numbers of 64 bits, as Java's ``Double``.
DOUBLE = _packed((float, int), ">d")
#: Objects as JSON in UTF-8. Names are sorted, so equal objects are equal keys.
JSON = _serde(object, lambda value: _json.dumps(value, separators=(",", ":"), sort_keys=True).encode(), _json.loads)
