"""Message formatters of ``console-consumer`` and ``simple-consumer-shell``, named after Kafka's classes.

Source: Kafka 1.1 kafka.tools.DefaultMessageFormatter, NoOpMessageFormatter, ChecksumMessageFormatter,
LoggingMessageFormatter.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Callable, Sequence

from zkconsumer.config.name_hints import suggest
from zkconsumer.errors import ConfigurationError
from zkconsumer.fetcher.native import native
from zkconsumer.log import get_logger
from zkconsumer.message import MessageAndMetadata
from zkconsumer.tools import coordinator_records

#: Function that returns the bytes to print for a message.
Formatter = Callable[[MessageAndMetadata], bytes]

_TIMESTAMP_TYPES = {0: "CreateTime", 1: "LogAppendTime"}
_DESERIALIZERS = ("StringDeserializer", "ByteArrayDeserializer", "BytesDeserializer")


def parse_properties(pairs: Sequence[str]) -> dict[str, str]:
    """Parse ``key=value`` arguments; a key without ``=`` has an empty value."""
    return {key: value for key, _, value in (pair.partition("=") for pair in pairs)}


def make_formatter(name: str, properties: dict[str, str]) -> Formatter:
    """Return the formatter for a class name, which may include the package and an outer class, as in ``A$B``.

    Raises:
        ConfigurationError: the class is unknown, or a property has an invalid value.
    """
    short = re.split(r"[.$\\]+", name)[-1]
    if short in coordinator_records.NAMES:
        return coordinator_records.make_formatter(short, name)
    makers: dict[str, Callable[[dict[str, str]], Formatter]] = {
        "DefaultMessageFormatter": _default,
        "NoOpMessageFormatter": lambda _: lambda _message: b"",
        "ChecksumMessageFormatter": _checksum,
        "LoggingMessageFormatter": _logging,
    }
    if short not in makers:
        names = [*makers, *coordinator_records.NAMES]
        meant = suggest(short, names)
        package = "kafka.tools." if meant in makers else ""
        hint = f"did you mean {package}{meant}?" if meant else f"use one of {', '.join(names)}"
        raise ConfigurationError(f"unknown formatter {name!r}; Java classes cannot be loaded; {hint}")
    return makers[short](properties)


def json_line(message: MessageAndMetadata) -> bytes:
    """Return a message as a line of JSON; a key or value that is not UTF-8 becomes ``{"base64": "..."}``."""
    content = {
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "timestamp": message.timestamp if message.timestamp_type in _TIMESTAMP_TYPES else None,
        "headers": [[name, _text(value)] for name, value in message.headers],
        "key": _text(message.key),
        "value": _text(message.value),
    }
    return json.dumps(content).encode() + b"\n"


def _text(data: bytes | None) -> str | dict[str, str] | None:
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data or b"").decode()}


def _default(properties: dict[str, str]) -> Formatter:
    flags = {
        name: properties.get(name, default).strip().lower() == "true"
        for name, default in (("print.timestamp", "false"), ("print.key", "false"), ("print.value", "true"))
    }
    separator = properties.get("key.separator", "\t").encode()
    line_separator = properties.get("line.separator", "\n").encode()
    for name in ("key.deserializer", "value.deserializer"):
        chosen = properties.get(name, _DESERIALIZERS[0]).rpartition(".")[2]
        if chosen not in _DESERIALIZERS:
            raise ConfigurationError(
                f"property {name!r} must be one of {', '.join(_DESERIALIZERS)}, got {properties[name]!r}"
            )

    def format_message(message: MessageAndMetadata) -> bytes:
        columns = []
        if flags["print.timestamp"]:
            kind = _TIMESTAMP_TYPES.get(message.timestamp_type)
            columns.append(f"{kind}:{message.timestamp}".encode() if kind else b"NO_TIMESTAMP")
        if flags["print.key"]:
            columns.append(b"null" if message.key is None else message.key)
        if flags["print.value"]:
            columns.append(b"null" if message.value is None else message.value)
        return separator.join(columns) + line_separator if columns else b""

    return format_message


def _checksum(properties: dict[str, str]) -> Formatter:
    prefix_topic = properties.get("topic") is not None

    def format_message(message: MessageAndMetadata) -> bytes:
        # Computed from the timestamp and the sizes, as in Kafka 1.1 ConsumerRecord.checksum: the log has only one
        # checksum per record batch.
        sizes = (-1 if data is None else len(data) for data in (message.key, message.value))
        checksum = native.crc32c(struct.pack(">qii", message.timestamp, *sizes))
        topic = f"{properties['topic']}:" if prefix_topic else ""
        return f"{topic}checksum:{checksum}\n".encode()

    return format_message


def _logging(properties: dict[str, str]) -> Formatter:
    default, log = _default(properties), get_logger("zkconsumer.console")

    def format_message(message: MessageAndMetadata) -> bytes:
        log.info("message_consumed", key=message.key, value=message.value, timestamp=message.timestamp)
        return default(message)

    return format_message
