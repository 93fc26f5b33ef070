"""Partitions, broker addresses and messages, and the Arrow schema of batches."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self

from zkconsumer.message_py import FIELDS, NO_DECODERS, Decoder, MessageDecoders
from zkconsumer.version import IS_PURE, explain_missing_module

if TYPE_CHECKING or IS_PURE:
    from zkconsumer.message_py import MessageFields, MessageIterator, MessageRows
else:
    try:
        from zkconsumer._message import MessageFields, MessageIterator, MessageRows
    except ImportError as error:
        raise ImportError(explain_missing_module()) from error

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import TypeVar

    K = TypeVar("K", default=bytes)
    V = TypeVar("V", default=bytes)

    HEADERS_FIELD: pa.Field
    ARROW_SCHEMA: pa.Schema
    ARROW_SCHEMA_WITH_HEADERS: pa.Schema

else:
    from typing import TypeVar

    K, V = TypeVar("K"), TypeVar("V")

__all__ = [
    "ARROW_SCHEMA",
    "ARROW_SCHEMA_WITH_HEADERS",
    "HEADERS_FIELD",
    "NO_DECODERS",
    "Decoder",
    "Endpoint",
    "MessageAndMetadata",
    "MessageDecoders",
    "MessageIterator",
    "MessageRows",
    "TopicPartition",
    "string_decoder",
]


class TopicPartition(NamedTuple):
    """A topic and a partition number, ordered by topic name and then by number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Endpoint(NamedTuple):
    """Address of a broker or another server; its string form has brackets around an IPv6 address.

    Attributes:
        host: host name or IP address, without brackets.
        port: port number, between 1 and 65535.
        has_api_versions: whether the broker supports ApiVersions requests (Kafka 0.10 and later); None if unknown.
    """

    host: str
    port: int
    has_api_versions: bool | None = None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> Endpoint:
        """Parse ``host:port``, with brackets around an IPv6 address.

        Raises:
            ValueError: ``text`` is not a host and a port number between 1 and 65535.
        """
        host, colon, port = text.strip().rpartition(":")
        if not colon or not host or not re.fullmatch("[0-9]{1,5}", port) or not 0 < int(port) < 65536:
            raise ValueError(f"address must be host:port, got {text!r}")
        return cls(host.strip("[]"), int(port))

    def with_versions_from(self, known: Iterable[Endpoint]) -> Endpoint:
        """Return the endpoint in ``known`` with this address and a known ``has_api_versions``, or this endpoint."""
        candidates = (endpoint for endpoint in known if endpoint.has_api_versions is not None)
        return next((endpoint for endpoint in candidates if endpoint[:2] == self[:2]), self)


class MessageAndMetadata(MessageFields, Sequence[Any], Generic[K, V]):
    """A consumed record. ``K`` and ``V`` are the types that the decoders return, ``bytes`` without a decoder.

    A message is a sequence of its eight fields. It compares and hashes like a tuple of them, and is equal to such a
    tuple, but it is not an instance of ``tuple``.

    A decoder is called when its field is first read, also as part of the sequence. So its exception is raised there,
    and the stream remains usable (KAFKA-1140). The field keeps the result; after an exception, the decoder is called
    again. Decoders are not called for a null key or value.

    Attributes:
        topic: topic name.
        partition: partition number.
        offset: record offset.
        key: decoded key, None if the record has no key.
        value: decoded value, None if the record has no value.
        timestamp: milliseconds since the epoch, -1 if the record has no timestamp.
        timestamp_type: -1 for no timestamp, 0 for CreateTime, 1 for LogAppendTime.
        headers: ``(key, value)`` pairs.

    Source: Kafka 1.1 kafka.message.MessageAndMetadata.
    """

    __slots__ = ()
    __match_args__ = ("topic", "partition", "offset", "key", "value", "timestamp", "timestamp_type", "headers")
    _fields = FIELDS

    topic: str
    partition: int
    offset: int
    key: K | None
    value: V | None
    timestamp: int
    timestamp_type: int
    headers: tuple[tuple[str, bytes | None], ...]

    @property
    def message(self) -> V | None:
        """The value, named ``message`` as in the Scala class."""
        return self.value

    @classmethod
    def _make(cls, fields: Iterable[Any]) -> Self:
        """Return a message with the given fields."""
        return cls(*fields)

    def _replace(self, **fields: Any) -> Self:
        """Return a message with other values of some fields.

        Raises:
            TypeError: there is no such field.
        """
        if unknown := fields.keys() - set(FIELDS):
            raise TypeError(f"a message has no field {min(unknown)!r}; its fields are {', '.join(FIELDS)}")
        return type(self)(**self._asdict() | fields)

    def _asdict(self) -> dict[str, Any]:
        """Return the fields by name."""
        return dict(zip(FIELDS, self, strict=True))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={self._describe(name)}' for name in FIELDS)})"

    def _describe(self, name: str) -> str:
        try:
            return repr(getattr(self, name))
        except Exception as error:  # of the decoder
            return f"<{type(error).__name__}: {error}>"


def string_decoder(data: bytes) -> str:
    """Decode UTF-8. Source: Kafka 1.1 kafka.serializer.StringDecoder."""
    return data.decode("utf-8")


def _define_schemas() -> dict[str, Any]:
    """Return the Arrow schemas by name; all columns are nullable.

    ``ARROW_SCHEMA`` has the columns of Spark's Kafka source, in the same order.
    """
    import pyarrow as pa

    header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    headers = pa.field("headers", pa.list_(pa.field("element", header)))
    columns = {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestampType": pa.int32(),
    }
    schema = pa.schema(columns)
    return {"HEADERS_FIELD": headers, "ARROW_SCHEMA": schema, "ARROW_SCHEMA_WITH_HEADERS": schema.append(headers)}


def __getattr__(name: str) -> Any:
    # pyarrow takes longer to import than the rest of the package, and only Arrow batches need it.
    if name not in ("HEADERS_FIELD", "ARROW_SCHEMA", "ARROW_SCHEMA_WITH_HEADERS"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals().update(_define_schemas())
    return globals()[name]
