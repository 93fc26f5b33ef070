"""How the consoles print a message: the formatters of the original, by their class names.

Source: Kafka 1.1 kafka.tools.DefaultMessageFormatter, NoOpMessageFormatter, ChecksumMessageFormatter,
LoggingMessageFormatter.
"""

from __future__ import annotations

import base64
import difflib
import json
import struct
from collections.abc import Callable, Sequence

from zkconsumer.errors import ConfigurationError
from zkconsumer.fetcher.decode import native
from zkconsumer.log import get_logger
from zkconsumer.message import MessageAndMetadata

#: Turns a message into the bytes to print.
Formatter = Callable[[MessageAndMetadata], bytes]

_TIMESTAMP_TYPES = {0: "CreateTime", 1: "LogAppendTime"}
_DESERIALIZERS = ("StringDeserializer", "ByteArrayDeserializer", "BytesDeserializer")


def parse_properties(pairs: Sequence[str]) -> dict[str, str]:
    """Read ``key=value`` arguments; a key alone means that it is empty."""
    return {key: value for key, _, value in (pair.partition("=") for pair in pairs)}


def make_formatter(name: str, properties: dict[str, str]) -> Formatter:
    """Return the formatter of that class name, with or without its package.

    Raises:
        ConfigurationError: there is none of that name, or it is given a value that it has no use for.
    """
    short = name.rpartition(".")[2]
    makers: dict[str, Callable[[dict[str, str]], Formatter]] = {
        "DefaultMessageFormatter": _default,
        "NoOpMessageFormatter": lambda _: lambda _message: b"",
        "ChecksumMessageFormatter": _checksum,
        "LoggingMessageFormatter": _logging,
    }
    if short not in makers:
        near = difflib.get_close_matches(short, makers, 1)
        hint = f"; did you mean kafka.tools.{near[0]}?" if near else f"; there are {', '.join(makers)}"
        raise ConfigurationError(f"--formatter {name}: classes of the JVM cannot be loaded here{hint}")
    return makers[short](properties)


def json_line(message: MessageAndMetadata) -> bytes:
    """Return a message as a line of JSON: text where key and value are UTF-8, else ``{"base64": "..."}``."""
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
    between = properties.get("key.separator", "\t").encode()
    end = properties.get("line.separator", "\n").encode()
    for name in ("key.deserializer", "value.deserializer"):
        chosen = properties.get(name, _DESERIALIZERS[0]).rpartition(".")[2]
        if chosen not in _DESERIALIZERS:
            raise ConfigurationError(f"{name}={properties[name]}: only {', '.join(_DESERIALIZERS)} are known here")

    def write(message: MessageAndMetadata) -> bytes:
        columns = []
        if flags["print.timestamp"]:
            kind = _TIMESTAMP_TYPES.get(message.timestamp_type)
            columns.append(f"{kind}:{message.timestamp}".encode() if kind else b"NO_TIMESTAMP")
        if flags["print.key"]:
            columns.append(b"null" if message.key is None else message.key)
        if flags["print.value"]:
            columns.append(b"null" if message.value is None else message.value)
        return between.join(columns) + end if columns else b""

    return write


def _checksum(properties: dict[str, str]) -> Formatter:
    prefix_topic = properties.get("topic") is not None

    def write(message: MessageAndMetadata) -> bytes:
        # Kafka 1.1 ConsumerRecord.checksum: of the sizes, since the log's own is that of a whole batch.
        sizes = (-1 if data is None else len(data) for data in (message.key, message.value))
        checksum = native.crc32c(struct.pack(">qii", message.timestamp, *sizes))
        topic = f"{properties['topic']}:" if prefix_topic else ""
        return f"{topic}checksum:{checksum}\n".encode()

    return write


def _logging(properties: dict[str, str]) -> Formatter:
    default, log = _default(properties), get_logger("zkconsumer.console")

    def write(message: MessageAndMetadata) -> bytes:
        log.info("message", key=message.key, value=message.value, timestamp=message.timestamp)
        return default(message)

    return write
