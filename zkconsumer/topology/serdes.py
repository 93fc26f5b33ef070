"""Conversions between objects and bytes. Both directions get the topic, or the name of the store, as first argument."""

from __future__ import annotations

import json as _json
import struct
from collections.abc import Callable
from typing import Any, NamedTuple


class Serde(NamedTuple):
    """A serializer and the deserializer that reverses it. Neither is called for None, except by sources and sinks.

    Attributes:
        serialize: returns bytes for topic and object.
        deserialize: returns the object for topic and bytes.
    """

    serialize: Callable[[str, Any], bytes | None]
    deserialize: Callable[[str, bytes | None], Any]


def _nullable(serialize: Callable[[Any], bytes], deserialize: Callable[[bytes], Any]) -> Serde:
    return Serde(
        lambda _topic, value: None if value is None else serialize(value),
        lambda _topic, data: None if data is None else deserialize(data),
    )


def _packed(form: str) -> Serde:
    packer = struct.Struct(form)
    return _nullable(packer.pack, lambda data: packer.unpack(data)[0])


def _checked_bytes(_topic: str, value: Any) -> bytes | None:
    if value is not None and not isinstance(value, bytes):
        raise TypeError(f"bytes expected, got {type(value).__name__}")
    return value


#: Bytes as they are.
BYTES = Serde(_checked_bytes, lambda _topic, data: data)
#: Text as UTF-8.
STRING = _nullable(str.encode, bytes.decode)
#: Integers of 32 bits, big-endian, as Java's ``Integer``. Negative numbers sort after positive ones in stores.
INTEGER = _packed(">i")
#: Integers of 64 bits, big-endian, as Java's ``Long``. Negative numbers sort after positive ones in stores.
LONG = _packed(">q")
#: Floating point numbers of 64 bits, as Java's ``Double``.
DOUBLE = _packed(">d")
#: Objects as JSON in UTF-8.
JSON = _nullable(lambda value: _json.dumps(value, separators=(",", ":")).encode(), _json.loads)
