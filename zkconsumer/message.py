"""Partitions, broker addresses and messages, and the Arrow schema of batches."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa

    HEADERS_FIELD: pa.Field
    ARROW_SCHEMA: pa.Schema
    ARROW_SCHEMA_WITH_HEADERS: pa.Schema

Decoder = Callable[[bytes], Any]


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


class MessageAndMetadata(NamedTuple):
    """A consumed record.

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

    topic: str
    partition: int
    offset: int
    key: Any
    value: Any
    timestamp: int
    timestamp_type: int
    headers: tuple[tuple[str, bytes | None], ...]

    @property
    def message(self) -> Any:
        """The value, named ``message`` as in the Scala class."""
        return self.value


def decoded_message_type(key_decoder: Decoder | None, value_decoder: Decoder | None) -> type[MessageAndMetadata]:
    """Return a message class that decodes ``key`` and ``value`` on each access.

    Decoding is lazy, so that a decoder's exception is raised where the field is read, and the stream remains usable
    (KAFKA-1140). Decoders are not called for a null key or value.

    Source: Kafka 1.1 kafka.message.MessageAndMetadata.
    """
    if key_decoder is None and value_decoder is None:
        return MessageAndMetadata
    fields: dict[str, Any] = {"__slots__": ()}
    for name, index, decoder in (("key", 3, key_decoder), ("value", 4, value_decoder)):
        if decoder is not None:
            fields[name] = property(functools.partial(_decode_field, index, decoder))
    return type("MessageAndMetadata", (MessageAndMetadata,), fields)


def _decode_field(index: int, decoder: Decoder, message: tuple[Any, ...]) -> Any:
    data = tuple.__getitem__(message, index)
    return None if data is None else decoder(data)


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
